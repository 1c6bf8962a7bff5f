"""The slot table in PostgreSQL: every change of a pool in one transaction under its row's lock.

All SQL of slottable is here and in `cache`. What may change is decided by `PoolTable`; this module
writes what it says changed, with the revision, the change feed and the request id beside it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import TypeVar

from tenure_core.slots.commit import PoolTable
from tenure_core.slots.operations import Node
from tenure_core.timebase import Interval, Millis
from tenure_runtime.postgres import idempotency
from tenure_runtime.postgres.changefeed import ChangeFeed
from tenure_runtime.postgres.feedhub import Bookmark, FeedHub
from tenure_runtime.postgres.pool import Pool
from tenure_runtime.postgres.transaction import Transaction, run
from tenure_slottable.ports import (
    Change,
    EpochRow,
    Listing,
    MaintenanceWindow,
    Occupancy,
    PoolTransaction,
    PoolView,
    Repeat,
    RowFilter,
)
from tenure_slottable.store import postgres_occupancy
from tenure_slottable.store.cache import CachedPool
from tenure_slottable.store.codec import (
    node_from_json,
    row_from_json,
)
from tenure_slottable.store.open_pool import OpenPool, write

Result = TypeVar("Result")

RELEASED_REVISIONS_KEPT = 10_000
"""How far back another replica's cache may be and still catch up without loading everything."""

_LOCK_POOL = """
SELECT revision, horizon,
       greatest(last_ms, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now_ms
FROM pools WHERE pool = $1
"""


class PostgresStore:
    """The store of `tenure_slottable.ports` over one schema."""

    def __init__(self, pool: Pool, hub: FeedHub) -> None:
        self._database = pool
        self._feed: ChangeFeed = hub.feed
        self._hub = hub
        self._pools: dict[str, CachedPool] = {}

    async def change(
        self,
        pool: str,
        use: Callable[[PoolTransaction], Awaitable[Result]],
        repeat: Repeat[Result] | None = None,
    ) -> Result:
        """Run `use` with the pool locked, here and in the database, and commit what it did."""
        cached = self._pools.setdefault(pool, CachedPool())

        async def transact(tx: Transaction) -> tuple[Result, int]:
            if repeat is None or not repeat.request_id:
                return await self._locked(tx, pool, cached, use)
            key = idempotency.RequestKey(repeat.caller, repeat.request_id, repeat.request)
            reached = cached.revision

            async def effect() -> bytes:
                nonlocal reached
                result, reached = await self._locked(tx, pool, cached, use)
                return repeat.pack(result)

            return repeat.unpack(await idempotency.once(tx, key, effect)), reached

        async with cached.lock:
            try:
                result, cached.revision = await run(self._database, transact)
            except BaseException:
                # What the table took on may not have been committed.
                cached.forget()
                raise
            return result

    async def _locked(
        self,
        tx: Transaction,
        pool: str,
        cached: CachedPool,
        use: Callable[[PoolTransaction], Awaitable[Result]],
    ) -> tuple[Result, int]:
        await tx.execute("INSERT INTO pools (pool) VALUES ($1) ON CONFLICT DO NOTHING", pool)
        row = await tx.fetchrow(_LOCK_POOL + " FOR UPDATE", pool)
        assert row is not None
        # A repeat after a serialization failure must not build on what the first try did.
        if cached.table is not None and cached.table.take_changes():
            cached.forget()
        table = await cached.catch_up(tx, pool, row["revision"], row["horizon"])
        opened = OpenPool(row["now_ms"], row["revision"], table, tx, pool)
        result = await use(opened)
        changes = table.take_changes()
        if not changes:
            return result, opened.revision
        await write(opened, changes, cached.created, self._feed)
        return result, opened.revision + 1

    async def read(self, pool: str, use: Callable[[PoolView], Result]) -> Result:
        """Run `use` on the newest committed state, read in one snapshot of the database."""
        cached = self._pools.setdefault(pool, CachedPool())

        async def transact(tx: Transaction) -> Result:
            row = await tx.fetchrow(_LOCK_POOL, pool)
            if row is None:
                now = await tx.fetchval(
                    "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
                )
                return use(OpenPool(now, 0, PoolTable(), tx, pool))
            table = await cached.catch_up(tx, pool, row["revision"], row["horizon"])
            return use(OpenPool(row["now_ms"], row["revision"], table, tx, pool))

        async with cached.lock:
            return await run(self._database, transact, isolation="repeatable_read", readonly=True)

    async def rows(self, wanted: RowFilter) -> Listing:
        """Return reservations by id, with the token of the same snapshot."""
        span = wanted.interval

        async def transact(tx: Transaction) -> Listing:
            position = await self._feed.position(tx)
            found = await tx.fetch(
                "SELECT * FROM reservations WHERE ($1 = '' OR pool = $1) AND ($2 = '' OR node = $2)"
                " AND ($3 = '' OR lease = $3) AND ($4::bigint IS NULL OR end_ms > $4)"
                " AND ($5::bigint IS NULL OR start_ms < $5) AND id > $6 ORDER BY id LIMIT $7",
                wanted.pool,
                wanted.node,
                wanted.lease,
                span.start if span else None,
                span.end if span else None,
                wanted.after,
                wanted.limit,
            )
            state = await tx.fetchrow(_LOCK_POOL, wanted.pool)
            rows = tuple(row_from_json(dict(row)) for row in found)
            if state is None:
                return Listing(rows, position.token(), 0, 0)
            return Listing(rows, position.token(), state["revision"], state["now_ms"])

        return await run(self._database, transact, isolation="repeatable_read", readonly=True)

    async def nodes(self, pool: str, after: str, limit: int, *, retired: bool) -> tuple[Node, ...]:
        """Return nodes by id."""
        rows = await self._database.fetch(
            "SELECT body FROM nodes WHERE ($1 = '' OR pool = $1) AND id > $2"
            " AND ($3 OR body->>'state' <> 'RETIRED') ORDER BY id LIMIT $4",
            pool,
            after,
            retired,
            limit,
        )
        return tuple(node_from_json(json.loads(row["body"])) for row in rows)

    async def pool_of(self, node: str) -> str | None:
        """Return the pool of a node, None when there is no such node."""
        pool: str | None = await self._database.fetchval(
            "SELECT pool FROM nodes WHERE id = $1", node
        )
        return pool

    async def windows(self, pool: str, after: str, limit: int) -> tuple[MaintenanceWindow, ...]:
        """Return maintenance windows by id."""
        rows = await self._database.fetch(
            "SELECT * FROM maintenance_windows WHERE ($1 = '' OR pool = $1) AND id > $2"
            " ORDER BY id LIMIT $3",
            pool,
            after,
            limit,
        )
        return tuple(map(_window, rows))

    async def window(self, window: str) -> MaintenanceWindow | None:
        """Return one maintenance window."""
        row = await self._database.fetchrow(
            "SELECT * FROM maintenance_windows WHERE id = $1", window
        )
        return None if row is None else _window(row)

    async def ended_windows(
        self, retention_ms: Millis, limit: int
    ) -> tuple[MaintenanceWindow, ...]:
        """Return maintenance windows that ended longer ago, oldest first."""
        rows = await self._database.fetch(
            "SELECT * FROM maintenance_windows"
            " WHERE end_ms <= (extract(epoch FROM clock_timestamp()) * 1000)::bigint - $1"
            " ORDER BY end_ms, id LIMIT $2",
            retention_ms,
            limit,
        )
        return tuple(map(_window, rows))

    async def acquire_epoch(self, scope: str, holder: str) -> int:
        """Return an epoch larger than any before for the scope."""
        epoch = await self._database.fetchval(
            "INSERT INTO epochs AS e (scope, epoch, holder) VALUES ($1, 1, $2)"
            " ON CONFLICT (scope) DO UPDATE"
            " SET epoch = e.epoch + 1, holder = $2, acquired_at = clock_timestamp()"
            " RETURNING epoch",
            scope,
            holder,
        )
        return int(epoch)

    async def epoch(self, scope: str) -> EpochRow:
        """Return the present epoch of a scope."""
        row = await self._database.fetchrow(
            "SELECT epoch, holder FROM epochs WHERE scope = $1", scope
        )
        return EpochRow(0, "") if row is None else EpochRow(row["epoch"], row["holder"])

    async def occupancy(self, pool: str, limit: int) -> Occupancy:
        """Add up what is held, in SQL and from the rows alone."""

        async def transact(tx: Transaction) -> Occupancy:
            return await postgres_occupancy.occupancy(tx, pool, limit)

        return await run(self._database, transact, isolation="repeatable_read", readonly=True)

    async def watch(self, pool: str, token: str) -> AsyncIterator[Change]:
        """Yield the changes after the token, and bookmarks when idle."""
        start = token or (await self._feed.now()).token()
        prefix = f"{pool}/"
        watching = self._hub.watch(start, lambda change: not pool or change.key.startswith(prefix))
        async with aclosing(watching) as changes:
            async for change in changes:
                if isinstance(change, Bookmark):
                    yield Change(change.position.token())
                else:
                    yield _change(change.kind, change.payload, change.position.token())

    async def forget_released(self) -> None:
        """Forget released rows too old for any cache to need, pool by pool."""
        for row in await self._database.fetch("SELECT pool, revision FROM pools"):
            horizon = row["revision"] - RELEASED_REVISIONS_KEPT
            if horizon <= 0:
                continue

            async def trim(tx: Transaction, pool: str = row["pool"], to: int = horizon) -> None:
                await tx.execute(
                    "UPDATE pools SET horizon = greatest(horizon, $2) WHERE pool = $1", pool, to
                )
                await tx.execute(
                    "DELETE FROM released WHERE pool = $1 AND revision <= $2", pool, to
                )

            await run(self._database, trim)


def _change(kind: str, payload: bytes, token: str) -> Change:
    envelope = json.loads(payload)
    body, pool = envelope["body"], envelope["pool"]
    revision, at = envelope["revision"], envelope["at"]
    if kind == "released":
        return Change(token, pool, revision, at, released=body)
    if kind == "node":
        return Change(token, pool, revision, at, node=node_from_json(body))
    return Change(token, pool, revision, at, row=row_from_json(body))


def _window(row: object) -> MaintenanceWindow:
    body = dict(row)  # type: ignore[call-overload]  # an asyncpg record is a mapping
    return MaintenanceWindow(
        body["id"],
        body["pool"],
        tuple(body["nodes"]),
        Interval(body["start_ms"], body["end_ms"]),
        body["message"],
    )
