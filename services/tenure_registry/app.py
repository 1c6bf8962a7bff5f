"""Puts the registry together: the only place that names its adapters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from tenure.registry.v1.registry_pb2_grpc import add_RegistryServiceServicer_to_server
from tenure_core.errors import DomainError
from tenure_core.timebase import Clock
from tenure_registry import convert, metrics
from tenure_registry.agent_stream import StreamTerms
from tenure_registry.logs import LogRelay
from tenure_registry.notices import NoNotices, PostgresNotices
from tenure_registry.ports import Notices, Store
from tenure_registry.servicer import PERMISSIONS, SERVICE, RegistryServicer
from tenure_registry.sessions import Sessions
from tenure_registry.settings import RegistrySettings
from tenure_registry.store.memory import MemoryStore
from tenure_registry.store.postgres import SCHEMA, PostgresStore
from tenure_registry.usecases import RegistryUseCases
from tenure_registry.vigil import Vigil
from tenure_runtime.audit.service import keep_trail
from tenure_runtime.audit.servicer import PERMISSIONS as AUDIT_PERMISSIONS
from tenure_runtime.clocks import BootClock, SystemClock
from tenure_runtime.ids import RandomIds
from tenure_runtime.postgres.migrate import migrate, migrations_of
from tenure_runtime.postgres.pool import PoolOptions, observed_pool, open_pool
from tenure_runtime.process import announce, run_loop, running
from tenure_runtime.rpc.draining import Draining
from tenure_runtime.rpc.identity import Keyring
from tenure_runtime.rpc.published_keys import gate_of
from tenure_runtime.rpc.server import RpcServer, ServerOptions
from tenure_runtime.service_info import service_info
from tenure_runtime.telemetry.instruments import observed
from tenure_runtime.telemetry.logging import get_logger

PACKAGE: Final = "tenure_registry"
MESSAGE_BYTES_MAX: Final = 4 * 1024 * 1024
STREAMS_WAITING_MAX: Final = 100_000
"""Thousands of agents reconnect at once; with gRPC's own limit 2-45 % of the streams were lost."""
_UPKEEP_S: Final = 60.0
_SPREAD_MS_AN_AGENT: Final = 2
"""At a stop agents are told to return over so long each: 500 a second."""


@dataclass(frozen=True, slots=True)
class Registry:
    """The parts of one registry, put together but not yet running."""

    store: Store
    sessions: Sessions
    vigil: Vigil
    cases: RegistryUseCases
    servicer: RegistryServicer
    draining: Draining


def build(
    settings: RegistrySettings,
    store: Store,
    notices: Notices,
    draining: Draining,
    *,
    clock: Clock | None = None,
    wall: Clock | None = None,
    ids: RandomIds | None = None,
) -> Registry:
    """Put the parts together over a store; tests pass their own clocks."""
    clock, wall, ids = clock or BootClock(), wall or SystemClock(), ids or RandomIds()
    sessions = Sessions(
        store, notices, clock, ids, settings.instance, gap_ms=settings.timing.suspect_ms
    )
    vigil = Vigil(
        store,
        sessions,
        settings.timing,
        clock=clock,
        wall=wall,
        replica_ms=settings.replica_loss_ms,
        lost=metrics.LOST.add,
    )
    cases = RegistryUseCases(
        store,
        sessions,
        LogRelay(ids),
        clock=clock,
        wall=wall,
        capacity_limits=settings.capacity_limits,
    )
    terms = StreamTerms(
        settings.heartbeat_period_ms, settings.fence_ms, settings.loss_ms, limits=settings.limits
    )
    info = service_info("registry", settings.instance, wall.now_ms(), len(migrations_of(PACKAGE)))
    servicer = RegistryServicer(cases, terms, info, clock, draining)
    return Registry(store, sessions, vigil, cases, servicer, draining)


def memory_registry(settings: RegistrySettings, clock: Clock, wall: Clock) -> Registry:
    """Return a registry that keeps everything in memory, for tests and simulation."""
    store = MemoryStore(wall, convert.lost_report, settings.loss_ms)
    return build(settings, store, NoNotices(), Draining(), clock=clock, wall=wall)


@asynccontextmanager
async def serve(settings: RegistrySettings, keyring: Keyring) -> AsyncIterator[int]:
    """Serve until the block is left, over PostgreSQL; yields the port."""
    draining = Draining()
    options = PoolOptions(settings.database_dsn, SCHEMA, size_max=settings.database_connections)
    pool = await open_pool(options)
    try:
        await migrate(pool, SCHEMA, PACKAGE)
        notices = PostgresNotices(pool, settings.instance)
        store = await PostgresStore.open(pool, draining, convert.lost_report, settings.loss_ms)
        registry = build(settings, store, notices, draining)
        gate, refreshing = gate_of(settings, keyring)
        server = RpcServer(
            ServerOptions(
                "registry",
                settings.listen,
                message_bytes_max=MESSAGE_BYTES_MAX,
                waiting_max=STREAMS_WAITING_MAX,
                tls=settings.tls,
            ),
            keyring=keyring,
            permissions=PERMISSIONS.also(AUDIT_PERMISSIONS),
            draining=draining,
            gate=gate,
        )
        server.add(add_RegistryServiceServicer_to_server, registry.servicer, SERVICE)
        sealing = await keep_trail(server, pool, settings.trail_limits)
        loops = [*_loops(registry, store, notices, settings), sealing, *refreshing]
        with observed_pool(pool), observed(partial(_look, registry.sessions)):
            async with running(loops):
                await registry.vigil.renew()
                port = await server.start()
                address = _address(settings.listen, port)
                announce(settings.ready_file, port=port, address=address)
                get_logger().info("service.listening", address=address)
                try:
                    yield port
                finally:
                    await _stop(registry, server, settings)
    finally:
        await pool.close()


def _look(sessions: Sessions) -> None:
    metrics.SILENCE.set(sessions.longest_silence_ms() / 1_000)


def _address(listen: str, port: int) -> str:
    return f"{listen.rpartition(':')[0]}:{port}"


def _loops(
    registry: Registry, store: PostgresStore, notices: PostgresNotices, settings: RegistrySettings
) -> list[Coroutine[Any, Any, object]]:
    async def stay_awake() -> None:
        while True:
            registry.vigil.stay_awake()
            await asyncio.sleep(settings.fence_ms / 8_000)

    async def forget() -> None:
        await store.forget(settings.retention_ms)

    period_s = min(settings.heartbeat_period_ms, 1_000) / 2_000
    return [
        store.run(),
        notices.run(registry.sessions.hear),
        stay_awake(),
        run_loop("registry.vigil", registry.vigil.run_once, period_s=period_s, longest_wait_s=2),
        run_loop("registry.forget", forget, period_s=_UPKEEP_S),
        _redirect_when_draining(registry, settings),
    ]


async def _redirect_when_draining(registry: Registry, settings: RegistrySettings) -> None:
    """Tell the agents where to go before their streams end."""
    await registry.draining.wait()
    registry.cases.redirect_all(
        # Well within the fence: nobody's work may end because a registry restarts.
        min(len(registry.sessions) * _SPREAD_MS_AN_AGENT, settings.fence_ms // 4)
    )
    await asyncio.sleep(0.1)
    for live in list(registry.sessions):
        if live.link is not None:
            live.link.end(registry.draining.error())
    await asyncio.Event().wait()


async def _stop(registry: Registry, server: RpcServer, settings: RegistrySettings) -> None:
    await server.stop(settings.grace_s)
    # Others may watch our agents at once; their contact counts from when they do.
    with suppress(DomainError, OSError):
        await registry.store.leave_replica(settings.instance)
