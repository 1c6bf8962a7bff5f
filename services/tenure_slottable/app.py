"""Puts slottable together: the only place that knows its concrete parts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from tenure.slottable.v1.slottable_pb2_grpc import add_SlotTableServiceServicer_to_server
from tenure_runtime.audit.service import keep_trail
from tenure_runtime.audit.servicer import PERMISSIONS as AUDIT_PERMISSIONS
from tenure_runtime.clocks import SystemClock
from tenure_runtime.postgres import idempotency
from tenure_runtime.postgres.changefeed import ChangeFeed
from tenure_runtime.postgres.feedhub import FeedHub
from tenure_runtime.postgres.migrate import migrate, migrations_of
from tenure_runtime.postgres.pool import PoolOptions, observed_pool, open_pool
from tenure_runtime.postgres.transaction import Transaction, run
from tenure_runtime.process import announce, run_loop, running
from tenure_runtime.rpc.draining import Draining
from tenure_runtime.rpc.identity import Keyring
from tenure_runtime.rpc.published_keys import gate_of
from tenure_runtime.rpc.server import RpcServer, ServerOptions
from tenure_runtime.service_info import service_info
from tenure_slottable.compacting import Compacting
from tenure_slottable.servicer import PERMISSIONS, SERVICE, SlotTableServicer
from tenure_slottable.settings import SlottableSettings
from tenure_slottable.store.postgres import PostgresStore
from tenure_slottable.usecases import SlotTableUseCases

SCHEMA: Final = "slottable"
PACKAGE: Final = "tenure_slottable"
FEED: Final = "slots"


@asynccontextmanager
async def app(settings: SlottableSettings) -> AsyncIterator[None]:
    """Serve until left."""
    assert settings.keyring_file is not None, "TENURE_KEYRING_FILE says who may call"
    pool = await open_pool(PoolOptions(settings.database_dsn, SCHEMA))
    await migrate(pool, SCHEMA, PACKAGE)
    draining = Draining()
    feed = await ChangeFeed.open(pool, FEED)
    hub = FeedHub(feed, draining, queue_limit=20_000)
    store = PostgresStore(pool, hub)
    keyring = Keyring.load(settings.keyring_file)
    gate, refreshing = gate_of(settings, keyring)
    server = RpcServer(
        ServerOptions("slottable", settings.listen, tls=settings.tls),
        keyring=keyring,
        permissions=PERMISSIONS.also(AUDIT_PERMISSIONS),
        draining=draining,
        gate=gate,
    )
    info = service_info(
        "slottable", settings.instance, SystemClock().now_ms(), len(migrations_of(PACKAGE))
    )
    server.add(
        add_SlotTableServiceServicer_to_server,
        SlotTableServicer(SlotTableUseCases(store), info),
        SERVICE,
    )

    async def forget_requests() -> None:
        async def use_case(tx: Transaction) -> int:
            return await idempotency.forget_old(tx, int(settings.request_retention_s * 1_000))

        await run(pool, use_case)

    async def trim_feed() -> None:
        await feed.trim(int(settings.feed_retention_s * 1_000))

    compacting = Compacting(store, int(settings.history_retention_s * 1_000))
    loops = [
        feed.run(),
        hub.run(),
        await keep_trail(server, pool, settings.trail_limits),
        run_loop("slottable.trim_feed", trim_feed, period_s=60),
        run_loop("slottable.forget", store.forget_released, period_s=60),
        run_loop("slottable.compact", compacting.run_once, period_s=60),
        run_loop("slottable.requests", forget_requests, period_s=600),
        *refreshing,
    ]
    with observed_pool(pool):
        async with running(loops):
            port = await server.start()
            announce(settings.ready_file, port=port)
            try:
                yield
            finally:
                await server.stop(settings.grace_s)
    await pool.close()
