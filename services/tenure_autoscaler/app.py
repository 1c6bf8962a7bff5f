"""Puts the autoscaler together: the only place that names its adapters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

from tenure.autoscaler.v1.autoscaler_pb2_grpc import add_AutoscalerServiceServicer_to_server
from tenure_autoscaler.acting import Surroundings
from tenure_autoscaler.clients import NeighbourDemand, WatchedFleet
from tenure_autoscaler.leading import GroupLeader, GroupLeaders
from tenure_autoscaler.neighbours import RegistryApplications, RegistryOccupancy, SlotTableNodes
from tenure_autoscaler.providers.loading import load_provider
from tenure_autoscaler.providers.port import Provider
from tenure_autoscaler.servicer import PERMISSIONS, SERVICE, AutoscalerServicer
from tenure_autoscaler.settings import AutoscalerSettings
from tenure_autoscaler.store.fleet_postgres import PostgresFleetStore
from tenure_autoscaler.store.postgres import SCHEMA, PostgresStore
from tenure_autoscaler.usecases import Groups, Observing
from tenure_autoscaler.values import Group, GroupKind
from tenure_runtime.audit.service import keep_trail
from tenure_runtime.audit.servicer import PERMISSIONS as AUDIT_PERMISSIONS
from tenure_runtime.clocks import SystemClock
from tenure_runtime.election.choosing import choose_elector
from tenure_runtime.postgres.migrate import migrate, migrations_of
from tenure_runtime.postgres.pool import PoolOptions, observed_pool, open_pool
from tenure_runtime.process import announce, run_loop, running
from tenure_runtime.rpc.client import Client, connect
from tenure_runtime.rpc.draining import Draining
from tenure_runtime.rpc.identity import Keyring
from tenure_runtime.rpc.published_keys import gate_of
from tenure_runtime.rpc.server import RpcServer, ServerOptions
from tenure_runtime.service_info import service_info
from tenure_runtime.telemetry.logging import get_logger

PACKAGE: Final = "tenure_autoscaler"
_UPKEEP_S: Final = 600.0
Load = Callable[[str, AutoscalerSettings], Provider | None]


@asynccontextmanager
async def serve(
    settings: AutoscalerSettings, keyring: Keyring, *, load: Load = load_provider
) -> AsyncIterator[int]:
    """Serve until the block is left; yields the port. `load` finds providers by name."""
    clock, draining = SystemClock(), Draining()
    async with AsyncExitStack() as stack:
        pool = await open_pool(PoolOptions(settings.database_dsn, SCHEMA, size_max=6))
        stack.push_async_callback(pool.close)
        stack.enter_context(observed_pool(pool))
        await migrate(pool, SCHEMA, PACKAGE)
        store = await PostgresStore.open(pool, draining)
        gate, refreshing = gate_of(settings, keyring)
        server = RpcServer(
            ServerOptions("autoscaler", settings.listen, tls=settings.tls),
            keyring=keyring,
            permissions=PERMISSIONS.also(AUDIT_PERMISSIONS),
            draining=draining,
            gate=gate,
        )
        info = service_info(
            "autoscaler", settings.instance, clock.now_ms(), len(migrations_of(PACKAGE))
        )
        servicer = AutoscalerServicer(Groups(store), store, clock, info)
        server.add(add_AutoscalerServiceServicer_to_server, servicer, SERVICE)
        book = PostgresFleetStore(pool)
        loops = await _loops(settings, store, book, stack, load)
        loops = [*loops, *refreshing, await keep_trail(server, pool, settings.trail_limits)]
        await stack.enter_async_context(running(loops))
        port = await server.start()
        address = f"{settings.listen.rpartition(':')[0]}:{port}"
        announce(settings.ready_file, port=port, address=address)
        get_logger().info("service.listening", address=address)
        try:
            yield port
        finally:
            await server.stop(settings.grace_s)


async def _loops(
    settings: AutoscalerSettings,
    store: PostgresStore,
    book: PostgresFleetStore,
    stack: AsyncExitStack,
    load: Load,
) -> list[Coroutine[Any, Any, object]]:
    async def neighbour(address: str | None) -> Client | None:
        if address is None:
            return None
        client = connect(address, api_key=settings.api_key, tls=settings.tls)
        return await stack.enter_async_context(client)

    async def forget() -> None:
        await store.forget(settings.retention_ms)

    loops: list[Coroutine[Any, Any, object]] = [
        store.run(),
        run_loop("autoscaler.forget", forget, period_s=_UPKEEP_S),
    ]
    registry = await neighbour(settings.registry_address)
    if registry is not None:
        wake = asyncio.Event()
        acting: list[GroupLeaders] = []

        def changed() -> None:
            wake.set()
            for leaders in acting:
                leaders.wake()

        fleet = WatchedFleet(registry, changed)
        slottable = await neighbour(settings.slottable_address)
        demand = NeighbourDemand(await neighbour(settings.scheduler_address), slottable)
        observing = Observing(
            store, book, fleet, demand, SystemClock(), period_ms=int(settings.decide_period_s * 900)
        )
        if slottable is not None:
            around = Surroundings(
                store, book, fleet, demand, SlotTableNodes(slottable),
                RegistryOccupancy(registry), RegistryApplications(registry), SystemClock(),
                settings.owner_mark,
            )  # fmt: skip
            loops.append(_acting(settings, around, acting, load))
        loops += [
            fleet.run(),
            run_loop(
                "autoscaler.observe",
                observing.run_once,
                period_s=settings.decide_period_s,
                wake=wake,
            ),
        ]
    return loops


async def _acting(
    settings: AutoscalerSettings, around: Surroundings, running: list[GroupLeaders], load: Load
) -> None:
    """Act for the groups that have a provider, until cancelled."""
    elector = choose_elector(settings)
    providers: dict[str, Provider] = {}

    def make(group: Group) -> GroupLeader | None:
        provider = providers.get(group.provider)
        if provider is None:
            why = "nobody offers it"
            try:
                provider = load(group.provider, settings)
            except ValueError as error:
                why = str(error)
            if provider is None:
                get_logger().warning("provider.unknown", provider=group.provider, why=why)
                return None
            providers[group.provider] = provider
        return GroupLeader(
            group.group, provider, around, elector,
            holder=settings.instance, period_s=settings.decide_period_s,
            elastic=group.kind is GroupKind.ELASTIC,
        )  # fmt: skip

    try:
        async with asyncio.TaskGroup() as tasks:
            leaders = GroupLeaders(around, tasks, make)
            running.append(leaders)
            await run_loop("autoscaler.groups", leaders.refresh, period_s=settings.decide_period_s)
    finally:
        await elector.close()
