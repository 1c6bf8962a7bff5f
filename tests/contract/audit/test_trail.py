"""The audit trail in PostgreSQL: nothing that commits late is lost, and what is tampered shows."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import asyncpg
import pytest
from tests.contract.audit.trails import ANN, Trail, opened

from tenure_core.audit.chain import BreachKind, Noted
from tenure_core.audit.entry import AuditedChange, Origin
from tenure_core.timebase import Interval
from tenure_runtime.audit import reading
from tenure_runtime.audit.reading import EntryFilter
from tenure_runtime.audit.trail import Sealer, write
from tenure_runtime.postgres.transaction import Transaction

pytestmark = pytest.mark.postgres


@pytest.fixture
async def trail(database_dsn: str) -> AsyncIterator[Trail]:
    async with opened(database_dsn) as started:
        yield started


async def test_an_entry_says_who_did_what_when_and_from_where(trail: Trail) -> None:
    await trail.write("leases/a")
    [entry] = await trail.reader.entries(EntryFilter(), 10)
    assert entry.origin == ANN
    assert entry.change == AuditedChange("leases/a", None, b"{}")
    now = await trail.pool.fetchval("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")
    assert now - 60_000 < entry.at <= now


async def test_digests_in_the_database_are_those_of_the_core(trail: Trail) -> None:
    """Sealing is done in SQL, verification is not: both must mean the same bytes."""
    await trail.write("leases/a", "leases/ü", by=Origin("ann", "CreateLease", "", ""))
    await trail.sealer.run_once()
    assert (await trail.verify())[0] == []


async def test_the_database_refuses_to_change_or_remove_what_was_written(trail: Trail) -> None:
    await trail.write("leases/a")
    await trail.sealer.run_once()
    for table in ("audit_entries", "audit_batches"):
        column = "caller" if table == "audit_entries" else "home"
        for statement in (
            f"UPDATE {table} SET {column} = 'bob'",
            f"DELETE FROM {table}",
            f"TRUNCATE {table}",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError, match="append-only"):
                await trail.pool.execute(statement)


async def test_a_transaction_that_commits_late_is_sealed_after_those_it_began_before(
    trail: Trail,
) -> None:
    async with trail.pool.acquire() as connection:
        late = connection.transaction()
        await late.start()
        await write(Transaction(connection), [AuditedChange("leases/late", None, b"{}")])
        await trail.write("leases/early")
        assert await trail.sealer.run_once() == 0, "what began before has not ended"
        await late.commit()
    assert await trail.sealer.run_once() == 2
    breaches, end = await trail.verify()
    assert (breaches, end.unsealed) == ([], 0)


async def test_writers_do_not_wait_for_the_sealer_nor_it_for_them(trail: Trail) -> None:
    async with trail.pool.acquire() as connection, connection.transaction():
        await connection.execute("LOCK TABLE audit_batches IN SHARE MODE")
        sealing = asyncio.create_task(trail.sealer.run_once())
        await asyncio.wait_for(trail.write("leases/a"), 5)
    await sealing


async def test_everything_is_sealed_once_whatever_the_order_of_commits(trail: Trail) -> None:
    """Forty writers at random, two sealers at once."""
    chance = random.Random(7)
    written = 0

    async def writer(number: int) -> None:
        nonlocal written
        for turn in range(5):
            async with trail.pool.acquire() as connection, connection.transaction():
                tx = Transaction(connection)
                await write(tx, [AuditedChange(f"leases/{number}-{turn}", None, None)])
                await asyncio.sleep(chance.uniform(0, 0.02))
            written += 1

    async def sealer(done: asyncio.Event) -> None:
        own = Sealer(trail.pool)
        while not done.is_set():
            await own.run_once()
            await asyncio.sleep(0.005)

    done = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for _ in range(2):
            group.create_task(sealer(done))
        async with asyncio.TaskGroup() as writers:
            for number in range(40):
                writers.create_task(writer(number))
        done.set()
    await trail.sealer.run_once()
    breaches, end = await trail.verify()
    listed = await trail.pool.fetch("SELECT unnest(sequences) AS s FROM audit_batches")
    assert (breaches, end.unsealed, written) == ([], 0, 200)
    assert len(listed) == len({row["s"] for row in listed}) == 200


async def test_a_restored_database_goes_on_with_its_chain(trail: Trail) -> None:
    """Elsewhere ids of transactions begin anew, far below those that were sealed."""
    await trail.write("leases/a")
    await trail.sealer.run_once()
    await trail.tamper(
        "INSERT INTO audit_entries (tx, caller, method, resource, peer, request_id)"
        " VALUES (900000000, 'ann', 'CancelLease', 'leases/unsealed', '', '')",
        "UPDATE audit_batches SET home = 'another/00000001/16384'",
    )
    await trail.write("leases/b")
    assert await trail.sealer.run_once() == 2
    await trail.write("leases/c")
    assert await trail.sealer.run_once() == 1
    breaches, end = await trail.verify()
    assert (breaches, end.unsealed) == ([], 0)


async def test_each_entry_that_was_tampered_with_is_named(trail: Trail) -> None:
    for batch in range(3):
        await trail.write(*(f"leases/{batch}-{item}" for item in range(4)))
        await trail.sealer.run_once()
    await trail.tamper(
        "UPDATE audit_entries SET caller = 'bob' WHERE sequence = 3",
        "UPDATE audit_entries SET at_ms = at_ms + 1 WHERE sequence = 5",
        "UPDATE audit_entries SET before = '' WHERE sequence = 6",
        "DELETE FROM audit_entries WHERE sequence = 8",
        "INSERT INTO audit_entries (tx, caller, method, resource, peer, request_id)"
        " SELECT tx, 'bob', method, resource, peer, request_id FROM audit_entries"
        " WHERE sequence = 5",
    )
    await trail.write("leases/new")
    breaches, end = await trail.verify()
    assert [(b.kind, b.batch, b.sequence) for b in breaches] == [
        (BreachKind.ALTERED, 1, 3),
        (BreachKind.ALTERED, 2, 5),
        (BreachKind.ALTERED, 2, 6),
        (BreachKind.REMOVED, 2, 8),
        (BreachKind.INSERTED, 0, 13),
    ]
    assert end.unsealed == 1


async def test_each_batch_that_was_tampered_with_is_named(trail: Trail) -> None:
    for number in range(7):
        await trail.write(f"leases/{number}")
        await trail.sealer.run_once()
    await trail.tamper(
        "UPDATE audit_batches SET sealed_ms = 0 WHERE number = 1",
        "UPDATE audit_batches SET digests = digests || digests WHERE number = 3",
        "DELETE FROM audit_batches WHERE number = 5",
        "UPDATE audit_batches SET previous = hash WHERE number = 7",
    )
    breaches, _ = await trail.verify()
    assert {(b.kind, b.batch) for b in breaches if b.batch} == {
        (BreachKind.CHAIN_BROKEN, number) for number in (1, 2, 3, 4, 6, 7)
    }
    assert breaches[0].message == "the hash of batch 1 is not that of what it lists"
    # What batch 5 listed is listed no more.
    assert [(b.kind, b.sequence) for b in breaches if not b.batch] == [(BreachKind.INSERTED, 5)]


async def test_a_whole_batch_forged_with_its_hash_breaks_the_one_after(trail: Trail) -> None:
    for number in range(3):
        await trail.write(f"leases/{number}")
        await trail.sealer.run_once()
    await trail.tamper(
        "UPDATE audit_batches SET sealed_ms = 0, hash = sha256(previous || int8send(number)"
        " || int8send(0) || int8send(floor) || int8send(last_tx) || int8send(last_sequence)"
        " || int8send(sequences[1]) || digests) WHERE number = 2"
    )
    breaches, _ = await trail.verify()
    assert [(b.kind, b.batch) for b in breaches] == [(BreachKind.CHAIN_BROKEN, 3)]


async def test_a_chain_cut_short_as_a_whole_ends_with_another_hash(trail: Trail) -> None:
    """No chain can show this by itself; whoever noted the hash sees it."""
    await trail.write("leases/a")
    await trail.sealer.run_once()
    await trail.write("leases/b")
    await trail.sealer.run_once()
    _, noted = await trail.verify()
    await trail.tamper(
        "DELETE FROM audit_entries WHERE sequence = 2", "DELETE FROM audit_batches WHERE number = 2"
    )
    breaches, end = await trail.verify()
    assert breaches == []
    assert end.place is not None and noted.place is not None
    assert (end.place.number, noted.place.number) == (1, 2)
    assert end.place.hash != noted.place.hash
    kept = Noted(noted.place.number, noted.place.hash)
    [breach] = (await trail.reader.verify(None, kept)).breaches
    assert breach.message == "the chain ends with batch 1, before batch 2 that was noted"
    await trail.write("leases/forged")
    await trail.sealer.run_once()
    [breach] = (await trail.reader.verify(None, kept)).breaches
    assert (breach.kind, breach.batch) == (BreachKind.CHAIN_BROKEN, 2)


async def test_a_long_chain_is_verified_in_stretches(
    trail: Trail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_BATCHES_AT_ONCE", 2)
    for number in range(7):
        await trail.write(f"leases/{number}")
        await trail.sealer.run_once()
    await trail.tamper("DELETE FROM audit_entries WHERE sequence IN (2, 7)")
    breaches, end = await trail.verify()
    assert [(b.kind, b.sequence) for b in breaches] == [
        (BreachKind.REMOVED, 2),
        (BreachKind.REMOVED, 7),
    ]
    assert end.place is not None and end.place.number == 7


async def test_entries_are_found_by_who_what_and_when(trail: Trail) -> None:
    await trail.write("leases/a")
    await trail.write("quotas/q", by=Origin("ops", "SetQuota"))
    await trail.write("leases/b", by=Origin("bob", "CreateLease"))

    async def found(**wanted: object) -> list[str]:
        entries = await trail.reader.entries(EntryFilter(**wanted), 10)  # type: ignore[arg-type]
        return [entry.change.resource for entry in entries]

    assert await found() == ["leases/b", "quotas/q", "leases/a"]
    assert await found(caller="ann") == ["leases/a"]
    assert await found(resource="quotas/q") == ["quotas/q"]
    assert await found(resource="leases/") == ["leases/b", "leases/a"]
    assert await found(method="SetQuota", caller="ann") == []
    assert await found(before=2) == ["leases/a"]
    [last] = await trail.reader.entries(EntryFilter(caller="bob"), 10)
    assert "leases/b" not in await found(written=Interval(0, last.at))
    assert "leases/b" in await found(written=Interval(last.at, last.at + 1))
