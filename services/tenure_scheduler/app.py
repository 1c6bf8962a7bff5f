"""Puts the scheduler together: the only place that knows its concrete parts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from tenure.scheduler.v1.scheduler_pb2_grpc import add_SchedulerServiceServicer_to_server
from tenure_runtime.audit.service import keep_trail
from tenure_runtime.audit.servicer import PERMISSIONS as AUDIT_PERMISSIONS
from tenure_runtime.clocks import BootClock, SystemClock
from tenure_runtime.election.choosing import choose_elector
from tenure_runtime.postgres import idempotency
from tenure_runtime.postgres.migrate import migrate, migrations_of
from tenure_runtime.postgres.pool import PoolOptions, observed_pool, open_pool
from tenure_runtime.postgres.transaction import run
from tenure_runtime.process import announce, run_loop, running
from tenure_runtime.rpc.client import connect
from tenure_runtime.rpc.draining import Draining
from tenure_runtime.rpc.identity import Keyring
from tenure_runtime.rpc.published_keys import gate_of
from tenure_runtime.rpc.server import RpcServer, ServerOptions
from tenure_runtime.service_info import service_info
from tenure_runtime.telemetry.instruments import observed
from tenure_scheduler.clients.admission import AdmissionClient
from tenure_scheduler.clients.registry import RegistryClient
from tenure_scheduler.clients.slottable import SlottableClient
from tenure_scheduler.leader import PoolLeader
from tenure_scheduler.observing import observe
from tenure_scheduler.ports import Neighbours
from tenure_scheduler.replicas import ReplicaLeaders
from tenure_scheduler.servicer import PERMISSIONS, SERVICE, SchedulerServicer
from tenure_scheduler.settings import SchedulerSettings
from tenure_scheduler.store.postgres import PostgresPoolStore
from tenure_scheduler.store.usage import PostgresUsage
from tenure_scheduler.usecases import SchedulerUseCases, is_cordoned, policies_of

SCHEMA: Final = "scheduler"
PACKAGE: Final = "tenure_scheduler"


@asynccontextmanager
async def app(settings: SchedulerSettings) -> AsyncIterator[None]:
    """Serve and run for leaderships until left."""
    assert settings.keyring_file is not None, "TENURE_KEYRING_FILE says who may call"
    async with AsyncExitStack() as stack:
        database = await open_pool(PoolOptions(settings.database_dsn, SCHEMA, size_max=4))
        stack.push_async_callback(database.close)
        stack.enter_context(observed_pool(database))
        await migrate(database, SCHEMA, PACKAGE)
        store, usage = PostgresPoolStore(database), PostgresUsage(database)
        elector = choose_elector(settings)
        stack.push_async_callback(elector.close)
        neighbours = await _neighbours(settings, stack)
        draining = Draining()
        keyring = Keyring.load(settings.keyring_file)
        gate, refreshing_keys = gate_of(settings, keyring)
        await stack.enter_async_context(running(refreshing_keys))
        server = RpcServer(
            ServerOptions("scheduler", settings.listen, tls=settings.tls),
            keyring=keyring,
            permissions=PERMISSIONS.also(AUDIT_PERMISSIONS),
            draining=draining,
            gate=gate,
        )
        loops = await stack.enter_async_context(asyncio.TaskGroup())
        address = ""

        def make(pool: str) -> PoolLeader:
            return PoolLeader(
                pool,
                holder=settings.instance,
                address=f"{settings.instance}@{address}",
                elector=elector,
                neighbours=neighbours,
                usage=usage,
                policies=lambda: policies_of(leaders.now(), pool),
                cordoned=lambda: is_cordoned(leaders.now(), pool),
                boot=BootClock(),
            )

        leaders = ReplicaLeaders(store, elector, election=settings.election, group=loops, make=make)
        info = service_info(
            "scheduler", settings.instance, SystemClock().now_ms(), len(migrations_of(PACKAGE))
        )
        usecases = SchedulerUseCases(store, leaders, _in_use(neighbours))
        servicer = SchedulerServicer(usecases, info, SystemClock(), draining)
        server.add(add_SchedulerServiceServicer_to_server, servicer, SERVICE)
        sealing = loops.create_task(await keep_trail(server, database, settings.trail_limits))
        forgetting = loops.create_task(
            run_loop(
                "scheduler.requests", lambda: run(database, idempotency.forget_old), period_s=600
            )
        )
        port = await server.start()
        address = f"{settings.listen.rpartition(':')[0]}:{port}"
        await leaders.refresh()
        stack.enter_context(observed(lambda: observe(leaders.all())))
        refreshing = loops.create_task(
            run_loop("scheduler.pools", leaders.refresh, period_s=settings.pools_period_s)
        )
        announce(settings.ready_file, port=port, election=settings.election)
        try:
            yield
        finally:
            refreshing.cancel()
            sealing.cancel()
            forgetting.cancel()
            await leaders.close()
            await server.stop(settings.grace_s)


async def _neighbours(settings: SchedulerSettings, stack: AsyncExitStack) -> Neighbours:
    clients = [
        await stack.enter_async_context(
            connect(address, api_key=settings.api_key, tls=settings.tls)
        )
        for address in (
            settings.admission_address,
            settings.slottable_address,
            settings.registry_address,
        )
    ]
    return Neighbours(
        AdmissionClient(clients[0]), SlottableClient(clients[1]), RegistryClient(clients[2])
    )


def _in_use(neighbours: Neighbours) -> Callable[[str], Awaitable[bool]]:
    async def in_use(pool: str) -> bool:
        table = await neighbours.slots.state(pool)
        held, _ = await neighbours.leases.held(pool)
        return bool(table.nodes or held)

    return in_use
