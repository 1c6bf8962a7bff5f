"""ConfirmLeases: what is held until it is confirmed, all of it or nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.contract.admission.harness import (
    Admission,
    State,
    a_lease,
    charged,
    record,
    request_id,
    transition,
)

from tenure.admission.v1 import admission_pb2 as calls
from tenure.admission.v1 import lease_pb2 as pb
from tenure_core.errors import Invalid, NotFound, WrongState
from tenure_runtime.rpc.wire import to_duration, to_millis, to_timestamp

CONFIRM = calls.ConfirmLeasesRequest
HOLD_MS = 60_000


def held_lease(admission: Admission, **fields: Any) -> pb.Lease:
    """Return a lease that starts in two minutes and is held for one."""
    at = to_timestamp(admission.clock.now_ms() + 2 * HOLD_MS)
    terms = pb.Terms(advance=pb.AdvanceTerms(start_time=at))
    return a_lease(**{"terms": terms, "hold_duration": to_duration(HOLD_MS), **fields})


async def booked(admission: Admission, lease: pb.Lease) -> pb.Lease:
    """Have the leader book the lease, and return it."""
    leader = await admission.caller("service")
    step = charged(transition(lease, State.STATE_SCHEDULED, version=lease.version, attempt=1), 60)
    [verdict] = await record(leader, step)
    assert not verdict.reason, verdict
    return verdict.lease


async def refusal(call: Any) -> str:
    with pytest.raises(WrongState) as caught:
        await call
    return caught.value.reason


async def test_a_hold_ends_when_it_is_confirmed(admission: Admission) -> None:
    user = await admission.caller()
    made = await user.create(held_lease(admission))
    until = to_millis(made.hold_expire_time)
    held = await booked(admission, made)

    [confirmed] = (await user(CONFIRM(names=[made.name]))).leases

    assert until == to_millis(made.create_time) + HOLD_MS == to_millis(held.hold_expire_time)
    assert not made.HasField("hold_duration")
    assert not confirmed.HasField("hold_expire_time")
    assert (confirmed.state, confirmed.version) == (State.STATE_SCHEDULED, 3)
    assert [entry.reason for entry in confirmed.history][-1] == "CONFIRMED"
    assert confirmed.charge_interval == held.charge_interval
    assert confirmed == await user.get(made)
    assert list((await user(CONFIRM(names=[made.name]))).leases) == [confirmed]
    plain = await user.create()
    assert list((await user(CONFIRM(names=[plain.name]))).leases) == [plain]


async def test_several_are_confirmed_together_or_not_at_all(admission: Admission) -> None:
    user = await admission.caller()
    first = await booked(admission, await user.create(held_lease(admission)))
    second = await booked(admission, await user.create(held_lease(admission)))
    waits = await user.create(held_lease(admission))
    names = [second.name, first.name]

    assert await refusal(user(CONFIRM(names=[*names, waits.name]))) == "LEASE_NOT_BOOKED"
    assert [await user.get(name) for name in names] == [second, first]
    with pytest.raises(NotFound):
        await user(CONFIRM(names=[*names, "leases/other"]))

    key = request_id()
    answer = await user(CONFIRM(names=names, request_id=key))
    assert [lease.name for lease in answer.leases] == names
    assert not any(lease.HasField("hold_expire_time") for lease in answer.leases)
    await user(calls.CancelLeaseRequest(name=first.name))
    assert await user(CONFIRM(names=names, request_id=key)) == answer
    with pytest.raises(Invalid):
        await user(CONFIRM(names=names[:1], request_id=key))


async def test_after_its_time_a_hold_is_not_confirmed(admission: Admission) -> None:
    user, leader = await admission.caller(), await admission.caller("service")
    held = await booked(admission, await user.create(held_lease(admission)))
    admission.clock.ahead_ms = HOLD_MS

    assert await refusal(user(CONFIRM(names=[held.name]))) == "HOLD_EXPIRED"
    assert await user.get(held) == held

    admission.clock.ahead_ms = 0
    over = transition(held, State.STATE_CANCELLING, version=2, attempt=1, reason="HOLD_EXPIRED")
    [verdict] = await record(leader, over)
    assert verdict.lease.charge_interval == held.charge_interval
    assert await refusal(user(CONFIRM(names=[held.name]))) == "HOLD_EXPIRED"


async def test_of_a_confirmation_and_a_leader_that_gives_up_one_wins(admission: Admission) -> None:
    user, leader = await admission.caller(), await admission.caller("service")
    for _ in range(8):
        held = await booked(admission, await user.create(held_lease(admission)))
        over = transition(held, State.STATE_CANCELLING, version=2, attempt=1, reason="HOLD_EXPIRED")
        answer, [verdict] = await asyncio.gather(
            user(CONFIRM(names=[held.name])), record(leader, over), return_exceptions=True
        )
        lost = isinstance(answer, WrongState)
        assert lost is (verdict.reason == "")
        now = await user.get(held)
        assert now.HasField("hold_expire_time") is lost
        assert now.state == (State.STATE_CANCELLING if lost else State.STATE_SCHEDULED)


async def test_what_is_cancelled_is_not_confirmed(admission: Admission) -> None:
    user = await admission.caller()
    held = await booked(admission, await user.create(held_lease(admission)))
    await user(calls.CancelLeaseRequest(name=held.name))

    assert await refusal(user(CONFIRM(names=[held.name]))) == "LEASE_ENDED"


async def test_a_hold_is_over_before_its_lease_could_start(admission: Admission) -> None:
    user = await admission.caller()
    soon = to_timestamp(admission.clock.now_ms() + HOLD_MS // 2)
    early = pb.Terms(advance=pb.AdvanceTerms(start_time=soon))
    anytime = pb.Terms(best_effort=pb.BestEffortTerms())
    long_ = to_duration(25 * 3_600_000)
    wrong = {
        "HOLD_TOO_LONG": {"terms": early},
        "HOLD_NOT_POSSIBLE": {"terms": anytime},
        "OUT_OF_RANGE": {"hold_duration": long_},
    }
    for reason, fields in wrong.items():
        with pytest.raises(Invalid) as caught:
            await user.create(held_lease(admission, **fields))
        assert reason in {each.reason for each in caught.value.violations}

    held = await booked(admission, await user.create(held_lease(admission)))
    move = calls.UpdateLeaseRequest(lease=pb.Lease(name=held.name, terms=early))
    with pytest.raises(Invalid) as caught:
        await user(move)
    assert [each.reason for each in caught.value.violations] == ["HOLD_TOO_LONG"]


async def test_a_confirmation_is_validated_as_a_whole(admission: Admission) -> None:
    user = await admission.caller()
    with pytest.raises(Invalid) as caught:
        await user(CONFIRM(names=["leases/a", "leases/a", "b"], request_id="x"))
    assert [(each.field, each.reason) for each in caught.value.violations] == [
        ("request_id", "REQUEST_ID_INVALID"),
        ("names[2]", "NAME_INVALID"),
        ("names", "NAMED_TWICE"),
    ]


async def test_a_held_lease_says_what_becomes_of_it(admission: Admission) -> None:
    user = await admission.caller()
    held = await booked(admission, await user.create(held_lease(admission)))
    said = await user(calls.ExplainLeaseRequest(name=held.name))
    assert "unless it is confirmed" in said.sentences[0]
