"""The scheduler over gRPC on real neighbours, its pools in memory and in PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from tests.support.control_plane import ControlPlane, control_plane, scheduler_service
from tests.support.databases import open_test_pool
from tests.support.servers import Served
from tests.support.suite import until

from tenure.scheduler.v1 import scheduler_pb2 as spb
from tenure.scheduler.v1.scheduler_pb2_grpc import SchedulerServiceStub
from tenure_core.errors import Unavailable
from tenure_runtime.election.fixed import FixedElector, Seats
from tenure_runtime.postgres.migrate import migrate
from tenure_scheduler.ports import PoolStore
from tenure_scheduler.store.memory import MemoryPoolStore
from tenure_scheduler.store.postgres import PostgresPoolStore


@asynccontextmanager
async def stored_in(kind: str, request: pytest.FixtureRequest) -> AsyncIterator[PoolStore]:
    if kind == "memory":
        yield MemoryPoolStore()
        return
    pool = await open_test_pool(request.getfixturevalue("database_dsn"), "scheduler")
    try:
        await migrate(pool, "scheduler", "tenure_scheduler")
        yield PostgresPoolStore(pool)
    finally:
        await pool.close()


@pytest.fixture(params=["memory", pytest.param("postgres", marks=pytest.mark.postgres)])
def store_kind(request: pytest.FixtureRequest) -> str:
    """Each test runs on both stores."""
    kind: str = request.param
    if kind == "postgres":
        # Fetched here: an asynchronous fixture cannot be asked for while a loop runs.
        request.getfixturevalue("database_dsn")
    return kind


@pytest.fixture
async def store(store_kind: str, request: pytest.FixtureRequest) -> AsyncIterator[PoolStore]:
    async with stored_in(store_kind, request) as store:
        yield store


class Scheduler:
    """A control plane with one or more replicas of the scheduler."""

    def __init__(self, plane: ControlPlane, store: PoolStore, stack: AsyncExitStack) -> None:
        self.plane = plane
        self.store = store
        self.seats = Seats()
        self._stack = stack
        self._served: dict[str, Served] = {}

    async def start(self, replica: str = "s1") -> None:
        """Start a replica."""
        serving = scheduler_service(self.plane, self.store, FixedElector(self.seats), replica)
        self._served[replica] = await self._stack.enter_async_context(serving)

    async def call(self, request: Any, *, caller: str = "ops", replica: str = "s1") -> Any:
        """Make the call that the request is named for."""
        client = await self._served[replica].client(caller)
        method = type(request).__name__.removesuffix("Request")
        stub = SchedulerServiceStub(client.channel)
        return await client.call(getattr(stub, method), request, retry=False)

    async def stub(self, caller: str = "ops", replica: str = "s1") -> tuple[Any, Any]:
        """Return a client and its stub."""
        client = await self._served[replica].client(caller)
        return client, SchedulerServiceStub(client.channel)

    async def leads(self, pool: str = "default", replica: str = "s1") -> None:
        """Wait until a replica leads a pool."""

        async def leads() -> bool:
            try:
                await self.call(spb.GetQueueRequest(pool=pool), replica=replica)
            except Unavailable:
                return False
            return True

        await until(leads, 10.0, f"{replica} leads {pool}")


@pytest.fixture
async def scheduler(store: PoolStore) -> AsyncIterator[Scheduler]:
    """One replica runs and leads the pool `default`."""
    async with AsyncExitStack() as stack:
        plane = await stack.enter_async_context(control_plane())
        scheduler = Scheduler(plane, store, stack)
        await scheduler.start()
        await scheduler.leads()
        yield scheduler
