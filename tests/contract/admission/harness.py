"""Starts admission for contract tests, and says the common things to it in one line."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support.databases import open_test_pool
from tests.support.servers import Served, serving

from tenure.admission.v1 import admission_pb2 as calls
from tenure.admission.v1 import lease_pb2 as pb
from tenure.admission.v1 import quota_pb2 as qpb
from tenure.admission.v1.admission_pb2_grpc import (
    AdmissionServiceStub,
    add_AdmissionServiceServicer_to_server,
)
from tenure.admission.v1.identity_pb2_grpc import (
    IdentityServiceStub,
    add_IdentityServiceServicer_to_server,
)
from tenure_admission import app, servicer_identity
from tenure_admission.oidc import OidcSettings
from tenure_admission.pool_view import NodeView, PoolView
from tenure_admission.ports import Outlook
from tenure_admission.records import Limit
from tenure_admission.servicer import PERMISSIONS, SERVICE
from tenure_admission.signing import Signing
from tenure_admission.store.memory import MemoryStore
from tenure_admission.store.postgres import PostgresStore
from tenure_core.admission.remedies import Terms
from tenure_core.leases.lease import Lease, LeaseSpec
from tenure_core.timebase import Millis
from tenure_runtime.ids import RandomIds
from tenure_runtime.postgres.migrate import migrate
from tenure_runtime.rpc.client import Client
from tenure_runtime.rpc.draining import Draining
from tenure_runtime.rpc.gate import Gate, Verifier
from tenure_runtime.rpc.identity import Keyring
from tenure_runtime.rpc.key_sets import KeySet
from tenure_runtime.sealing import SecretKeys
from tenure_runtime.service_info import service_info

State = pb.Lease.State


class TestClock:
    """The wall clock, moved by tests."""

    __test__ = False

    def __init__(self) -> None:
        from tenure_runtime.clocks import SystemClock

        self._base = SystemClock()
        self.ahead_ms = 0

    def now_ms(self) -> Millis:
        return self._base.now_ms() + self.ahead_ms


@dataclass
class TestPools:
    """What is known of the pools, as a test says."""

    __test__ = False

    names: frozenset[str] | None = None
    known: dict[str, PoolView] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)

    def exists(self, pool: str) -> bool | None:
        if pool in self.known:
            return True
        return None if self.names is None else pool in self.names

    def view(self, pool: str) -> PoolView | None:
        return self.known.get(pool)

    def views(self) -> dict[str, PoolView]:
        return self.known

    def cordoned(self, pool: str) -> bool:
        return pool in self.closed

    def put(self, pool: str, *nodes: NodeView) -> None:
        self.known[pool] = PoolView(tuple(nodes))


class TestDesk:
    """Leaders that answer as a test says."""

    __test__ = False

    def __init__(self) -> None:
        self.asked: list[Terms | None] = []
        self.own: Outlook | None = None
        self.others: dict[str, int | None] = {}

    async def outlook(self, lease: Lease, most: Terms | None) -> Outlook | None:
        self.asked.append(most)
        return self.own

    async def starts_elsewhere(self, spec: LeaseSpec) -> dict[str, int | None]:
        return self.others


class Caller:
    """One caller of the service, by role."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.stub: Any = AdmissionServiceStub(client.channel)
        self.identity: Any = IdentityServiceStub(client.channel)

    async def __call__(self, request: Any, **options: Any) -> Any:
        """Call the method that the request is named for."""
        name = type(request).__name__.removesuffix("Request")
        stub = self.stub if hasattr(self.stub, name) else self.identity
        method = getattr(stub, name)
        return await self.client.call(method, request, **options)

    async def create(self, lease: pb.Lease | None = None, **fields: Any) -> pb.Lease:
        """Create a lease and return it."""
        request = calls.CreateLeaseRequest(lease=lease or a_lease(), **fields)
        response: calls.CreateLeaseResponse = await self(request)
        return response.lease

    async def get(self, lease: pb.Lease | str) -> pb.Lease:
        """Return the lease as it is now."""
        name = lease if isinstance(lease, str) else lease.name
        response: calls.GetLeaseResponse = await self(calls.GetLeaseRequest(name=name))
        return response.lease


@dataclass
class Admission:
    """A running admission and what tests need of its inside."""

    served: Served
    store: Any
    clock: TestClock
    pools: TestPools
    draining: Draining
    desk: TestDesk
    signing: Signing
    refresh_keys: Callable[[], Awaitable[None]]
    key_sets: tuple[KeySet, ...]

    async def caller(self, role: str = "user", **options: Any) -> Caller:
        return Caller(await self.served.client(role, **options))

    async def bearer(self, credential: str, **options: Any) -> Caller:
        """Return a caller that shows the credential."""
        return Caller(await self.served.bearer(credential, **options))


@asynccontextmanager
async def running(
    store: Any,
    draining: Draining,
    like: Served | None = None,
    gate: Callable[[Keyring, Sequence[Verifier]], Gate] = Gate,
    oidc: OidcSettings | None = None,
) -> AsyncIterator[Admission]:
    """Serve admission over a store."""
    clock, pools, desk = TestClock(), TestPools(), TestDesk()
    info = service_info("admission", "test", clock.now_ms(), 1)
    parts = app.build(
        store,
        pools,
        clock,
        info,
        gates=pools,
        desk=desk,
        oidc=oidc,
        secret_keys=SecretKeys.made(),
    )
    await parts.signing.run_once()
    async with asyncio.TaskGroup() as loops:
        tasks = [loops.create_task(store.run()), loops.create_task(parts.waiting.run())]
        async with serving(
            add_AdmissionServiceServicer_to_server,
            parts.servicer,
            SERVICE,
            permissions=PERMISSIONS.also(servicer_identity.PERMISSIONS),
            draining=draining,
            like=like,
            also=[
                (
                    add_IdentityServiceServicer_to_server,
                    parts.identity,
                    servicer_identity.SERVICE,
                )
            ],
            gate=lambda keyring: gate(keyring, parts.verifiers),
        ) as served:
            yield Admission(
                served,
                store,
                clock,
                pools,
                draining,
                desk,
                parts.signing,
                parts.refresh_keys,
                parts.key_sets,
            )
        for task in tasks:
            task.cancel()


@asynccontextmanager
async def on_postgres(dsn: str, like: Served | None = None) -> AsyncIterator[Admission]:
    """Serve admission on a PostgreSQL database."""
    pool = await open_test_pool(dsn, app.SCHEMA)
    await migrate(pool, app.SCHEMA, app.PACKAGE)
    draining = Draining()
    try:
        async with running(await PostgresStore.open(pool, draining), draining, like) as started:
            yield started
    finally:
        await pool.close()


@asynccontextmanager
async def in_memory() -> AsyncIterator[Admission]:
    """Serve admission on the memory store."""
    draining = Draining()
    async with running(MemoryStore(draining), draining) as started:
        yield started


async def limited(admission: Admission, *limits: Limit) -> None:
    """Set a quota for each limit, as an operator."""
    operator = await admission.caller("operator")
    for number, limit in enumerate(limits):
        quota = qpb.Quota(name=f"quotas/q{number}", limits={limit.resource: limit.amount})
        setattr(quota, limit.dimension, limit.name)
        await operator(calls.SetQuotaRequest(quota=quota))


def a_lease(**fields: Any) -> pb.Lease:
    """Return a small valid best-effort lease with some fields of its own."""
    lease = pb.Lease(
        **{
            "terms": pb.Terms(best_effort=pb.BestEffortTerms()),
            "node_count": 1,
            "amounts": {"cpu": 1_000},
            **fields,
        }
    )
    if not lease.HasField("duration"):
        lease.duration.FromSeconds(60)
    return lease


def request_id() -> str:
    return RandomIds().request_id()


def transition(
    lease: pb.Lease, state: State.ValueType, *, version: int = 1, **fields: Any
) -> calls.TransitionRequest:
    """Return a transition of the lease; its id is made from epoch 1, lease and version."""
    return calls.TransitionRequest(
        transition_id=f"1.{lease.name.removeprefix('leases/')}.{version}",
        lease=lease.name,
        version=version,
        state=state,
        **fields,
    )


def charged(
    asked: calls.TransitionRequest, seconds: int, *, start_s: int = 2_000_000_000
) -> calls.TransitionRequest:
    """Return the transition with a span to charge."""
    asked.charge_interval.start_time.FromSeconds(start_s)
    asked.charge_interval.end_time.FromSeconds(start_s + seconds)
    return asked


async def record(
    leader: Caller, *steps: calls.TransitionRequest, epoch: int = 1, pool: str = "default"
) -> list[calls.TransitionVerdict]:
    """Record transitions and return their verdicts."""
    answer = await leader(
        calls.RecordTransitionsRequest(scope=f"pool/{pool}", epoch=epoch, transitions=steps)
    )
    return list(answer.verdicts)
