"""PostgreSQL is killed under load and comes back: nothing acknowledged is lost or doubled."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

import pytest
from tests.support.databases import open_test_pool

from tenure_core.errors import DomainError, Unavailable
from tenure_runtime.embedded.postgres import EmbeddedPostgres
from tenure_runtime.postgres.changefeed import Change, ChangeFeed, NewChange
from tenure_runtime.postgres.feedhub import FeedHub
from tenure_runtime.postgres.group_commit import GroupCommit
from tenure_runtime.postgres.idempotency import RequestKey, claim_many, record_many
from tenure_runtime.postgres.migrate import Migration, migrate_components, migrations_of
from tenure_runtime.postgres.transaction import Transaction
from tenure_runtime.rpc.draining import Draining

pytestmark = [pytest.mark.postgres, pytest.mark.faults]

CALLERS, EACH = 16, 40
TABLE = Migration(1, "things", "CREATE TABLE things (number bigserial, name text NOT NULL)")


class Things:
    """A service in small: it creates things once a request, in groups, with a change feed."""

    def __init__(self, feed: ChangeFeed) -> None:
        self._feed = feed

    async def create_many(
        self, tx: Transaction, keys: Sequence[RequestKey]
    ) -> list[bytes | DomainError]:
        claims = await claim_many(tx, keys)
        new = [key for key, claim in zip(keys, claims, strict=True) if claim is None]
        rows = await tx.fetch(
            "INSERT INTO things (name) SELECT * FROM unnest($1::text[]) RETURNING name, number",
            [key.request_id for key in new],
        )
        answers = {row["name"]: b"%d" % row["number"] for row in rows}
        await self._feed.append(tx, [NewChange(key.request_id, "created") for key in new])
        await record_many(tx, [(key, answers[key.request_id]) for key in new])
        return [
            answers[key.request_id] if claim is None else claim
            for key, claim in zip(keys, claims, strict=True)
        ]


async def create(group: GroupCommit[RequestKey, bytes], name: str) -> bytes:
    """Create a thing as a client does: the same request id until there is an answer."""
    while True:
        try:
            return await group.submit(RequestKey("ann", name, b"body"))
        except Unavailable:
            await asyncio.sleep(0.05)


async def test_kill_9_of_the_database_loses_nothing_acknowledged_and_doubles_nothing() -> None:
    folder = Path(tempfile.mkdtemp(prefix="tenure-test-loss-", dir="/tmp"))
    server = EmbeddedPostgres(folder)
    try:
        await server.start()
        pool = await open_test_pool(await server.ensure_database("things"), "things")
        await migrate_components(
            pool,
            "things",
            {"runtime": migrations_of("tenure_runtime.postgres"), "things": [TABLE]},
        )
        feed = await ChangeFeed.open(pool, "things")
        group: GroupCommit[RequestKey, bytes] = GroupCommit(
            pool, Things(feed).create_many, name="things", key=lambda key: key.request_id
        )
        hub = FeedHub(feed, Draining(), poll_s=0.2)
        token = (await feed.now()).token()
        acknowledged: dict[str, bytes] = {}
        names = {f"{caller}-{n}" for caller in range(CALLERS) for n in range(EACH)}

        async def call(caller: int) -> None:
            for n in range(EACH):
                name = f"{caller}-{n}"
                acknowledged[name] = await create(group, name)
                await asyncio.sleep(0.01)

        async def watch() -> list[str]:
            seen: list[str] = []
            async with aclosing(hub.watch(token)) as items:
                async for item in items:
                    if isinstance(item, Change):
                        seen.append(item.key)
                    if len(seen) == len(names):
                        return seen
            raise AssertionError

        async def kill() -> None:
            while len(acknowledged) < len(names) // 3:
                await asyncio.sleep(0.005)
            assert server.pid is not None
            os.kill(server.pid, signal.SIGKILL)
            await server.wait_ended()
            await server.restart()

        async with asyncio.timeout(90), asyncio.TaskGroup() as tasks:
            loops = [tasks.create_task(run()) for run in (feed.run, hub.run, group.run)]
            watching = tasks.create_task(watch())
            killing = tasks.create_task(kill())
            await asyncio.gather(*(call(caller) for caller in range(CALLERS)))
            assert killing.done()
            seen = await watching
            for each in loops:
                each.cancel()
        stored = {
            row["name"]: b"%d" % row["number"] for row in await pool.fetch("SELECT * FROM things")
        }
        assert await pool.fetchval("SELECT count(*) FROM things") == len(names)
        assert stored == acknowledged
        assert sorted(seen) == sorted(names)
        assert (await ChangeFeed.open(pool, "things")).incarnation == feed.incarnation
        await pool.close()
    finally:
        await server.destroy()
        shutil.rmtree(folder, ignore_errors=True)
