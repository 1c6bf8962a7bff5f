"""CancelLease and UpdateLease: what changes at once, what leaders decide, who loses a race."""

from __future__ import annotations

import asyncio

import pytest
from tests.contract.admission.harness import (
    Admission,
    Caller,
    State,
    a_lease,
    charged,
    record,
    request_id,
    transition,
)

from tenure.admission.v1 import admission_pb2 as calls
from tenure.admission.v1 import lease_pb2 as pb
from tenure_admission.pool_view import NodeView
from tenure_core.errors import Conflict, Invalid, NotFound, WrongState
from tenure_core.resources import ResourceVector

CANCEL, UPDATE = calls.CancelLeaseRequest, calls.UpdateLeaseRequest
Verdict = pb.PendingChange


async def hold(admission: Admission, lease: pb.Lease) -> pb.Lease:
    """Have the leader schedule the lease, and return it."""
    leader = await admission.caller("service")
    step = charged(transition(lease, State.STATE_SCHEDULED, version=lease.version, attempt=1), 60)
    [verdict] = await record(leader, step)
    assert not verdict.reason, verdict
    return verdict.lease


def updated(lease: pb.Lease, *paths: str, **fields: object) -> calls.UpdateLeaseRequest:
    """Return an update of the lease with these fields, and a mask if paths are given."""
    request = UPDATE(lease=pb.Lease(name=lease.name, **fields))
    request.update_mask.paths.extend(paths)
    return request


async def violations(user: Caller, request: calls.UpdateLeaseRequest) -> list[tuple[str, str]]:
    with pytest.raises(Invalid) as caught:
        await user(request)
    return [(each.field, each.reason) for each in caught.value.violations]


async def test_a_waiting_lease_is_cancelled_at_once(admission: Admission) -> None:
    user = await admission.caller()
    lease = await user.create()

    cancelled = (await user(CANCEL(name=lease.name, message="changed my mind"))).lease

    assert (
        cancelled.state,
        cancelled.reason,
        cancelled.message,
        cancelled.version,
    ) == (State.STATE_CANCELLED, "CANCELLED_BY_OWNER", "changed my mind", 2)
    assert cancelled.HasField("end_time")
    assert [entry.state for entry in cancelled.history] == [State.STATE_CANCELLED]
    assert cancelled == await user.get(lease)


async def test_a_holding_lease_is_cancelling_and_charged_until_its_leader_ends_it(
    admission: Admission,
) -> None:
    user, leader = await admission.caller(), await admission.caller("service")
    held = await hold(admission, await user.create())

    cancelling = (await user(CANCEL(name=held.name))).lease

    assert cancelling.state == State.STATE_CANCELLING
    assert held.charge_interval == cancelling.charge_interval
    assert cancelling == (await user(CANCEL(name=held.name, etag="old"))).lease
    end = transition(held, State.STATE_CANCELLED, version=3, attempt=1)
    [verdict] = await record(leader, end)
    assert verdict.lease.state == State.STATE_CANCELLED
    assert not verdict.lease.HasField("charge_interval")
    assert verdict.lease == (await user(CANCEL(name=held.name))).lease
    assert await admission.store.quotas.drifts() == []


async def test_others_leases_cannot_be_changed(admission: Admission) -> None:
    user, operator = await admission.caller(), await admission.caller("operator")
    other = await operator.create()

    for request in (CANCEL(name=other.name), updated(other, priority=1)):
        with pytest.raises(NotFound) as caught:
            await user(request)
        assert caught.value.reason == "LEASE_NOT_FOUND"
    mine = await user.create()
    assert (await operator(CANCEL(name=mine.name))).lease.state == State.STATE_CANCELLED


async def test_of_two_changes_with_one_etag_one_loses(admission: Admission) -> None:
    user = await admission.caller()
    lease = await user.create()
    requests = [updated(lease, etag=lease.etag, priority=n + 1) for n in range(8)]

    answers = await asyncio.gather(*map(user, requests), return_exceptions=True)

    lost = [answer for answer in answers if isinstance(answer, Conflict)]
    assert len(lost) == 7
    assert {"ETAG_MISMATCH"} == {error.reason for error in lost}
    [won] = [answer for answer in answers if not isinstance(answer, Conflict)]
    assert won.lease == await user.get(lease)
    with pytest.raises(Conflict):
        await user(CANCEL(name=lease.name, etag=lease.etag))
    assert (
        await user(CANCEL(name=lease.name, etag=won.lease.etag))
    ).lease.state == State.STATE_CANCELLED


async def test_a_waiting_lease_changes_at_once(admission: Admission) -> None:
    user = await admission.caller()
    lease = await user.create(a_lease(labels={"a": "1"}))
    request = updated(lease, node_count=3, priority=7, labels={"b": "2"})
    request.lease.duration.FromSeconds(90)
    request.lease.terms.immediate.SetInParent()

    changed = (await user(request)).lease

    assert (
        changed.node_count,
        changed.priority,
        dict(changed.labels),
        changed.duration.seconds,
        changed.remaining_duration.seconds,
        changed.terms.WhichOneof("kind"),
        changed.version,
    ) == (3, 7, {"b": "2"}, 90, 90, "immediate", 2)
    assert not changed.HasField("pending_change")
    assert changed == await user.get(lease)
    listed = await user(calls.ListLeasesRequest(labels={"b": "2"}))
    assert [changed] == list(listed.leases)
    assert list((await user(calls.ListLeasesRequest(labels={"a": "1"}))).leases) == []


async def test_only_the_fields_in_the_mask_change(admission: Admission) -> None:
    user = await admission.caller()
    lease = await user.create(a_lease(priority=5))

    changed = (await user(updated(lease, "node_count", node_count=2, priority=9))).lease
    cleared = (await user(updated(lease, "priority"))).lease

    assert (changed.node_count, changed.priority) == (2, 5)
    assert (cleared.node_count, cleared.priority) == (2, 0)


async def test_an_update_that_changes_nothing_writes_nothing(admission: Admission) -> None:
    user = await admission.caller()
    lease = await user.create(a_lease(priority=5))

    assert lease == (await user(updated(lease, priority=5))).lease


async def test_a_change_of_a_holding_lease_awaits_its_leader(admission: Admission) -> None:
    user, leader = await admission.caller(), await admission.caller("service")
    held = await hold(admission, await user.create())
    request = updated(held, node_count=2, priority=4, labels={"x": "y"})
    request.lease.duration.FromSeconds(120)

    pending = (await user(request)).lease

    # Labels concern nobody else.
    assert (
        pending.node_count,
        pending.priority,
        dict(pending.labels),
        pending.duration.seconds,
    ) == (1, 0, {"x": "y"}, 60)
    change = pending.pending_change
    assert (
        change.node_count,
        change.priority,
        change.duration.seconds,
        change.verdict,
    ) == (2, 4, 120, Verdict.VERDICT_UNSPECIFIED)
    with pytest.raises(WrongState) as caught:
        await user(updated(held, node_count=5))
    assert caught.value.reason == "CHANGE_PENDING"
    step = charged(transition(pending, pending.state, version=pending.version, attempt=1), 120)
    step.change_verdict.change_id = change.change_id
    step.change_verdict.verdict = Verdict.VERDICT_GRANTED
    [verdict] = await record(leader, step)
    granted = verdict.lease
    assert (
        granted.node_count,
        granted.priority,
        granted.duration.seconds,
        granted.remaining_duration.seconds,
        granted.pending_change.verdict,
    ) == (2, 4, 120, 120, Verdict.VERDICT_GRANTED)
    assert await admission.store.quotas.drifts() == []


async def test_a_refused_change_leaves_the_terms_and_carries_counter_offers(
    admission: Admission,
) -> None:
    user, leader = await admission.caller(), await admission.caller("service")
    held = await hold(admission, await user.create())
    pending = (await user(updated(held, node_count=2))).lease
    step = transition(pending, pending.state, version=pending.version, attempt=1)
    step.change_verdict.CopyFrom(
        Verdict(
            change_id=pending.pending_change.change_id,
            verdict=Verdict.VERDICT_REFUSED,
            reason="NO_CAPACITY",
            message="The pool is full.",
            counter_offers=[pb.CounterOffer(node_count=1, pool="big")],
        )
    )

    [verdict] = await record(leader, step)

    assert (
        verdict.lease.node_count,
        verdict.lease.pending_change.reason,
        verdict.lease.pending_change.node_count,
    ) == (1, "NO_CAPACITY", 2)
    assert [offer.pool for offer in verdict.lease.pending_change.counter_offers] == ["big"]
    # It has been decided: another may be asked for.
    assert (await user(updated(held, node_count=3))).lease.pending_change.node_count == 3


async def test_the_start_of_a_booked_advance_lease_moves_by_its_leader(
    admission: Admission,
) -> None:
    user, leader = await admission.caller(), await admission.caller("service")
    asked = a_lease(terms=pb.Terms(advance=pb.AdvanceTerms()))
    asked.terms.advance.start_time.FromSeconds(2_000_000_000)
    held = await hold(admission, await user.create(asked))
    request = updated(held)
    request.lease.terms.advance.start_time.FromSeconds(2_000_000_100)

    pending = (await user(request)).lease

    assert pending.pending_change.start_time.seconds == 2_000_000_100
    assert pending.terms.advance.start_time.seconds == 2_000_000_000
    step = transition(pending, pending.state, version=pending.version, attempt=1)
    step.change_verdict.change_id = pending.pending_change.change_id
    step.change_verdict.verdict = Verdict.VERDICT_GRANTED
    [verdict] = await record(leader, step)
    assert verdict.lease.terms.advance.start_time.seconds == 2_000_000_100
    request.lease.terms.best_effort.SetInParent()
    assert await violations(user, request) == [("lease.terms", "TERMS_NOT_MOVABLE")]


async def test_a_pending_change_is_refused_when_the_lease_ends(admission: Admission) -> None:
    user, leader = await admission.caller(), await admission.caller("service")
    held = await hold(admission, await user.create())
    pending = (await user(updated(held, node_count=2))).lease

    step = transition(held, State.STATE_FAILED, version=pending.version, attempt=1)
    [verdict] = await record(leader, step)

    change = verdict.lease.pending_change
    assert (change.verdict, change.reason) == (Verdict.VERDICT_REFUSED, "LEASE_ENDED")


async def test_an_ended_lease_does_not_change(admission: Admission) -> None:
    user = await admission.caller()
    lease = await user.create()
    await user(CANCEL(name=lease.name))

    with pytest.raises(WrongState) as caught:
        await user(updated(lease, priority=1))

    assert caught.value.reason == "LEASE_ENDED"


async def test_every_violation_of_an_update_is_told_at_once(admission: Admission) -> None:
    user = await admission.caller()
    lease = await user.create()
    request = updated(lease, "node_count", "duration", "terms", "owner", "labels")
    request.lease.labels["x" * 64] = ""
    request.request_id = "no"

    assert {
        ("request_id", "REQUEST_ID_INVALID"),
        ("lease.node_count", "OUT_OF_RANGE"),
        ("lease.duration", "REQUIRED"),
        ("lease.terms", "REQUIRED"),
        ("update_mask.paths[3]", "MASK_PATH_INVALID"),
        (f"lease.labels[{'x' * 64}]", "LENGTH_OUT_OF_RANGE"),
    } == set(await violations(user, request))
    assert await violations(user, updated(lease)) == [("update_mask", "REQUIRED")]


async def test_new_values_are_judged_together_with_those_that_stay(admission: Admission) -> None:
    user = await admission.caller()
    asked = a_lease(terms=pb.Terms(deadline=pb.DeadlineTerms()))
    asked.terms.deadline.deadline_time.FromMilliseconds(admission.clock.now_ms() + 100_000)
    lease = await user.create(asked)
    node = NodeView("n", {}, (ResourceVector({"cpu": 2_000}),))
    admission.pools.put("default", node)
    request = updated(lease, "duration", "node_count", node_count=3)
    request.lease.duration.FromSeconds(101)

    assert await violations(user, request) == [
        ("lease.terms.deadline", "DEADLINE_TOO_EARLY"),
        ("lease.node_count", "LEASE_NEVER_FITS"),
    ]
    assert lease == await user.get(lease)


async def test_a_repeated_change_does_nothing_more(admission: Admission) -> None:
    user = await admission.caller()
    lease = await user.create()
    update = updated(lease, priority=3)
    cancel = CANCEL(name=lease.name)
    update.request_id, cancel.request_id = request_id(), request_id()

    changed = await asyncio.gather(*(user(update) for _ in range(5)))
    cancelled = await asyncio.gather(*(user(cancel) for _ in range(5)))

    assert {2} == {answer.lease.version for answer in changed}
    assert {3} == {answer.lease.version for answer in cancelled}
    # The first answer comes back although the lease has ended since.
    assert changed[0] == await user(update)
    cancel.request_id = update.request_id
    with pytest.raises(Invalid) as caught:
        await user(cancel)
    assert caught.value.reason == "REQUEST_ID_REUSED"


async def test_a_validated_update_changes_nothing(admission: Admission) -> None:
    user = await admission.caller()
    lease = await user.create()
    request = updated(lease, priority=3)
    request.validate_only, request.request_id = True, request_id()

    assert (await user(request)).lease.priority == 3
    assert lease == await user.get(lease)
    request.validate_only = False
    assert (await user(request)).lease.priority == 3


async def test_every_violation_of_a_cancellation_is_told(admission: Admission) -> None:
    user = await admission.caller()

    with pytest.raises(Invalid) as caught:
        await user(CANCEL(name="x", request_id="y", message="m" * 1_001))

    assert [each.field for each in caught.value.violations] == ["name", "request_id", "message"]
    with pytest.raises(NotFound):
        await user(CANCEL(name="leases/nothing"))
