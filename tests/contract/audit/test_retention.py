"""Retention of the audit trail: the oldest batches go, the rest verifies, tampering still shows."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest
from tests.contract.audit.trails import Trail, opened

from tenure_core.audit.chain import BreachKind, Noted
from tenure_core.audit.retention import TrailLimits
from tenure_runtime.audit import retention
from tenure_runtime.audit.reading import EntryFilter
from tenure_runtime.audit.retention import Retention
from tenure_runtime.clocks import SystemClock

pytestmark = pytest.mark.postgres

_DAY_MS = 86_400_000
_AMPLE = 2**40


@pytest.fixture
async def trail(database_dsn: str) -> AsyncIterator[Trail]:
    async with opened(database_dsn) as started:
        yield started


async def _sealed(trail: Trail, *names: str) -> None:
    """Write an entry each, each in a batch of its own."""
    for name in names:
        await trail.write(name)
        await trail.sealer.run_once()


async def _drop(trail: Trail, age_ms: int = -1_000, size: int = _AMPLE) -> int:
    """Drop what is over the limits; an age below zero makes all that is there too old."""
    return await Retention(trail.pool, TrailLimits(age_ms, size), SystemClock()).run_once()


async def _resources(trail: Trail) -> list[str]:
    return [each.change.resource for each in await trail.reader.entries(EntryFilter(), 100)]


async def test_what_is_left_verifies_and_goes_on(trail: Trail) -> None:
    await _sealed(trail, "a", "b", "c")
    await _drop(trail)
    assert await _resources(trail) == ["c"], "the last batch carries the chain on"
    await _sealed(trail, "d")
    breaches, end = await trail.verify()
    assert (breaches, end.sealed, end.unsealed, end.dropped) == ([], 2, 0, 2)


async def test_nothing_young_and_nothing_that_is_not_sealed_is_dropped(trail: Trail) -> None:
    await _sealed(trail, "a", "b")
    await trail.write("c")
    assert await _drop(trail, _DAY_MS) == 0
    await _drop(trail)
    assert await _resources(trail) == ["c", "b"]


async def test_the_oldest_go_when_the_trail_is_too_large(trail: Trail) -> None:
    await _sealed(trail, "a", "b", "c", "d")
    sizes = await trail.pool.fetch("SELECT bytes FROM audit_batches ORDER BY number DESC")
    await _drop(trail, _DAY_MS, sum(row["bytes"] for row in sizes[:2]))
    assert await _resources(trail) == ["d", "c"]
    assert (await trail.verify())[0] == []
    kept = await trail.pool.fetchval("SELECT bytes FROM audit_kept")
    assert kept == await trail.pool.fetchval("SELECT sum(bytes) FROM audit_batches")


async def test_many_steps_drop_all_that_is_due(
    trail: Trail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "ENTRIES_MAX", 2)
    monkeypatch.setattr(retention, "BATCHES_MAX", 3)
    await _sealed(trail, *"abcdefgh")
    assert await _drop(trail) >= 7
    assert await _resources(trail) == ["h"]
    assert (await trail.verify())[0] == []


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit_entries SET caller = 'bob' WHERE resource = 'b'",
        "DELETE FROM audit_entries WHERE resource = 'b'",
        "UPDATE audit_batches SET sealed_ms = 0 WHERE number = 2",
        "UPDATE audit_batches SET hash = previous WHERE number = 2",
    ],
)
async def test_what_was_tampered_with_is_kept_to_be_found(trail: Trail, statement: str) -> None:
    await _sealed(trail, "a", "b", "c", "d")
    await trail.tamper(statement)
    await _drop(trail)
    assert "a" not in await _resources(trail), "what came before it goes"
    breaches, _ = await trail.verify()
    assert {breach.batch for breach in breaches} <= {2, 3}
    assert breaches


async def test_an_end_cut_off_the_beginning_by_hand_shows(trail: Trail) -> None:
    await _sealed(trail, "a", "b", "c", "d")
    await _drop(trail)
    await _sealed(trail, "e", "f")
    await trail.tamper(
        "DELETE FROM audit_entries WHERE resource IN ('d', 'e')",
        "DELETE FROM audit_batches WHERE number < (SELECT max(number) FROM audit_batches)",
    )
    breaches, _ = await trail.verify()
    assert [breach.kind for breach in breaches] == [BreachKind.CHAIN_BROKEN]


async def test_a_verification_goes_on_although_its_place_was_dropped(trail: Trail) -> None:
    await _sealed(trail, *"abcdefghijklm")
    first = await trail.reader.verify(None)
    assert first.unsealed is None, "there is another stretch"
    await _drop(trail)
    second = await trail.reader.verify(first.place)
    assert (second.breaches, second.unsealed) == ((), 0)


async def test_the_head_of_what_was_dropped_is_compared_with_a_note(trail: Trail) -> None:
    await _sealed(trail, "a", "b", "c")
    await _drop(trail)
    head = await trail.pool.fetchrow("SELECT number, hash FROM audit_kept")
    assert head is not None
    good = await trail.reader.verify(None, Noted(head["number"], head["hash"]))
    other = await trail.reader.verify(None, Noted(head["number"], b"\0" * 32))
    older = await trail.reader.verify(None, Noted(head["number"] - 1, b"\0" * 32))
    assert (good.breaches, older.breaches) == ((), ())
    assert [breach.kind for breach in other.breaches] == [BreachKind.CHAIN_BROKEN]


async def test_the_database_goes_on_refusing_others(trail: Trail) -> None:
    await _sealed(trail, "a", "b")
    await _drop(trail)
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="append-only"):
        await trail.pool.execute("DELETE FROM audit_entries")
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="append-only"):
        await trail.pool.execute("TRUNCATE audit_entries")
