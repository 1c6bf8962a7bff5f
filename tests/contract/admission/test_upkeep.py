"""The service's own loops, one run at a time."""

from __future__ import annotations

import pytest
from tests.contract.admission.harness import (
    Admission,
    State,
    charged,
    record,
    request_id,
    transition,
)

from tenure_admission.store.ledger import Drift
from tenure_admission.upkeep import Upkeep
from tenure_runtime.rpc.status import RemoteFailure


async def test_an_audit_finds_usage_that_was_written_by_hand(stored: Admission) -> None:
    """The ledger cannot drift by itself; an audit says when someone made it."""
    user, leader = await stored.caller(), await stored.caller("service")
    await record(
        leader, charged(transition(await user.create(), State.STATE_SCHEDULED, attempt=1), 60)
    )
    upkeep = Upkeep(stored.store, stored.store.quotas, stored.clock, 0, 0)
    assert list(await upkeep.audit_ledger()) == []

    async with stored.store._pool.acquire() as connection:
        await connection.execute(
            "UPDATE usage SET amount = 7 WHERE dimension = 'owner' AND resource = 'cpu'"
        )

    assert list(await upkeep.audit_ledger()) == [Drift(("owner", "user", "cpu"), 1_000, 7)]


async def test_usage_never_falls_below_zero(stored: Admission) -> None:
    """Whatever a mistake would take away, the table refuses, and the lease keeps its state."""
    user, leader = await stored.caller(), await stored.caller("service")
    lease = await user.create()
    await record(leader, charged(transition(lease, State.STATE_SCHEDULED, attempt=1), 60))
    async with stored.store._pool.acquire() as connection:
        await connection.execute("UPDATE usage SET amount = 0")

    with pytest.raises(RemoteFailure):
        await record(leader, transition(lease, State.STATE_QUEUED, version=2, attempt=1))
    assert (await user.get(lease)).state == State.STATE_SCHEDULED


async def test_old_request_ids_are_forgotten_and_young_ones_kept(stored: Admission) -> None:
    user = await stored.caller()
    same = request_id()
    await user.create(request_id=same)

    quotas, clock = stored.store.quotas, stored.clock
    assert await Upkeep(stored.store, quotas, clock, 0, 86_400_000).forget_requests() == 0
    assert await Upkeep(stored.store, quotas, clock, 0, 0).forget_requests() == 1
    assert (await user.create(request_id=same)).version == 1
