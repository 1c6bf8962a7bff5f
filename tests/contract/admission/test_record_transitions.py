"""RecordTransitions and FenceEpoch: versions, epochs, the table, the charge ledger, repeats."""

from __future__ import annotations

import asyncio
import random

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from tests.contract.admission.harness import (
    Admission,
    State,
    a_lease,
    charged,
    limited,
    record,
    transition,
)

from tenure.admission.v1 import admission_pb2 as calls
from tenure.admission.v1 import lease_pb2 as pb
from tenure.admission.v1 import quota_pb2 as qpb
from tenure_admission.records import HELD_LEASES, Limit
from tenure_core.errors import Forbidden, Invalid, Stale
from tenure_core.leases.states import HOLDING, TRANSITIONS, LeaseState

RECORD, FENCE = calls.RecordTransitionsRequest, calls.FenceEpochRequest


def scheduled(
    lease: pb.Lease, seconds: int = 60, *, start_s: int = 2_000_000_000, **fields: object
) -> calls.TransitionRequest:
    """Return the transition that books and charges a new lease."""
    step = transition(lease, State.STATE_SCHEDULED, attempt=1, **fields)
    return charged(step, seconds, start_s=start_s)


async def test_all_that_a_leader_says_is_stored(admission: Admission) -> None:
    user, leader = await admission.caller(), await admission.caller("service")
    lease = await user.create()
    step = scheduled(lease, reason="BOOKED", message="On n1.", preempted=True, failed=True)
    step.placements.add(rank=0, node="nodes/n1").interval.CopyFrom(step.charge_interval)
    step.predicted_start_time.FromSeconds(2_000_000_000)
    step.remaining_duration.FromSeconds(42)

    [verdict] = await record(leader, step)

    stored = await user.get(lease)
    assert verdict == calls.TransitionVerdict(transition_id=step.transition_id, lease=stored)
    assert (
        stored.state,
        stored.reason,
        stored.message,
        stored.version,
        stored.attempt,
        stored.preemption_count,
        stored.failure_count,
    ) == (State.STATE_SCHEDULED, "BOOKED", "On n1.", 2, 1, 1, 1)
    assert step.charge_interval == stored.charge_interval
    assert list(step.placements) == list(stored.placements)
    assert step.predicted_start_time == stored.predicted_start_time
    assert step.remaining_duration == stored.remaining_duration
    assert stored.etag != lease.etag
    [entry] = stored.history
    assert (step.transition_id, State.STATE_SCHEDULED, "BOOKED", "On n1.", 1) == (
        entry.transition_id,
        entry.state,
        entry.reason,
        entry.message,
        entry.attempt,
    )


async def test_a_later_transition_keeps_what_it_does_not_say(admission: Admission) -> None:
    user, leader = await admission.caller(), await admission.caller("service")
    lease = await user.create()
    first = scheduled(lease)
    first.placements.add(node="nodes/n1").interval.CopyFrom(first.charge_interval)
    await record(leader, first)
    active = transition(lease, State.STATE_STARTING, version=2, attempt=1)
    active.start_time.FromSeconds(2_000_000_001)

    await record(leader, active)

    stored = await user.get(lease)
    assert first.charge_interval == stored.charge_interval
    assert list(first.placements) == list(stored.placements)
    assert active.start_time == stored.start_time


async def test_a_new_attempt_starts_afresh(admission: Admission) -> None:
    user, leader = await admission.caller(), await admission.caller("service")
    lease = await user.create()
    first = scheduled(lease)
    first.placements.add(node="nodes/n1").interval.CopyFrom(first.charge_interval)
    failed = transition(lease, State.STATE_QUEUED, version=4, attempt=1, exit_code=3)
    starting = transition(lease, State.STATE_STARTING, version=2, attempt=1)
    active = transition(lease, State.STATE_ACTIVE, version=3, attempt=1)
    active.start_time.FromSeconds(2_000_000_001)
    again = charged(transition(lease, State.STATE_SCHEDULED, version=5, attempt=2), 60)

    verdicts = await record(leader, first, starting, active, failed, again)

    assert [verdict.reason for verdict in verdicts] == [""] * 5
    stored = await user.get(lease)
    assert (
        stored.attempt,
        stored.HasField("start_time"),
        stored.HasField("exit_code"),
        len(stored.placements),
    ) == (2, False, False, 0)


async def test_a_repeat_has_no_further_effect(admission: Admission) -> None:
    user, leader = await admission.caller(), await admission.caller("service")
    lease = await user.create()
    steps = [scheduled(lease), transition(lease, State.STATE_STARTING, version=2, attempt=1)]
    first = await record(leader, *steps)

    again = await record(leader, *steps, steps[0])

    # The answer of a repeat shows the lease as it is now.
    assert [first[1].lease] * 3 == [verdict.lease for verdict in again]
    assert [verdict.reason for verdict in again] == ["", "", ""]
    assert first[1].lease == await user.get(lease)
    assert await admission.store.quotas.drifts() == []


async def test_each_transition_has_a_verdict_of_its_own(admission: Admission) -> None:
    user, leader = await admission.caller(), await admission.caller("service")
    good, old = await user.create(), await user.create()
    elsewhere = await user.create(a_lease(pool="big"))
    nothing = pb.Lease(name="leases/nothing")

    verdicts = await record(
        leader,
        transition(old, State.STATE_QUEUED, version=9),
        transition(nothing, State.STATE_QUEUED),
        transition(elsewhere, State.STATE_QUEUED),
        transition(old, State.STATE_ACTIVE),
        transition(good, State.STATE_QUEUED),
    )

    assert [verdict.reason for verdict in verdicts] == [
        "VERSION_MISMATCH",
        "LEASE_NOT_FOUND",
        "LEASE_NOT_FOUND",
        "TRANSITION_NOT_ALLOWED",
        "",
    ]
    assert old == verdicts[0].lease
    assert verdicts[3].lease.state == State.STATE_PENDING
    assert not verdicts[1].HasField("lease")
    assert (await user.get(good)).state == State.STATE_QUEUED


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"attempt": 0}, "attempt 1, not 0"),
        ({"attempt": 2}, "attempt 1, not 2"),
        ({"attempt": 1}, "charge_interval"),
    ],
)
async def test_a_placement_is_a_new_attempt_and_is_charged(
    admission: Admission, fields: dict[str, int], text: str
) -> None:
    user, leader = await admission.caller(), await admission.caller("service")
    lease = await user.create()

    [verdict] = await record(leader, transition(lease, State.STATE_SCHEDULED, **fields))

    assert verdict.reason == "TRANSITION_NOT_ALLOWED"
    assert text in verdict.message
    assert lease == await user.get(lease)


async def test_the_history_keeps_the_newest_hundred(admission: Admission) -> None:
    user, leader = await admission.caller(), await admission.caller("service")
    lease = await user.create()
    steps = [transition(lease, State.STATE_QUEUED, version=n + 1) for n in range(130)]

    await record(leader, *steps)

    stored = await user.get(lease)
    assert stored.version == 131
    assert [step.transition_id for step in steps[30:]] == [
        entry.transition_id for entry in stored.history
    ]


async def test_a_followed_leader_changes_nothing(admission: Admission) -> None:
    user, leader = await admission.caller(), await admission.caller("service")
    lease = await user.create()
    assert (await leader(FENCE(scope="pool/default", epoch=3))).epoch == 3

    request = RECORD(scope="pool/default", epoch=2, transitions=[scheduled(lease)])
    request.predictions.add(lease=lease.name, queue_position=1)
    with pytest.raises(Stale) as caught:
        await leader(request)

    assert (caught.value.reason, caught.value.metadata["stored_epoch"]) == ("STALE_EPOCH", "3")
    assert lease == await user.get(lease)
    assert (await user(calls.ExplainLeaseRequest(name=lease.name))).queue_position == 0
    with pytest.raises(Stale):
        await leader(FENCE(scope="pool/default", epoch=2))
    assert (await leader(FENCE(scope="pool/default", epoch=3))).epoch == 3
    # Other pools have other epochs; a greater one than any seen is accepted and remembered.
    await leader(FENCE(scope="pool/other", epoch=1))
    await record(leader, scheduled(lease), epoch=5)
    with pytest.raises(Stale):
        await record(leader, epoch=4)


async def test_a_fence_holds_against_records_under_way(admission: Admission) -> None:
    """An old leader records without pause; once a fence is answered, nothing of it takes effect."""
    user, leader = await admission.caller(), await admission.caller("service")
    leases = [await user.create() for _ in range(8)]

    async def old(lease: pb.Lease) -> int:
        """Record until refused; return the version that the last accepted record made."""
        version = 1
        for _ in range(2_000):
            try:
                step = transition(lease, State.STATE_QUEUED, version=version)
                [verdict] = await record(leader, step, epoch=1)
            except Stale:
                return version
            version = verdict.lease.version
        raise AssertionError("the old leader was never refused")

    async def fence() -> list[int]:
        await asyncio.sleep(0.1)
        await leader(FENCE(scope="pool/default", epoch=2))
        return [(await user.get(lease)).version for lease in leases]

    *last_accepted, after_fence = await asyncio.gather(*map(old, leases), fence())

    assert min(last_accepted) > 1
    assert after_fence == last_accepted
    assert after_fence == [(await user.get(lease)).version for lease in leases]


async def test_two_leaders_at_once_change_a_lease_once(admission: Admission) -> None:
    user, leader = await admission.caller(), await admission.caller("service")
    lease = await user.create()
    rivals = []
    for number in range(10):
        rivals.append(scheduled(lease))
        rivals[-1].transition_id = f"rival-{number}"

    answers = await asyncio.gather(*(record(leader, step) for step in rivals))

    assert ["", *["VERSION_MISMATCH"] * 9] == sorted(verdict.reason for [verdict] in answers)
    assert (await user.get(lease)).version == 2
    assert await admission.store.quotas.drifts() == []


async def test_a_limit_is_on_what_is_charged_at_any_one_instant(admission: Admission) -> None:
    user, leader = await admission.caller(), await admission.caller("service")
    await limited(admission, Limit("owner", "user", "cpu", 3_000))
    first, second, third = [await user.create(a_lease(node_count=2)) for _ in range(3)]
    assert [verdict.reason for verdict in await record(leader, scheduled(first, 100))] == [""]

    overlapping = scheduled(second, start_s=2_000_000_050)
    [refused] = await record(leader, overlapping)
    touching = scheduled(second, start_s=2_000_000_100)
    [booked] = await record(leader, touching)

    assert refused.reason == "QUOTA_EXCEEDED"
    assert refused.quota_excess == qpb.QuotaExcess(
        quota="quotas/q0",
        resource="cpu",
        limit=3_000,
        used=2_000,
        asked=2_000,
        time=Timestamp(seconds=2_000_000_050),
    )
    assert refused.message == (
        "Quota q0 allows owner user cpu=3 at a time; 2 is charged at 2033-05-18 03:34:10 UTC and "
        "this lease asks for 2."
    )
    assert refused.lease.state == State.STATE_PENDING
    assert booked.reason == ""
    # Within one call, what was charged before counts; what was returned before is free again.
    give_back = transition(first, State.STATE_QUEUED, version=2, attempt=1)
    [returned, taken, over] = await record(
        leader, give_back, scheduled(third, 100), scheduled(first, 100, version=3)
    )
    assert [returned.reason, taken.reason, over.reason] == ["", "", "TRANSITION_NOT_ALLOWED"]
    assert await admission.store.quotas.drifts() == []


async def test_limits_hold_across_pools_whose_leaders_charge_at_once(
    admission: Admission,
) -> None:
    user, leader = await admission.caller(), await admission.caller("service")
    await limited(admission, Limit("project", "default", HELD_LEASES, 4))
    pools = [f"pool-{number}" for number in range(10)]
    leases = [await user.create(a_lease(pool=pool)) for pool in pools]

    answers = await asyncio.gather(
        *(
            record(leader, scheduled(lease), pool=pool)
            for lease, pool in zip(leases, pools, strict=True)
        )
    )

    reasons = sorted(verdict.reason for [verdict] in answers)
    assert reasons == [""] * 4 + ["QUOTA_EXCEEDED"] * 6
    assert await admission.store.quotas.drifts() == []


async def test_lowering_a_limit_breaks_nothing_that_holds(admission: Admission) -> None:
    user, leader = await admission.caller(), await admission.caller("service")
    lease = await user.create()
    await record(leader, scheduled(lease, 100))
    await limited(admission, Limit("owner", "user", "cpu", 0))

    shorter = charged(transition(lease, State.STATE_SCHEDULED, version=2, attempt=1), 50)
    longer = charged(transition(lease, State.STATE_SCHEDULED, version=3, attempt=1), 200)
    starting = transition(lease, State.STATE_STARTING, version=3, attempt=1)
    verdicts = await record(leader, shorter, longer, starting)

    assert [verdict.reason for verdict in verdicts] == ["", "QUOTA_EXCEEDED", ""]


async def test_predictions_show_without_version_history_or_change(admission: Admission) -> None:
    user, leader = await admission.caller(), await admission.caller("service")
    lease, other = await user.create(), await user.create(a_lease(pool="big"))
    booked = await user.create()
    await record(leader, scheduled(booked))
    token = (await user(calls.ListLeasesRequest())).resume_token
    request = RECORD(scope="pool/default", epoch=1)
    for each in (lease, other, booked, pb.Lease(name="leases/nothing")):
        prediction = request.predictions.add(
            lease=each.name, queue_position=4, reason="WAITING_FOR_CAPACITY", message="Full."
        )
        prediction.predicted_start_time.FromSeconds(2_000_000_500)

    await leader(request)

    seen = await user.get(lease)
    assert (1, 0, lease.etag) == (seen.version, len(seen.history), seen.etag)
    assert (
        seen.reason,
        seen.message,
        seen.predicted_start_time.seconds,
    ) == ("WAITING_FOR_CAPACITY", "Full.", 2_000_000_500)
    assert other == await user.get(other)
    assert (await user.get(booked)).version == 2
    explained = await user(calls.ExplainLeaseRequest(name=lease.name))
    assert (4, seen) == (explained.queue_position, explained.lease)
    # The next change after the list is the booking, not the prediction; then it is out of date.
    await record(leader, scheduled(lease))
    async with user.client.stream(
        user.stub.WatchLeases, calls.WatchLeasesRequest(resume_token=token)
    ) as stream:
        event = await stream.read()
    assert event is not None
    assert (lease.name, State.STATE_SCHEDULED) == (event.lease.name, event.lease.state)
    assert not event.lease.HasField("predicted_start_time")
    assert (await user.get(lease)).reason == ""


async def test_a_newer_prediction_replaces_the_older(admission: Admission) -> None:
    user, leader = await admission.caller(), await admission.caller("service")
    lease = await user.create()

    for position in (5, 5, 2):
        request = RECORD(scope="pool/default", epoch=1)
        request.predictions.add(lease=lease.name, queue_position=position)
        await leader(request)

    assert (await user(calls.ExplainLeaseRequest(name=lease.name))).queue_position == 2


async def test_five_hundred_transitions_are_recorded_at_once(admission: Admission) -> None:
    user, leader = await admission.caller(), await admission.caller("service")
    items = [calls.CreateLeaseRequest(lease=a_lease()) for _ in range(500)]
    created = await user(calls.BatchCreateLeasesRequest(requests=items))
    leases = [result.lease for result in created.results]

    verdicts = await record(leader, *(scheduled(lease) for lease in leases))

    assert {""} == {verdict.reason for verdict in verdicts}
    assert [verdict.lease.version for verdict in verdicts] == [2] * 500
    assert await admission.store.quotas.drifts() == []


async def test_an_answer_that_no_message_could_carry_leaves_leases_out(
    admission: Admission,
) -> None:
    user, leader = await admission.caller(), await admission.caller("service")
    large = a_lease()
    large.work.environment.update({f"V{number}": "x" * 30_000 for number in range(33)})
    leases = [await user.create(large) for _ in range(5)]

    verdicts = await record(leader, *(transition(lease, State.STATE_QUEUED) for lease in leases))

    assert [verdict.reason for verdict in verdicts] == [""] * 5
    assert [verdict.HasField("lease") for verdict in verdicts] == [True] * 3 + [False] * 2
    assert {(await user.get(lease)).state for lease in leases} == {State.STATE_QUEUED}


async def test_random_transitions_keep_to_the_table_and_the_ledger_to_the_leases(
    admission: Admission,
) -> None:
    """Whatever leaders ask for and owners cancel: usage is the sum over the charged leases."""
    rng = random.Random(7)
    user, leader = await admission.caller(), await admission.caller("service")
    leases = [
        await user.create(a_lease(node_count=rng.randint(1, 4), project=rng.choice("pq")))
        for _ in range(12)
    ]
    now = {lease.name: lease for lease in leases}
    for turn in range(60):
        if turn % 7 == 6:
            name = rng.choice(leases).name
            now[name] = (await user(calls.CancelLeaseRequest(name=name))).lease
        steps = []
        for lease in rng.sample(leases, 4):
            known = now[lease.name]
            after = rng.choice(list(LeaseState))
            step = transition(known, State.Value(f"STATE_{after.value}"), version=known.version)
            step.transition_id = f"{turn}.{lease.name}"
            waits = known.state in (State.STATE_PENDING, State.STATE_QUEUED)
            step.attempt = known.attempt + (1 if waits and after in HOLDING else 0)
            if after in HOLDING:
                charged(step, rng.randint(1, 100))
            steps.append(step)
        for step, verdict in zip(steps, await record(leader, *steps), strict=True):
            before = LeaseState(State.Name(now[step.lease].state).removeprefix("STATE_"))
            after = LeaseState(State.Name(step.state).removeprefix("STATE_"))
            allowed = after in TRANSITIONS[before] or (before is after and TRANSITIONS[before])
            assert ("" if allowed else "TRANSITION_NOT_ALLOWED") == verdict.reason
            now[step.lease] = verdict.lease
        assert await admission.store.quotas.drifts() == []
    assert now == {lease.name: await user.get(lease) for lease in leases}


async def test_only_services_record_and_fence(admission: Admission) -> None:
    for role in ("user", "operator", "agent"):
        caller = await admission.caller(role)
        for request in (RECORD(scope="pool/default", epoch=1), FENCE(scope="pool/x", epoch=1)):
            with pytest.raises(Forbidden):
                await caller(request)


async def test_every_violation_of_a_record_is_told(admission: Admission) -> None:
    leader = await admission.caller("service")
    step = calls.TransitionRequest(lease="x", reason="R" * 64)
    step.placements.add(node="n").interval.start_time.FromSeconds(1)
    step.placements[0].interval.end_time.FromSeconds(1)
    step.remaining_duration.FromSeconds(-1)
    step.charge_interval.end_time.FromSeconds(0)

    with pytest.raises(Invalid) as caught:
        await leader(
            RECORD(scope="x", epoch=0, transitions=[step], predictions=[calls.Prediction()])
        )

    prefix = "transitions[0]"
    assert {
        "scope",
        "epoch",
        f"{prefix}.lease",
        f"{prefix}.transition_id",
        f"{prefix}.state",
        f"{prefix}.reason",
        f"{prefix}.charge_interval",
        f"{prefix}.remaining_duration",
        f"{prefix}.placements[0].node",
        f"{prefix}.placements[0].interval",
        "predictions[0].lease",
    } == {each.field for each in caught.value.violations}
