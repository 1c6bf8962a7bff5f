"""Ended leases are forgotten by age and by number, others never."""

from __future__ import annotations

import pytest
from tests.contract.admission.harness import Admission, State, a_lease, record, transition

from tenure.admission.v1 import lease_pb2 as pb
from tenure_admission.store import forgetting
from tenure_admission.store.forgetting import EndedLeases

pytestmark = pytest.mark.postgres
_HOUR_MS = 3_600_000


async def _ended(stored: Admission, count: int) -> list[str]:
    """Return the names of so many leases that were rejected, the first ended first."""
    user, leader = await stored.caller(), await stored.caller("service")
    names = []
    for _ in range(count):
        lease = await user.create()
        await record(leader, transition(lease, State.STATE_REJECTED))
        names.append(lease.name)
    return names


async def _names(stored: Admission) -> list[str]:
    rows = await stored.store._pool.fetch("SELECT id FROM leases ORDER BY created_ms, id")
    return sorted(f"leases/{row['id']}" for row in rows)


async def _age(stored: Admission, *names: str) -> None:
    await stored.store._pool.execute(
        "UPDATE leases SET ended_ms = ended_ms - $2 WHERE id = ANY ($1)",
        [name.removeprefix("leases/") for name in names],
        2 * _HOUR_MS,
    )


async def test_leases_go_when_they_ended_long_ago_in_steps(
    stored: Admission, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forgetting, "STEP_MAX", 2)
    names = await _ended(stored, 6)
    waits = await (await stored.caller()).create()
    await _age(stored, *names[:5])

    assert await EndedLeases(stored.store._pool, _HOUR_MS, 1_000).run_once() == 5
    assert await _names(stored) == sorted([names[5], waits.name])


async def test_the_oldest_go_when_there_are_too_many(stored: Admission) -> None:
    names = await _ended(stored, 4)
    await _age(stored, names[1], names[2])

    assert await EndedLeases(stored.store._pool, 24 * _HOUR_MS, 2).run_once() == 2
    assert await _names(stored) == sorted([names[0], names[3]])


async def test_nothing_goes_within_the_limits(stored: Admission) -> None:
    names = await _ended(stored, 2)
    assert await EndedLeases(stored.store._pool, _HOUR_MS, 2).run_once() == 0
    assert await _names(stored) == sorted(names)


async def test_a_lease_stays_while_one_that_waits_depends_on_it(stored: Admission) -> None:
    needed, other = await _ended(stored, 2)
    dependent = await (await stored.caller()).create(
        a_lease(
            dependencies=[
                pb.Dependency(lease=needed, condition=pb.Dependency.CONDITION_ENDED),
            ]
        )
    )
    await _age(stored, needed, other)

    assert await EndedLeases(stored.store._pool, _HOUR_MS, 1_000).run_once() == 1
    assert await _names(stored) == sorted([needed, dependent.name])
