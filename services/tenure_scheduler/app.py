"""Puts the scheduler together: the only place that knows its concrete parts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from tenure.scheduler.v1.scheduler_pb2_grpc import add_SchedulerServiceServicer_to_server
from tenure_runtime.clocks import BootClock, SystemClock
from tenure_runtime.election.elector import Elector
from tenure_runtime.election.etcd import EtcdElector
from tenure_runtime.election.etcd_connection import EtcdSettings
from tenure_runtime.election.row import RowElector
from tenure_runtime.postgres.migrate import migrate, migrations_of
from tenure_runtime.postgres.pool import PoolOptions, open_pool
from tenure_runtime.process import announce, run_loop
from tenure_runtime.rpc.client import connect
from tenure_runtime.rpc.draining import Draining
from tenure_runtime.rpc.identity import Keyring
from tenure_runtime.rpc.server import RpcServer, ServerOptions
from tenure_runtime.service_info import service_info
from tenure_scheduler.clients.admission import AdmissionClient
from tenure_scheduler.clients.registry import RegistryClient
from tenure_scheduler.clients.slottable import SlottableClient
from tenure_scheduler.leader import PoolLeader
from tenure_scheduler.ports import Neighbours
from tenure_scheduler.replicas import ReplicaLeaders
from tenure_scheduler.servicer import PERMISSIONS, SERVICE, SchedulerServicer
from tenure_scheduler.settings import SchedulerSettings
from tenure_scheduler.store.postgres import PostgresPoolStore
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
        await migrate(database, SCHEMA, PACKAGE)
        store = PostgresPoolStore(database)
        elector, election = _elector(settings)
        stack.push_async_callback(elector.close)
        neighbours = await _neighbours(settings, stack)
        draining = Draining()
        server = RpcServer(
            ServerOptions("scheduler", settings.listen, tls=settings.tls),
            keyring=Keyring.load(settings.keyring_file),
            permissions=PERMISSIONS,
            draining=draining,
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
                policies=lambda: policies_of(leaders.now(), pool),
                cordoned=lambda: is_cordoned(leaders.now(), pool),
                boot=BootClock(),
            )

        leaders = ReplicaLeaders(store, elector, election=election, group=loops, make=make)
        info = service_info(
            "scheduler", settings.instance, SystemClock().now_ms(), len(migrations_of(PACKAGE))
        )
        usecases = SchedulerUseCases(store, leaders, _in_use(neighbours))
        servicer = SchedulerServicer(usecases, info, SystemClock(), draining)
        server.add(add_SchedulerServiceServicer_to_server, servicer, SERVICE)
        port = await server.start()
        address = f"{settings.listen.rpartition(':')[0]}:{port}"
        await leaders.refresh()
        refreshing = loops.create_task(
            run_loop("scheduler.pools", leaders.refresh, period_s=settings.pools_period_s)
        )
        announce(settings.ready_file, port=port, election=election)
        try:
            yield
        finally:
            refreshing.cancel()
            await leaders.close()
            await server.stop(settings.grace_s)


def _elector(settings: SchedulerSettings) -> tuple[Elector, str]:
    if not settings.etcd_endpoints:
        return RowElector(settings.database_dsn, ttl_s=settings.election_ttl_s), "row"
    etcd = EtcdSettings(
        tuple(settings.etcd_endpoints.split(",")),
        ca=_bytes(settings.etcd_ca),
        certificate=_bytes(settings.etcd_certificate),
        private_key=_bytes(settings.etcd_private_key),
        user=settings.etcd_user,
        password=settings.etcd_password,
    )
    return EtcdElector(etcd, ttl_s=settings.election_ttl_s), "etcd"


def _bytes(path: Path | None) -> bytes | None:
    return None if path is None else path.read_bytes()


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
