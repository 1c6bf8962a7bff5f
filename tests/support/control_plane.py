"""Admission, slottable and registry as real servers in one process, for a scheduler under test.

They keep everything in memory (their stores pass the same contracts as PostgreSQL's) and speak
gRPC. Agents are scripted: they obey at once and end work when the test says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from tests.support.fake_agent import FakeAgent, connected
from tests.support.owner import Owner
from tests.support.servers import Served, serving
from tests.support.suite import until

from tenure.admission.v1 import admission_pb2_grpc as agrpc
from tenure.admission.v1 import lease_pb2 as lpb
from tenure.registry.v1 import agent_pb2
from tenure.registry.v1 import registry_pb2_grpc as rgrpc
from tenure.scheduler.v1 import scheduler_pb2_grpc as cgrpc
from tenure.slottable.v1 import slottable_pb2 as spb
from tenure.slottable.v1 import slottable_pb2_grpc as sgrpc
from tenure_admission import app as admission_app
from tenure_admission import servicer as admission_servicer
from tenure_admission.store.memory import MemoryStore as AdmissionStore
from tenure_core.policies.bundle import Policies
from tenure_registry import app as registry_app
from tenure_registry import servicer as registry_servicer
from tenure_registry.settings import RegistrySettings
from tenure_runtime.clocks import BootClock, SystemClock
from tenure_runtime.election.elector import Elector
from tenure_runtime.election.fixed import FixedElector
from tenure_runtime.process import run_loop
from tenure_runtime.rpc.client import Client
from tenure_runtime.rpc.draining import Draining
from tenure_runtime.rpc.identity import Keyring, Role, create_key
from tenure_runtime.rpc.wire import bare
from tenure_runtime.service_info import service_info
from tenure_scheduler import servicer as scheduler_servicer
from tenure_scheduler.clients.admission import AdmissionClient
from tenure_scheduler.clients.registry import RegistryClient
from tenure_scheduler.clients.slottable import SlottableClient
from tenure_scheduler.leader import PoolLeader
from tenure_scheduler.ports import Neighbours, PoolStore
from tenure_scheduler.replicas import ReplicaLeaders
from tenure_scheduler.servicer import SchedulerServicer
from tenure_scheduler.store.usage import MemoryUsage
from tenure_scheduler.usecases import SchedulerUseCases, is_cordoned, policies_of
from tenure_slottable import servicer as slottable_servicer
from tenure_slottable.store.memory import MemoryStore as SlotStore
from tenure_slottable.usecases import SlotTableUseCases

AGENTS: Final = ("a1", "a2")
POOL: Final = "default"
CAPACITY: Final = {"cpu": 4_000, "memory": 8 * 2**30}
BEAT_S: Final = 0.3


class AnyPool:
    """Takes every pool to exist and knows nothing of its size."""

    def exists(self, pool: str) -> bool | None:
        return None

    def view(self, pool: str) -> None:
        return None

    def views(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True)
class Keys:
    """API keys by name, and the keyring that knows them."""

    keys: dict[str, str]
    keyring: Keyring


def make_keys() -> Keys:
    """Return keys for a scheduler, an operator, a user and the agents."""
    roles = {
        "svc": {Role.SERVICE},
        "ops": {Role.OPERATOR, Role.USER},
        "ann": {Role.USER},
        **{agent: {Role.AGENT} for agent in AGENTS},
    }
    keys, entries = {}, []
    for name, role in roles.items():
        keys[name], entry = create_key(name, role)
        entries.append(entry)
    return Keys(keys, Keyring(entries))


class ObedientAgent:
    """An agent that starts, suspends, resumes and stops at once whatever it is told to."""

    def __init__(self, link: FakeAgent) -> None:
        self._link = link
        self._writing = asyncio.Lock()
        self.commands: list[str] = []
        self.running: dict[str, agent_pb2.Command] = {}
        self.obeys = True
        self.refuses: list[str] = []
        """Kinds of commands that it refuses, once each."""

    async def live(self) -> None:
        """Beat and obey until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._beat())
            group.create_task(self._obey())

    async def end(self, lease: str, exit_code: int = 0) -> None:
        """Have all slots of a lease here end by themselves."""
        for command_id, command in list(self.running.items()):
            if bare(command.lease) == lease:
                del self.running[command_id]
                await self._report(command, "ENDED", exit_code=exit_code, reason="EXITED")

    async def _beat(self) -> None:
        while True:
            async with self._writing:
                await self._link.beat()
            await asyncio.sleep(BEAT_S)

    async def _obey(self) -> None:
        while True:
            command = (await self._link.next("command", timeout_s=3_600)).command
            kind = command.WhichOneof("kind")
            if kind in self.refuses:
                self.refuses.remove(kind)
                await self._report(command, "REFUSED", reason="STALE_EPOCH")
                continue
            known = command.command_id in self.commands
            self.commands.append(command.command_id)
            if known or not self.obeys:
                continue
            match kind:
                case "start":
                    self.running[command.command_id] = command
                    await self._report(command, "STARTED")
                case "suspend":
                    await self._report(command, "SUSPENDED")
                case "resume":
                    await self._report(command, "RESUMED")
                case "stop":
                    self._forget(command)
                    await self._report(command, "ENDED", exit_code=143, reason="STOPPED")
                case _:
                    await self._report(command, "PREPARED")

    def _forget(self, stop: agent_pb2.Command) -> None:
        for command_id, command in list(self.running.items()):
            if (command.lease, command.attempt, command.rank) == (
                stop.lease,
                stop.attempt,
                stop.rank,
            ):
                del self.running[command_id]

    async def _report(self, command: agent_pb2.Command, kind: str, **fields: Any) -> None:
        report = self._link.about(command, kind, **fields)
        async with self._writing:
            await self._link.send(report_batch=_batch(report))


def _batch(report: agent_pb2.Report) -> Any:
    from tenure.registry.v1 import registry_pb2

    return registry_pb2.ReportBatch(reports=[report])


class ControlPlane:
    """The three neighbours of a scheduler, running."""

    def __init__(self, keys: Keys, stack: AsyncExitStack, servers: dict[str, Served]) -> None:
        self.keys = keys
        self._stack = stack
        self._servers = servers
        self._clients: dict[tuple[str, str], Client] = {}

    async def client(self, service: str, caller: str = "svc") -> Client:
        """Return the client of a caller at a service."""
        if (service, caller) not in self._clients:
            client = await self._servers[service].client(caller)
            self._clients[service, caller] = client
        return self._clients[service, caller]

    async def neighbours(self) -> Neighbours:
        """Return the services as a leader uses them."""
        return Neighbours(
            AdmissionClient(await self.client("admission")),
            SlottableClient(await self.client("slottable")),
            RegistryClient(await self.client("registry")),
        )

    @asynccontextmanager
    async def agent(self, name: str = "a1", pool: str = POOL) -> AsyncIterator[ObedientAgent]:
        """Connect an agent that obeys, for the length of a block."""
        async with connected(await self.client("registry", name), name) as link:
            await link.hello(pool=pool, capacity=CAPACITY, suspended_keeps=["memory"])
            agent = ObedientAgent(link)
            task = asyncio.create_task(agent.live())
            try:
                yield agent
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def owner(self, caller: str = "ann") -> Owner:
        """Return an owner of leases."""
        return Owner(await self.client("admission", caller))

    async def submit(self, name: str, **fields: Any) -> lpb.Lease:
        """Create a lease as Ann."""
        return await (await self.owner()).submit(name, **fields)

    async def cancel(self, name: str) -> lpb.Lease:
        """Cancel a lease as Ann."""
        return await (await self.owner()).cancel(name)

    async def lease(self, name: str) -> lpb.Lease:
        """Return a lease as it is now."""
        return await (await self.owner("ops")).lease(name)

    async def leases(self) -> list[lpb.Lease]:
        """Return all leases, by name."""
        return await (await self.owner("ops")).leases()

    async def until_state(self, name: str, state: str, within_s: float = 15.0) -> lpb.Lease:
        """Wait until a lease is in a state (`active`) and return it."""
        return await (await self.owner("ops")).until_state(name, state, within_s)

    async def rows(self) -> list[Any]:
        """Return all reservations, by name."""
        client = await self.client("slottable", "ops")
        stub = sgrpc.SlotTableServiceStub(client.channel)
        request = spb.ListReservationsRequest(page_size=1_000)
        return list((await client.call(stub.ListReservations, request)).reservations)

    async def until_booked(self, count: int) -> list[Any]:
        """Wait until there are so many reservations, which come after the charge; return them."""

        async def are_there() -> bool:
            return len(await self.rows()) == count

        await until(are_there, 10.0, f"{count} reservations are there")
        return await self.rows()

    async def nodes(self) -> list[Any]:
        """Return all nodes, by name."""
        client = await self.client("slottable", "ops")
        stub = sgrpc.SlotTableServiceStub(client.channel)
        return list((await client.call(stub.ListNodes, spb.ListNodesRequest())).nodes)


@asynccontextmanager
async def control_plane(**registry: Any) -> AsyncIterator[ControlPlane]:
    """Run the three services; `registry` are settings of the registry."""
    keys = make_keys()
    async with AsyncExitStack() as stack:
        loops = await stack.enter_async_context(_loops())
        servers = {
            "admission": await _admission(stack, loops, keys),
            "slottable": await _slottable(stack, keys),
            "registry": await _registry(stack, loops, keys, registry),
        }
        yield ControlPlane(keys, stack, servers)


class _Loops:
    """Tasks that are cancelled at the end."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self.tasks: list[asyncio.Task[Any]] = []

    def add(self, coroutine: Any) -> None:
        self.tasks.append(self._group.create_task(coroutine))


@asynccontextmanager
async def _loops() -> AsyncIterator[_Loops]:
    async with asyncio.TaskGroup() as group:
        loops = _Loops(group)
        try:
            yield loops
        finally:
            for task in loops.tasks:
                task.cancel()


async def _admission(stack: AsyncExitStack, loops: _Loops, keys: Keys) -> Served:
    draining, clock = Draining(), SystemClock()
    store = AdmissionStore(draining)
    info = service_info("admission", "test", clock.now_ms(), 1)
    parts = admission_app.build(store, AnyPool(), clock, info)
    loops.add(store.run())
    loops.add(parts.waiting.run())
    return await stack.enter_async_context(
        serving(
            agrpc.add_AdmissionServiceServicer_to_server,
            parts.servicer,
            admission_servicer.SERVICE,
            permissions=admission_servicer.PERMISSIONS,
            draining=draining,
            like=keys,
        )
    )


async def _slottable(stack: AsyncExitStack, keys: Keys) -> Served:
    clock = SystemClock()
    servicer = slottable_servicer.SlotTableServicer(
        SlotTableUseCases(SlotStore(clock)), service_info("slottable", "test", clock.now_ms(), 1)
    )
    return await stack.enter_async_context(
        serving(
            sgrpc.add_SlotTableServiceServicer_to_server,
            servicer,
            slottable_servicer.SERVICE,
            permissions=slottable_servicer.PERMISSIONS,
            like=keys,
        )
    )


async def _registry(
    stack: AsyncExitStack, loops: _Loops, keys: Keys, given: dict[str, Any]
) -> Served:
    from pathlib import Path

    settings = RegistrySettings(
        keyring_file=Path("/dev/null"),
        database_dsn="",
        instance="r1",
        **{"heartbeat_period_ms": 300, "fence_ms": 4_000, "loss_ms": 6_000, **given},
    )
    registry = registry_app.memory_registry(settings, BootClock(), SystemClock())

    async def stay_awake() -> None:
        while True:
            registry.vigil.stay_awake()
            await asyncio.sleep(0.1)

    loops.add(stay_awake())
    loops.add(run_loop("registry.vigil", registry.vigil.run_once, period_s=0.15))
    return await stack.enter_async_context(
        serving(
            rgrpc.add_RegistryServiceServicer_to_server,
            registry.servicer,
            registry_servicer.SERVICE,
            permissions=registry_servicer.PERMISSIONS,
            draining=registry.draining,
            like=keys,
        )
    )


@asynccontextmanager
async def leading(
    neighbours: Neighbours, elector: Elector | None = None, holder: str = "test"
) -> AsyncIterator[PoolLeader]:
    """Run for the pool and lead it, for the length of a block."""
    leader = PoolLeader(
        POOL,
        holder=holder,
        address=f"{holder}@127.0.0.1:1",
        elector=elector or FixedElector(),
        neighbours=neighbours,
        usage=MemoryUsage(),
        policies=Policies,
        boot=BootClock(),
    )
    task = asyncio.create_task(leader.run())
    try:
        yield leader
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def scheduler_service(
    plane: ControlPlane, store: PoolStore, elector: Elector, holder: str = "s1"
) -> AsyncIterator[Served]:
    """Serve one replica of the scheduler: it runs for every pool of the store."""
    neighbours, draining, clock = await plane.neighbours(), Draining(), SystemClock()
    usage = MemoryUsage()

    async def in_use(pool: str) -> bool:
        table = await neighbours.slots.state(pool)
        held, _ = await neighbours.leases.held(pool)
        return bool(table.nodes or held)

    async with asyncio.TaskGroup() as group:

        def make(pool: str) -> PoolLeader:
            return PoolLeader(
                pool,
                holder=holder,
                address=f"{holder}@127.0.0.1:1",
                elector=elector,
                neighbours=neighbours,
                usage=usage,
                policies=lambda: policies_of(leaders.now(), pool),
                boot=BootClock(),
                cordoned=lambda: is_cordoned(leaders.now(), pool),
            )

        leaders = ReplicaLeaders(store, elector, election="fixed", group=group, make=make)
        servicer = SchedulerServicer(
            SchedulerUseCases(store, leaders, in_use),
            service_info("scheduler", holder, clock.now_ms(), 1),
            clock,
            draining,
        )
        async with serving(
            cgrpc.add_SchedulerServiceServicer_to_server,
            servicer,
            scheduler_servicer.SERVICE,
            permissions=scheduler_servicer.PERMISSIONS,
            draining=draining,
            like=plane.keys,
        ) as served:
            await leaders.refresh()
            try:
                yield served
            finally:
                await leaders.close()
