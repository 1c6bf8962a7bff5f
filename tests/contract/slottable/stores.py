"""The stores of slottable that the contract suite runs on, and rows to fill them with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from tests.support.databases import open_test_pool

from tenure_core.planning.snapshot import ReservationKind, ReservationView
from tenure_core.resources import ResourceVector
from tenure_core.slots.operations import BookRow, Node, RowGroup
from tenure_core.timebase import Interval
from tenure_runtime.clocks import SystemClock
from tenure_runtime.postgres.changefeed import ChangeFeed
from tenure_runtime.postgres.feedhub import FeedHub
from tenure_runtime.postgres.migrate import migrate
from tenure_runtime.rpc.draining import Draining
from tenure_slottable.store.memory import MemoryStore
from tenure_slottable.store.postgres import PostgresStore
from tenure_slottable.usecases import LeaderClaim, SlotTableUseCases

CLAIM = LeaderClaim("pool/p", 1)
CPU4 = ResourceVector({"cpu": 4_000})
CPU1 = ResourceVector({"cpu": 1_000})


@asynccontextmanager
async def memory_usecases() -> AsyncIterator[SlotTableUseCases]:
    yield SlotTableUseCases(MemoryStore(SystemClock()))


@asynccontextmanager
async def postgres_usecases(dsn: str) -> AsyncIterator[SlotTableUseCases]:
    pool = await open_test_pool(dsn, "slottable")
    await migrate(pool, "slottable", "tenure_slottable")
    feed = await ChangeFeed.open(pool, "slots")
    hub = FeedHub(feed, Draining(), bookmark_s=0.2)
    async with asyncio.TaskGroup() as loops:
        tasks = [loops.create_task(feed.run()), loops.create_task(hub.run())]
        try:
            yield SlotTableUseCases(PostgresStore(pool, hub))
        finally:
            for task in tasks:
                task.cancel()
    await pool.close()


async def move_behind_its_back(
    table: SlotTableUseCases, reservation: str, node: str, *, displaced: bool
) -> None:
    """Write a reservation's node as a faulty server might, without asking whether it fits."""
    store = table._store
    if isinstance(store, MemoryStore):
        rows = store._pools["p"].rows
        rows[reservation] = replace(rows[reservation], node=node, displaced=displaced)
        return
    assert isinstance(store, PostgresStore)
    await store._database.execute(
        "UPDATE reservations SET node = $2, displaced = $3 WHERE id = $1",
        reservation,
        node,
        displaced,
    )


def node(name: str = "n1", amounts: ResourceVector = CPU4, **facts: object) -> Node:
    return Node(name, "p", ((0, amounts),), **facts)


def row(
    name: str,
    start: int,
    end: int,
    *,
    on: str = "n1",
    lease: str = "l1",
    attempt: int = 1,
    amounts: ResourceVector = CPU4,
    kind: ReservationKind = ReservationKind.RUN,
) -> ReservationView:
    return ReservationView(name, lease, attempt, 0, on, Interval(start, end), amounts, kind)


def book(*rows: ReservationView, group: str = "g") -> RowGroup:
    return RowGroup(group, tuple(BookRow(each) for each in rows))
