"""A trail over a fresh schema, and ways to tamper with it that the database would refuse."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.databases import open_test_pool

from tenure_core.audit.chain import Breach
from tenure_core.audit.entry import AuditedChange, Origin
from tenure_runtime.audit.reading import Stretch, TrailReader
from tenure_runtime.audit.trail import Sealer, write
from tenure_runtime.postgres.migrate import migrate
from tenure_runtime.postgres.pool import Pool
from tenure_runtime.postgres.transaction import Transaction, run
from tenure_runtime.rpc import origin

ANN = Origin("ann", "CancelLease", "ipv4:10.0.0.7:4711", "r1")


class Trail:
    """A trail whose writer, sealer and reader a test drives."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.sealer = Sealer(pool)
        self.reader = TrailReader(pool)

    async def write(self, *resources: str, by: Origin = ANN) -> None:
        """Write an entry for each resource, in one transaction."""
        origin.enter(by)

        async def use_case(tx: Transaction) -> None:
            await write(tx, [AuditedChange(each, None, b"{}") for each in resources])

        await run(self.pool, use_case)

    async def verify(self) -> tuple[list[Breach], Stretch]:
        """Verify the whole chain; return all breaches and the last stretch."""
        breaches: list[Breach] = []
        place = None
        while True:
            stretch = await self.reader.verify(place)
            breaches += stretch.breaches
            place = stretch.place
            if stretch.unsealed is not None:
                return breaches, stretch

    async def tamper(self, *statements: str) -> None:
        """Run statements as somebody who may do anything: the triggers are off meanwhile."""
        async with self.pool.acquire() as connection, connection.transaction():
            await connection.execute("SET LOCAL session_replication_role = replica")
            for statement in statements:
                await connection.execute(statement)


@asynccontextmanager
async def opened(dsn: str) -> AsyncIterator[Trail]:
    """Yield the trail of a fresh schema, begun."""
    pool = await open_test_pool(dsn, "trail")
    try:
        await migrate(pool, "trail", "tenure_slottable")
        trail = Trail(pool)
        await trail.sealer.run_once()
        yield trail
    finally:
        await pool.close()
