"""Migrations, transactions and request ids over a real PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
from tests.support.databases import open_test_pool

from tenure_core.errors import DomainError, Invalid, NotFound, Unavailable
from tenure_runtime.postgres.idempotency import (
    RequestKey,
    claim_many,
    forget_many,
    forget_old,
    once,
    record_many,
)
from tenure_runtime.postgres.migrate import (
    Migration,
    SchemaRefused,
    migrate_components,
    migrations_of,
)
from tenure_runtime.postgres.pool import Pool, PoolOptions, open_pool
from tenure_runtime.postgres.transaction import Transaction, run

pytestmark = pytest.mark.postgres

RUNTIME = migrations_of("tenure_runtime.postgres")
FIRST = Migration(1, "things", "CREATE TABLE things (name text PRIMARY KEY, count int)")
SECOND = Migration(2, "sizes", "ALTER TABLE things ADD COLUMN size int NOT NULL DEFAULT 7")


@pytest.fixture
async def pool(database_dsn: str) -> AsyncIterator[Pool]:
    pool = await open_test_pool(database_dsn, "things")
    await migrate_components(pool, "things", {"runtime": RUNTIME, "things": [FIRST]})
    yield pool
    await pool.close()


async def _history(pool: Pool) -> list[tuple[str, int]]:
    rows = await pool.fetch("SELECT component, number FROM schema_migrations ORDER BY 1, 2")
    return [tuple(row) for row in rows]


async def test_migrations_run_once_and_in_order(pool: Pool) -> None:
    await migrate_components(pool, "things", {"runtime": RUNTIME, "things": [FIRST, SECOND]})
    await migrate_components(pool, "things", {"runtime": RUNTIME, "things": [FIRST, SECOND]})
    runtime = [("runtime", migration.number) for migration in RUNTIME]
    assert await _history(pool) == [*runtime, ("things", 1), ("things", 2)]
    await pool.execute("INSERT INTO things (name) VALUES ('a')")
    assert await pool.fetchval("SELECT size FROM things") == 7


async def test_replicas_that_migrate_at_once_do_it_once(database_dsn: str) -> None:
    pools = [await open_test_pool(database_dsn, "shared") for _ in range(4)]
    try:
        await asyncio.gather(
            *(migrate_components(each, "shared", {"things": [FIRST, SECOND]}) for each in pools)
        )
        assert await _history(pools[0]) == [("things", 1), ("things", 2)]
    finally:
        for each in pools:
            await each.close()


async def test_a_program_starts_on_a_schema_to_which_a_newer_one_has_added(pool: Pool) -> None:
    await migrate_components(pool, "things", {"things": [FIRST, SECOND]})
    before = await _history(pool)
    await migrate_components(pool, "things", {"things": [FIRST]})
    await pool.execute("INSERT INTO things (name) VALUES ('old')")
    assert await _history(pool) == before


async def test_a_schema_from_which_a_newer_program_took_something_is_refused(pool: Pool) -> None:
    third = Migration(3, "fewer", "ALTER TABLE things DROP COLUMN count", contracts=True)
    await migrate_components(pool, "things", {"things": [FIRST, SECOND, third]})
    with pytest.raises(SchemaRefused, match="is at migration 3 of things, this program knows 1"):
        await migrate_components(pool, "things", {"things": [FIRST]})
    await migrate_components(pool, "things", {"things": [FIRST, SECOND, third]})


def test_what_a_file_does_is_in_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "kept_things" / "migrations"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").touch()
    (folder / "0001_things.sql").write_text("first")
    (folder / "0002_fewer.contract.sql").write_text("second")
    monkeypatch.syspath_prepend(tmp_path)
    assert migrations_of("kept_things") == [
        Migration(1, "things", "first"),
        Migration(2, "fewer", "second", contracts=True),
    ]


async def test_a_migration_that_changed_after_it_ran_is_refused(pool: Pool) -> None:
    changed = Migration(1, "things", FIRST.sql + " -- harmless?")
    with pytest.raises(SchemaRefused, match="0001_things of things was changed after it ran"):
        await migrate_components(pool, "things", {"things": [changed]})


async def test_a_failing_migration_leaves_nothing_behind(pool: Pool) -> None:
    broken = Migration(2, "broken", "CREATE TABLE half (a int); SELECT 1/0")
    with pytest.raises(asyncpg.DivisionByZeroError):
        await migrate_components(pool, "things", {"things": [FIRST, broken]})
    assert await pool.fetchval("SELECT to_regclass('half')") is None
    assert ("things", 2) not in await _history(pool)
    await migrate_components(pool, "things", {"things": [FIRST, SECOND]})


async def test_a_server_that_never_comes_up_is_unavailable() -> None:
    with pytest.raises(Unavailable) as caught:
        await open_pool(PoolOptions("postgresql://nobody@127.0.0.1:1/none", "x", wait_s=0.2))
    assert caught.value.reason == "DATABASE_UNAVAILABLE"


async def test_a_serialization_failure_repeats_the_whole_use_case(pool: Pool) -> None:
    await pool.execute("INSERT INTO things VALUES ('n', 0)")
    attempts = 0

    async def increment(tx: Transaction) -> int:
        nonlocal attempts
        attempts += 1
        count = await tx.fetchval("SELECT count FROM things WHERE name = 'n'")
        await asyncio.sleep(0.005)
        await tx.execute("UPDATE things SET count = $1 WHERE name = 'n'", count + 1)
        return count + 1

    results = await asyncio.gather(
        *(run(pool, increment, isolation="serializable") for _ in range(4))
    )
    assert sorted(results) == [1, 2, 3, 4]
    assert attempts > 4


async def test_deadlocks_are_repeated(pool: Pool) -> None:
    await pool.execute("INSERT INTO things VALUES ('a', 0), ('b', 0)")
    both = asyncio.Barrier(2)
    met = False

    async def lock(tx: Transaction, first: str, second: str) -> None:
        nonlocal met
        await tx.execute("UPDATE things SET count = count + 1 WHERE name = $1", first)
        if not met:
            await both.wait()
            met = True
        await tx.execute("UPDATE things SET count = count + 1 WHERE name = $1", second)

    await asyncio.gather(
        run(pool, lambda tx: lock(tx, "a", "b")), run(pool, lambda tx: lock(tx, "b", "a"))
    )
    assert await pool.fetchval("SELECT sum(count) FROM things") == 4


async def test_endless_contention_ends_as_unavailable(pool: Pool) -> None:
    async def always(_: Transaction) -> None:
        raise asyncpg.SerializationError("could not serialize access")

    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    with pytest.raises(Unavailable) as caught:
        await run(pool, always, sleep=sleep)
    assert (caught.value.reason, caught.value.retry_after_ms) == ("TRANSACTION_CONTENTION", 100)
    assert len(waits) == 9


async def test_after_commit_runs_only_after_a_commit(pool: Pool) -> None:
    done: list[str] = []

    async def use_case(tx: Transaction, name: str, fails: bool) -> None:
        tx.after_commit(lambda: done.append(name))
        await tx.execute("INSERT INTO things VALUES ($1, 0)", name)
        assert done == []
        if fails:
            raise NotFound("NOTHING", "No.")

    with pytest.raises(NotFound):
        await run(pool, lambda tx: use_case(tx, "lost", True))
    await run(pool, lambda tx: use_case(tx, "kept", False))
    assert done == ["kept"]


def key(request_id: str = "r1", request: bytes = b"body", caller: str = "ann") -> RequestKey:
    return RequestKey(caller, request_id, request)


def counted(tx: Transaction, answer: bytes):
    async def effect() -> bytes:
        await tx.execute(
            "INSERT INTO things VALUES ('n', 1)"
            " ON CONFLICT (name) DO UPDATE SET count = things.count + 1"
        )
        return answer

    return effect


async def test_a_repeat_gets_the_first_answer_and_does_nothing(pool: Pool) -> None:
    first = await run(pool, lambda tx: once(tx, key(), counted(tx, b"one")))
    second = await run(pool, lambda tx: once(tx, key(), counted(tx, b"two")))
    assert (first, second) == (b"one", b"one")
    assert await pool.fetchval("SELECT count FROM things") == 1


@pytest.mark.parametrize("isolation", ["read_committed", "repeatable_read", "serializable"])
async def test_repeats_at_the_same_time_have_one_effect(pool: Pool, isolation: str) -> None:
    answers = await asyncio.gather(
        *(
            run(
                pool,
                lambda tx, n=n: once(tx, key(), counted(tx, b"answer %d" % n)),
                isolation=isolation,
            )
            for n in range(16)
        )
    )
    assert len(set(answers)) == 1
    assert await pool.fetchval("SELECT count FROM things") == 1


async def test_one_id_with_other_content_is_refused(pool: Pool) -> None:
    await run(pool, lambda tx: once(tx, key(), counted(tx, b"one")))
    with pytest.raises(Invalid) as caught:
        await run(pool, lambda tx: once(tx, key(request=b"other"), counted(tx, b"two")))
    assert caught.value.reason == "REQUEST_ID_REUSED"
    assert [violation.field for violation in caught.value.violations] == ["request_id"]


async def test_one_id_for_another_method_is_refused(pool: Pool) -> None:
    await run(pool, lambda tx: once(tx, key(), counted(tx, b"one")))
    other = RequestKey("ann", "r1", b"body", "CancelLease")
    with pytest.raises(Invalid):
        await run(pool, lambda tx: once(tx, other, counted(tx, b"two")))


async def test_ids_of_two_callers_do_not_meet(pool: Pool) -> None:
    await run(pool, lambda tx: once(tx, key(), counted(tx, b"ann's")))
    other = await run(pool, lambda tx: once(tx, key(caller="bob"), counted(tx, b"bob's")))
    assert other == b"bob's"


async def test_a_failed_effect_may_be_tried_again_under_its_id(pool: Pool) -> None:
    async def fails() -> bytes:
        raise NotFound("NOTHING", "No.")

    with pytest.raises(NotFound):
        await run(pool, lambda tx: once(tx, key(), fails))
    assert await run(pool, lambda tx: once(tx, key(), counted(tx, b"now"))) == b"now"


async def test_requests_without_an_id_are_not_remembered(pool: Pool) -> None:
    for _ in range(2):
        await run(pool, lambda tx: once(tx, key(""), counted(tx, b"")))
    assert await pool.fetchval("SELECT count FROM things") == 2
    assert await pool.fetchval("SELECT count(*) FROM requests") == 0


async def test_a_batch_claims_repeats_reuses_and_firsts_at_once(pool: Pool) -> None:
    await run(pool, lambda tx: once(tx, key("old"), counted(tx, b"old answer")))

    async def batch(tx: Transaction) -> list[bytes | DomainError | None]:
        keys = [key("new"), key("old"), key("old", b"other", "bob"), key("refused")]
        claims = await claim_many(tx, keys)
        await record_many(tx, [(keys[0], b"new answer"), (keys[2], b"bob's")])
        await forget_many(tx, [keys[3]])
        return claims

    assert await run(pool, batch) == [None, b"old answer", None, None]
    [again, reused] = await run(
        pool, lambda tx: claim_many(tx, [key("new"), key("old", b"changed")])
    )
    assert again == b"new answer"
    assert isinstance(reused, Invalid)
    [refused] = await run(pool, lambda tx: _claim_and_forget(tx, key("refused")))
    assert refused is None


async def _claim_and_forget(tx: Transaction, claimed: RequestKey):
    claims = await claim_many(tx, [claimed])
    await forget_many(tx, [claimed])
    return claims


async def test_claims_that_come_with_answers_keep_them_unless_forgotten(pool: Pool) -> None:
    async def use_case(tx: Transaction) -> None:
        keys = [key("z"), key("a"), key("refused")]
        assert await claim_many(tx, keys, [b"of z", b"of a", b"never given"]) == [None] * 3
        await forget_many(tx, [key("refused")])

    await run(pool, use_case)
    repeats = [key("a"), key("refused"), key("z"), key("a", b"changed")]
    claims = await run(pool, lambda tx: claim_many(tx, repeats[:3], [b"no more"] * 3))
    assert claims == [b"of a", None, b"of z"]
    [reused] = await run(pool, lambda tx: claim_many(tx, repeats[3:], [b"nor this"]))
    assert isinstance(reused, Invalid) and reused.reason == "REQUEST_ID_REUSED"


async def test_one_statement_is_a_transaction_of_its_own(pool: Pool) -> None:
    """Written, or not at all; what follows the commit follows it here too."""
    said: list[str] = []

    async def use_case(tx: Transaction) -> str:
        tx.after_commit(lambda: said.append("committed"))
        return await tx.execute("INSERT INTO things VALUES ('a', 1), ('b', 2)")

    assert await run(pool, use_case, one_statement=True) == "INSERT 0 2"
    assert said == ["committed"]
    with pytest.raises(asyncpg.UniqueViolationError):
        await run(
            pool,
            lambda tx: tx.execute("INSERT INTO things VALUES ('c', 3), ('a', 1)"),
            one_statement=True,
        )
    assert await pool.fetchval("SELECT count(*) FROM things") == 2


async def test_a_failure_leaves_no_transaction_open_on_its_connection(database_dsn: str) -> None:
    """Connections go back to the pool without a reset: the next user must find no trace."""
    pool = await open_pool(PoolOptions(database_dsn, "public", size_max=1))

    async def fail(tx: Transaction) -> None:
        await tx.execute("SET LOCAL statement_timeout = 12345")
        await tx.execute("SELECT pg_advisory_xact_lock(1)")
        raise NotFound("X", "x")

    with pytest.raises(NotFound):
        await run(pool, fail)
    assert await pool.fetchval("SHOW statement_timeout") == "0"
    assert await pool.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0
    await pool.close()


async def test_migrating_leaves_no_trace_in_its_session(database_dsn: str) -> None:
    pool = await open_pool(PoolOptions(database_dsn, "elsewhere", size_max=1))
    await migrate_components(pool, "traceless", {"things": [FIRST]})
    assert await pool.fetchval("SHOW search_path") == "elsewhere"
    assert await pool.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0
    await pool.close()


async def test_old_requests_are_forgotten_and_young_ones_kept(pool: Pool) -> None:
    for name in ("old", "young"):
        await run(pool, lambda tx, name=name: once(tx, key(name), counted(tx, b"")))
    await pool.execute(
        "UPDATE requests SET created_at = now() - interval '8 days' WHERE request_id = 'old'"
    )
    assert await run(pool, forget_old) == 1
    assert [row[0] for row in await pool.fetch("SELECT request_id FROM requests")] == ["young"]
