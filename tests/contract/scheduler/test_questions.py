"""What a pool's leader answers about its queue, and who answers at all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.suite import until

from tenure.admission.v1 import admission_pb2 as apb
from tenure.admission.v1.admission_pb2_grpc import AdmissionServiceStub
from tenure.scheduler.v1 import pool_pb2 as ppb
from tenure.scheduler.v1 import scheduler_pb2 as spb
from tenure_core.errors import Invalid, NotFound, Unavailable, WrongState
from tenure_runtime.clocks import SystemClock
from tenure_runtime.rpc.wire import span_to_millis, to_duration, to_millis, to_timestamp
from tenure_scheduler import metering, planning

WHOLE = {"amounts": {"cpu": 4_000}, "preemptible": False}
MINUTE = to_duration(60_000)


@pytest.fixture
def store_kind() -> str:
    """The answers do not depend on where pools are kept."""
    return "memory"


async def _full(scheduler: Any) -> None:
    """Have one lease fill the one agent and two wait behind it."""
    await scheduler.plane.submit("runs", **WHOLE)
    await scheduler.plane.until_state("runs", "active")
    await scheduler.plane.submit("first", **WHOLE)
    await scheduler.plane.until_state("first", "scheduled")
    for name in ("second", "third"):
        await scheduler.plane.submit(name, **WHOLE)
        await scheduler.plane.until_state(name, "queued")


async def test_the_queue_is_shown_in_its_order_with_reasons(scheduler: Any) -> None:
    async with scheduler.plane.agent():
        await _full(scheduler)
        whole = await scheduler.call(spb.GetQueueRequest(pool="pools/default"), caller="ann")
        head = await scheduler.call(spb.GetQueueRequest(pool="default", limit=1))

    assert [(entry.position, entry.lease) for entry in whole.entries] == [
        (1, "leases/second"),
        (2, "leases/third"),
    ]
    assert whole.total_count == head.total_count == 2
    assert [entry.lease for entry in head.entries] == ["leases/second"]
    first = whole.entries[0]
    assert (first.owner, first.node_count, dict(first.amounts)) == ("ann", 1, {"cpu": 4_000})
    assert span_to_millis(first.duration) == 60_000
    assert first.reason
    assert first.message


async def test_starts_are_predicted_one_after_another(scheduler: Any) -> None:
    async with scheduler.plane.agent():
        await _full(scheduler)
        both = await scheduler.call(spb.PredictStartsRequest(pool="default"))
        one = await scheduler.call(
            spb.PredictStartsRequest(pool="default", leases=["leases/third"])
        )
        first = await scheduler.plane.lease("first")

    starts = {entry.lease: to_millis(entry.start_time) for entry in both.predictions}
    assert list(starts) == ["leases/second", "leases/third"]
    assert starts["leases/second"] >= to_millis(first.predicted_start_time) + 60_000
    assert starts["leases/third"] >= starts["leases/second"] + 60_000
    assert [entry.lease for entry in one.predictions] == ["leases/third"]


async def test_what_if_says_when_where_and_at_whose_cost_and_books_nothing(
    scheduler: Any,
) -> None:
    plane = scheduler.plane
    async with plane.agent():
        await until(_has_node(plane), 10.0, "the agent's node is known")
        now = await scheduler.call(
            spb.WhatIfRequest(pool="default", node_count=1, amounts={"cpu": 1_000}, duration=MINUTE)
        )
        never = await scheduler.call(
            spb.WhatIfRequest(pool="default", node_count=9, amounts={"cpu": 4_000}, duration=MINUTE)
        )
        await plane.submit("works", amounts={"cpu": 4_000})
        await plane.until_state("works", "active")
        later = to_timestamp(SystemClock().now_ms() + 20_000)
        booked = await scheduler.call(
            spb.WhatIfRequest(
                pool="default",
                node_count=1,
                amounts={"cpu": 4_000},
                duration=MINUTE,
                advance_start_time=later,
            )
        )
        rows = await plane.rows()

    assert (now.accepted, list(now.nodes)) == (True, ["nodes/a1"])
    assert abs(to_millis(now.start_time) - SystemClock().now_ms()) < 30_000
    # It would be taken, as nodes may come; no start can be named, and why is said.
    assert (never.accepted, never.HasField("start_time")) == (True, False)
    assert never.reason == "NO_SUITABLE_NODES"
    assert never.message
    assert (booked.accepted, list(booked.preempted_leases)) == (True, ["leases/works"])
    assert booked.start_time == later
    assert [row.lease for row in rows] == ["leases/works"]


def _has_node(plane: Any) -> Any:
    async def has_node() -> bool:
        return len(await plane.nodes()) == 1

    return has_node


async def test_what_if_refuses_nonsense_with_every_violation(scheduler: Any) -> None:
    request = spb.WhatIfRequest(
        pool="Bad", amounts={"cpu": -1}, immediate=True, deadline_time=to_timestamp(1)
    )
    with pytest.raises(Invalid) as caught:
        await scheduler.call(request)
    fields = [violation.field for violation in caught.value.violations]
    assert fields[:2] == ["pool", "node_count"]
    assert {"duration", "immediate"} < set(fields)


async def test_a_cycle_that_is_asked_for_has_run_when_the_answer_comes(scheduler: Any) -> None:
    first = await scheduler.call(spb.TriggerCycleRequest(pool="default"), caller="svc")
    second = await scheduler.call(spb.TriggerCycleRequest(pool="default"))

    assert second.cycle > first.cycle > 0
    assert (second.scheduled_count, second.queued_count) == (0, 0)


async def test_demand_is_streamed_at_once_and_whenever_it_changes(scheduler: Any) -> None:
    client, stub = await scheduler.stub("svc")
    request = spb.WatchDemandRequest(pool="pools/default")
    async with asyncio.timeout(15), client.stream(stub.WatchDemand, request) as demands:
        changes = aiter(demands)
        assert list((await anext(changes)).entries) == []
        await scheduler.plane.submit("wants", amounts={"cpu": 2_000}, node_count=3)
        [wanted] = (await anext(changes)).entries
        assert (wanted.lease, wanted.node_count, dict(wanted.amounts)) == (
            "leases/wants",
            3,
            {"cpu": 2_000},
        )
        async with scheduler.plane.agent(), scheduler.plane.agent("a2"):
            assert list((await anext(changes)).entries) == []


async def test_a_replica_that_does_not_lead_says_who_does(scheduler: Any) -> None:
    await scheduler.start("s2")
    for request in (
        spb.GetQueueRequest(pool="default"),
        spb.PredictStartsRequest(pool="default"),
        spb.WhatIfRequest(pool="default", node_count=1, amounts={"cpu": 1}, duration=MINUTE),
        spb.TriggerCycleRequest(pool="default"),
        spb.StepDownRequest(pool="default"),
    ):
        with pytest.raises(Unavailable) as caught:
            await scheduler.call(request, replica="s2")
        assert caught.value.reason == "NOT_LEADER"
        assert caught.value.metadata["leader"] == "127.0.0.1:1"
    one = await scheduler.call(spb.GetLeaderRequest(pool="default"), caller="ann")
    other = await scheduler.call(spb.GetLeaderRequest(pool="default"), replica="s2")

    assert (one.holder, one.epoch, one.election) == ("s1", 1, "fixed")
    assert (other.holder, other.epoch) == ("s1", 0)


async def test_a_leader_that_steps_down_is_followed_under_a_newer_epoch(scheduler: Any) -> None:
    async with scheduler.plane.agent():
        await scheduler.plane.submit("runs")
        before = await scheduler.plane.until_state("runs", "active")
        await scheduler.start("s2")
        await scheduler.call(spb.StepDownRequest(pool="default"))
        await scheduler.leads(replica="s2")
        now = await scheduler.call(spb.GetLeaderRequest(pool="default"), replica="s2")
        await scheduler.plane.submit("after")
        await scheduler.plane.until_state("after", "active")

        assert (now.holder, now.epoch) == ("s2", 2)
        assert await scheduler.plane.lease("runs") == before


async def test_a_demand_watch_ends_with_the_leadership(scheduler: Any) -> None:
    client, stub = await scheduler.stub("svc")
    request = spb.WatchDemandRequest(pool="default")
    async with asyncio.timeout(15), client.stream(stub.WatchDemand, request) as demands:
        changes = aiter(demands)
        await anext(changes)
        await scheduler.start("s2")
        await scheduler.call(spb.StepDownRequest(pool="default"))
        with pytest.raises(Unavailable) as caught:
            await anext(changes)
        assert caught.value.reason == "NOT_LEADER"


async def test_a_pool_that_does_not_exist_is_not_found(scheduler: Any) -> None:
    for request in (
        spb.GetQueueRequest(pool="none"),
        spb.GetLeaderRequest(pool="none"),
        spb.PredictStartsRequest(pool="none"),
        spb.TriggerCycleRequest(pool="none"),
        spb.StepDownRequest(pool="none"),
    ):
        with pytest.raises(NotFound) as caught:
            await scheduler.call(request)
        assert caught.value.reason == "POOL_NOT_FOUND"


async def test_a_cordoned_pool_starts_nothing_new(scheduler: Any) -> None:
    async with scheduler.plane.agent():
        await scheduler.plane.submit("before")
        await scheduler.plane.until_state("before", "active")
        pool = ppb.Pool(name="pools/default", cordoned=True)
        await scheduler.call(spb.UpdatePoolRequest(pool=pool))
        await scheduler.plane.submit("new")
        await scheduler.call(spb.TriggerCycleRequest(pool="default"))
        waits = await scheduler.plane.until_state("new", "queued")
        going_on = await scheduler.plane.lease("before")
        assert waits.reason
        assert going_on.state == going_on.STATE_ACTIVE


async def test_each_service_says_which_program_answers(scheduler: Any) -> None:
    info = (await scheduler.call(spb.GetServiceInfoRequest(), caller="ann")).info

    assert (info.service, info.instance) == ("scheduler", "s1")
    assert info.version


async def test_a_lease_that_waits_unchanged_is_seen_to_be_looked_at_still(
    scheduler: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "TELL_AGAIN_MS", 500)
    admission = await scheduler.plane.client("admission", caller="ann")
    ask = AdmissionServiceStub(admission.channel).ExplainLease
    request = apb.ExplainLeaseRequest(name="leases/second")

    async def looked_at() -> int:
        return to_millis((await admission.call(ask, request)).evaluate_time)

    async with scheduler.plane.agent():
        await _full(scheduler)
        first = await looked_at()

        async def again() -> bool:
            return await looked_at() > first

        # Forecasts that say the same are written anew after five seconds only.
        await until(again, 15, "a new look at the same forecast")


async def test_a_waiting_lease_is_told_its_place_and_the_smallest_change_that_helps(
    scheduler: Any,
) -> None:
    plane = scheduler.plane
    hour = to_duration(3_600_000)
    async with plane.agent():
        await plane.submit("runs", amounts={"cpu": 2_000}, preemptible=False, duration=hour)
        await plane.until_state("runs", "active")
        await plane.submit("first", **WHOLE)
        await plane.until_state("first", "scheduled")
        asks = {"amounts": {"cpu": 1_000}, "node_count": 4, "duration": hour}
        await plane.submit("waits", **asks)
        await plane.until_state("waits", "queued")
        ask = spb.ExplainWaitingRequest(pool="pools/default", lease="leases/waits")
        told = await scheduler.call(ask, caller="svc")
        ask.node_count_max = 1
        ask.duration_max.FromMilliseconds(0)
        bounded = await scheduler.call(ask, caller="svc")
        promised = await scheduler.call(
            spb.ExplainWaitingRequest(pool="default", lease="leases/first"), caller="svc"
        )
        with pytest.raises(WrongState) as caught:
            await scheduler.call(
                spb.ExplainWaitingRequest(pool="default", lease="leases/runs"), caller="svc"
            )

    assert (told.position, told.total_count) == (1, 1)
    assert told.place_message == "The queue goes by arrival."
    [both] = told.suggestions
    assert both.node_count == 2
    assert 57 * 60_000 <= span_to_millis(both.duration) < 3_600_000
    assert to_millis(both.start_time) <= to_millis(told.as_of)
    assert to_millis(told.start_time) > to_millis(told.as_of) + 3_000_000
    assert [each.node_count for each in bounded.suggestions] == [1]
    assert (promised.position, promised.total_count) == (0, 1)
    assert promised.HasField("start_time")
    assert caught.value.reason == "LEASE_NOT_WAITING"


async def test_the_queue_goes_by_the_order_that_the_pool_is_given(scheduler: Any) -> None:
    plane = scheduler.plane
    policy = ppb.Policy(name="policies/default", ordering="priority/lifo")
    await scheduler.call(spb.UpdatePolicyRequest(policy=policy))
    async with plane.agent():
        await plane.submit("runs", **WHOLE)
        await plane.until_state("runs", "active")
        await plane.submit("promised", **WHOLE)
        await plane.until_state("promised", "scheduled")
        for name, priority in (("early", 0), ("late", 0), ("urgent", 5)):
            await plane.submit(name, priority=priority, **WHOLE)
            await plane.until_state(name, "queued")
        shown = await scheduler.call(spb.GetQueueRequest(pool="default"))
        told = await scheduler.call(
            spb.ExplainWaitingRequest(pool="default", lease="leases/early"), caller="svc"
        )

    assert [entry.lease for entry in shown.entries] == [
        "leases/urgent",
        "leases/late",
        "leases/early",
    ]
    assert told.place_message == (
        "The queue goes by priority, then the newest first, then by arrival."
        " Before it: 1 of higher priority, 1 that came later."
    )


async def test_who_used_more_of_the_pool_goes_behind_under_fair_share(
    scheduler: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metering, "METER_MS", 100)
    plane = scheduler.plane
    policy = ppb.Policy(name="policies/default", ordering="fair-share:project")
    await scheduler.call(spb.UpdatePolicyRequest(policy=policy))
    async with plane.agent() as agent:
        await plane.submit("used", project="heavy", **WHOLE)
        await plane.until_state("used", "active")
        await asyncio.sleep(0.5)
        await plane.submit("promised", project="light", **WHOLE)
        await plane.until_state("promised", "scheduled")
        for name in ("heavy", "light"):
            await plane.submit(name, project=name, **WHOLE)
            await plane.until_state(name, "queued")
        shown = await scheduler.call(spb.GetQueueRequest(pool="default"))
        await agent.end("used")

    assert [entry.lease for entry in shown.entries] == ["leases/light", "leases/heavy"]
