"""WaitLease: early when it happens, in time when it does not."""

from __future__ import annotations

import asyncio

import pytest
from tests.contract.admission.harness import (
    Admission,
    State,
    charged,
    record,
    transition,
)

from tenure.admission.v1 import admission_pb2 as calls
from tenure.admission.v1 import lease_pb2 as pb
from tenure_core.errors import Invalid, NotFound


def waiting(name: str, *states: State.ValueType, timeout_s: float = 20) -> calls.WaitLeaseRequest:
    request = calls.WaitLeaseRequest(name=name, states=states)
    request.timeout.FromMilliseconds(int(timeout_s * 1_000))
    return request


async def test_many_waits_end_by_one_change(admission: Admission) -> None:
    user, leader = await admission.caller(), await admission.caller("service")
    lease = await user.create()
    waits = [
        asyncio.create_task(user(waiting(lease.name, State.STATE_QUEUED), timeout_s=30))
        for _ in range(20)
    ]
    await asyncio.sleep(0.05)

    await record(leader, transition(lease, State.STATE_QUEUED))

    answers = await asyncio.gather(*waits)
    assert {State.STATE_QUEUED} == {answer.lease.state for answer in answers}
    assert {False} == {answer.timed_out for answer in answers}


async def test_a_lease_that_is_there_already_is_not_waited_for(admission: Admission) -> None:
    user = await admission.caller()
    lease = await user.create()

    answer = await user(waiting(lease.name, State.STATE_PENDING))

    assert (lease, False) == (answer.lease, answer.timed_out)


async def test_the_end_ends_every_wait(admission: Admission) -> None:
    user = await admission.caller()
    lease = await user.create()
    wait = asyncio.create_task(user(waiting(lease.name, State.STATE_ACTIVE), timeout_s=30))
    await asyncio.sleep(0.05)

    await user(calls.CancelLeaseRequest(name=lease.name))

    answer = await wait
    assert (answer.lease.state, answer.timed_out) == (State.STATE_CANCELLED, False)


async def test_when_the_time_is_over_the_lease_comes_as_it_is(admission: Admission) -> None:
    user = await admission.caller()
    lease = await user.create()

    answer = await user(waiting(lease.name, State.STATE_ACTIVE, timeout_s=0.05))

    assert (lease, True) == (answer.lease, answer.timed_out)


async def test_one_may_wait_until_a_change_is_decided(admission: Admission) -> None:
    user, leader = await admission.caller(), await admission.caller("service")
    lease = await user.create()
    await record(leader, charged(transition(lease, State.STATE_SCHEDULED, attempt=1), 60))
    update = calls.UpdateLeaseRequest(lease=pb.Lease(name=lease.name, node_count=2))
    change = (await user(update)).lease.pending_change
    request = waiting(lease.name)
    request.until_change_decided = True
    wait = asyncio.create_task(user(request, timeout_s=30))
    await asyncio.sleep(0.05)
    assert not wait.done()

    step = transition(lease, State.STATE_SCHEDULED, version=3, attempt=1)
    step.change_verdict.change_id = change.change_id
    step.change_verdict.verdict = pb.PendingChange.VERDICT_REFUSED
    await record(leader, step)

    answer = await wait
    assert answer.lease.pending_change.verdict == pb.PendingChange.VERDICT_REFUSED
    assert not answer.timed_out


async def test_only_ones_own_leases_are_waited_for(admission: Admission) -> None:
    user, operator = await admission.caller(), await admission.caller("operator")
    other = await operator.create()

    for name in (other.name, "leases/nothing"):
        with pytest.raises(NotFound) as caught:
            await user(waiting(name))
        assert caught.value.reason == "LEASE_NOT_FOUND"


async def test_every_violation_of_a_wait_is_told(admission: Admission) -> None:
    user = await admission.caller()
    request = calls.WaitLeaseRequest(name="x", states=[State.STATE_UNSPECIFIED, 77])
    request.timeout.FromSeconds(601)

    with pytest.raises(Invalid) as caught:
        await user(request)

    assert [each.field for each in caught.value.violations] == [
        "name",
        "states[0]",
        "states[1]",
        "timeout",
    ]
