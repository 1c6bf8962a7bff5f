"""Group commit over a real PostgreSQL: fewer transactions, each item its own outcome."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import asyncpg
import pytest
from tests.support.databases import open_test_pool

from tenure_core.errors import AlreadyExists, DomainError, Exhausted, Unavailable
from tenure_runtime.postgres.group_commit import GroupCommit, GroupLimits
from tenure_runtime.postgres.migrate import Migration, migrate_components
from tenure_runtime.postgres.pool import Pool
from tenure_runtime.postgres.transaction import Transaction

pytestmark = pytest.mark.postgres

TABLE = "CREATE TABLE items (name text PRIMARY KEY, size int CHECK (size > 0), tx bigint)"


@pytest.fixture
async def pool(database_dsn: str) -> AsyncIterator[Pool]:
    pool = await open_test_pool(database_dsn, "grouping")
    await migrate_components(pool, "grouping", {"items": [Migration(1, "items", TABLE)]})
    yield pool
    await pool.close()


Item = tuple[str, int]


async def insert(tx: Transaction, items: Sequence[Item]) -> list[str | DomainError]:
    rows = await tx.fetch(
        "INSERT INTO items SELECT *, pg_current_xact_id()::text::bigint"
        " FROM unnest($1::text[], $2::int[]) ON CONFLICT DO NOTHING RETURNING name",
        [name for name, _ in items],
        [size for _, size in items],
    )
    new = {row["name"] for row in rows}
    return [
        name if name in new else AlreadyExists("TAKEN", "The name is taken.", name=name)
        for name, _ in items
    ]


@asynccontextmanager
async def grouping(pool: Pool, apply=insert, **options) -> AsyncIterator[GroupCommit[Item, str]]:
    group: GroupCommit[Item, str] = GroupCommit(pool, apply, name="items", **options)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(group.run())
        try:
            yield group
        finally:
            running.cancel()


async def test_many_calls_share_few_transactions(pool: Pool) -> None:
    async with grouping(pool) as group:
        names = [f"n{n}" for n in range(500)]
        results = await asyncio.gather(*(group.submit((name, 1)) for name in names))
    assert results == names
    assert await pool.fetchval("SELECT count(*) FROM items") == 500
    assert await pool.fetchval("SELECT count(DISTINCT tx) FROM items") <= 4


async def test_a_refused_item_is_refused_alone(pool: Pool) -> None:
    await pool.execute("INSERT INTO items VALUES ('taken', 1)")
    async with grouping(pool) as group:
        results = await asyncio.gather(
            *(group.submit((name, 1)) for name in ("a", "taken", "b")), return_exceptions=True
        )
    assert (results[0], results[2]) == ("a", "b")
    assert isinstance(results[1], AlreadyExists)


async def test_an_item_that_breaks_the_transaction_breaks_it_alone(pool: Pool) -> None:
    """A size of 0 violates a CHECK, which aborts the whole transaction it is in."""
    async with grouping(pool) as group:
        results = await asyncio.gather(
            *(group.submit((f"n{n}", 0 if n in (13, 40) else 1)) for n in range(64)),
            return_exceptions=True,
        )
    broken = [n for n, result in enumerate(results) if isinstance(result, Exception)]
    assert broken == [13, 40]
    assert all(isinstance(results[n], asyncpg.CheckViolationError) for n in broken)
    assert await pool.fetchval("SELECT count(*) FROM items") == 62


async def test_equal_keys_never_share_a_transaction(pool: Pool) -> None:
    batches: list[list[Item]] = []

    async def note(tx: Transaction, items: Sequence[Item]) -> list[str | DomainError]:
        batches.append(list(items))
        return [name for name, _ in items]

    async with grouping(pool, note, key=lambda item: item[0]) as group:
        await asyncio.gather(*(group.submit(("same", n)) for n in range(5)), group.submit(("x", 9)))
    assert [len([i for i in batch if i[0] == "same"]) for batch in batches] == [1] * 5
    assert [item[1] for batch in batches for item in batch if item[0] == "same"] == list(range(5))


async def test_more_than_may_wait_is_refused_at_once(pool: Pool) -> None:
    group: GroupCommit[Item, str] = GroupCommit(
        pool, insert, name="items", limits=GroupLimits(pending_max=2)
    )
    waiting = [asyncio.ensure_future(group.submit((f"n{n}", 1))) for n in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(Exhausted) as caught:
        await group.submit(("n3", 1))
    assert caught.value.reason == "OVERLOADED"
    for each in waiting:
        each.cancel()


async def test_a_call_that_was_cancelled_while_it_waited_is_not_done(pool: Pool) -> None:
    group: GroupCommit[Item, str] = GroupCommit(pool, insert, name="items")
    gone = asyncio.ensure_future(group.submit(("gone", 1)))
    await asyncio.sleep(0)
    gone.cancel()
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(group.run())
        assert await group.submit(("here", 1)) == "here"
        running.cancel()
    assert [row["name"] for row in await pool.fetch("SELECT name FROM items")] == ["here"]


async def test_a_stop_fails_what_waits(pool: Pool) -> None:
    begun = asyncio.Event()

    async def never(tx: Transaction, items: Sequence[Item]) -> list[str | DomainError]:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with grouping(pool, never) as group:
        calls = [asyncio.ensure_future(group.submit(("first", 1)))]
        await begun.wait()
        calls.append(asyncio.ensure_future(group.submit(("second", 1))))
        await asyncio.sleep(0)
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [result.reason for result in results] == ["SERVER_DRAINING"] * 2
    with pytest.raises(Unavailable):
        await group.submit(("third", 1))


async def test_serialization_failures_are_not_seen_by_callers(pool: Pool) -> None:
    failures = iter([True, True])

    async def flaky(tx: Transaction, items: Sequence[Item]) -> list[str | DomainError]:
        results = await insert(tx, items)
        if next(failures, False):
            raise asyncpg.SerializationError("could not serialize access")
        return results

    async with grouping(pool, flaky) as group:
        assert await group.submit(("a", 1)) == "a"
    assert await pool.fetchval("SELECT count(*) FROM items") == 1


async def crowd(group: GroupCommit[Item, str], prefix: str, count: int) -> None:
    """Submit a few items a tick of the loop, as calls arrive."""
    async with asyncio.TaskGroup() as tasks:
        for n in range(count):
            tasks.create_task(group.submit((f"{prefix}{n}", 1)))
            if n % 2:
                await asyncio.sleep(0)


async def test_a_crowd_is_gathered_into_one_transaction(pool: Pool) -> None:
    """Otherwise the first two of a crowd have a transaction of their own, and so on."""
    async with grouping(pool, limits=GroupLimits(gather_s=5.0)) as group:
        await crowd(group, "n", 60)
    assert await pool.fetchval("SELECT count(DISTINCT tx) FROM items") == 1


async def test_who_comes_alone_does_not_wait_for_others(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under little load a creation must not become slower by what is meant for much."""
    monkeypatch.setattr("tenure_runtime.postgres.group_commit._LULL_S", 3_600.0)
    async with grouping(pool, limits=GroupLimits(gather_s=3_600.0)) as group:
        for n in range(3):
            assert await group.submit((f"n{n}", 1)) == f"n{n}"
    assert await pool.fetchval("SELECT count(DISTINCT tx) FROM items") == 3
