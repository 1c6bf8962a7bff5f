"""The whole control plane, put together from its real parts on simulated hosts.

One function a kind of process: what it makes belongs to the process and is gone with it, what it
was given (stores, disks) stays. A supervisor starts each anew a while after it died.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.simulation.channel import Channel
from tests.simulation.election import Etcd, SimElector
from tests.simulation.network import Network
from tests.simulation.node import Node, SimDriver, SimFence, SimJournal
from tests.simulation.notices import NoticeBoard
from tests.simulation.servers import Directory, Server
from tests.simulation.storage import DatabaseLink, Watcher
from tests.simulation.world import EPOCH_MS, Host, HostClock, World
from tests.support.virtual_loop import Process

from tenure.admission.v1 import admission_pb2_grpc as agrpc
from tenure.registry.v1 import registry_pb2_grpc as rgrpc
from tenure.slottable.v1 import slottable_pb2_grpc as sgrpc
from tenure_admission import app as admission_app
from tenure_admission import servicer as admission_servicer
from tenure_admission.pool_view import PoolView
from tenure_admission.store.memory import MemoryStore as LeaseStore
from tenure_agent.drivers.bare import BareDriver
from tenure_agent.executor import Executor, Parts
from tenure_agent.ledger import Ledger
from tenure_agent.outbox import Outbox
from tenure_agent.reporting import Reporting
from tenure_agent.session import Session, SessionParts
from tenure_agent.spans import Spans
from tenure_agent.stream import Identity
from tenure_core.policies.bundle import Policies
from tenure_registry import app as registry_app
from tenure_registry import convert as registry_convert
from tenure_registry import servicer as registry_servicer
from tenure_registry.settings import RegistrySettings
from tenure_registry.store.memory import MemoryStore as AgentStore
from tenure_runtime.ids import RandomIds
from tenure_runtime.process import run_loop
from tenure_runtime.rpc.client import Client
from tenure_runtime.rpc.draining import Draining
from tenure_runtime.rpc.identity import Keyring, Role, create_key
from tenure_runtime.service_info import service_info
from tenure_scheduler.clients.admission import AdmissionClient
from tenure_scheduler.clients.registry import RegistryClient
from tenure_scheduler.clients.slottable import SlottableClient
from tenure_scheduler.leader import PoolLeader
from tenure_scheduler.ports import Neighbours
from tenure_scheduler.store.usage import MemoryUsage
from tenure_slottable import servicer as slottable_servicer
from tenure_slottable.store.memory import MemoryStore as SlotStore
from tenure_slottable.usecases import SlotTableUseCases

POOL: Final = "default"
HEARTBEAT_MS: Final = 500
FENCE_MS: Final = 3_000
LOSS_MS: Final = 5_000
RESTART_S: Final = (0.05, 2.0)


class AnyPool:
    """Takes every pool to exist and knows nothing of its size."""

    def exists(self, pool: str) -> bool | None:
        return None

    def view(self, pool: str) -> None:
        return None

    def views(self) -> dict[str, PoolView]:
        return {}


@dataclass
class Plan:
    """What a run is made of; drawn from the seed."""

    agents: int = 2
    schedulers: int = 1
    admissions: int = 1
    slottables: int = 1
    registries: int = 1
    capacity: dict[str, int] = field(default_factory=lambda: {"cpu": 4_000, "memory": 8 * 2**30})
    policies: Policies = field(default_factory=Policies)
    skew_ms: int = 0


@dataclass
class Stores:
    """What the database holds."""

    leases: LeaseStore
    slots: SlotStore
    agents: AgentStore


class Cluster:
    """All hosts, and what they share."""

    def __init__(self, world: World, plan: Plan, watcher: Watcher) -> None:
        self.world = world
        self.plan = plan
        self.network = Network(world)
        self.directory = Directory()
        self.etcd = Etcd(world, self.network)
        self.usage = MemoryUsage()
        self.notices = NoticeBoard(world)
        self.watcher = watcher
        self.database_clock = HostClock(world)
        self.stores = Stores(
            LeaseStore(Draining()),
            SlotStore(self.database_clock),
            AgentStore(self.database_clock, registry_convert.lost_report, LOSS_MS),
        )
        self.hosts: dict[str, Host] = {}
        self.nodes: dict[str, Node] = {}
        self.keys, self.keyring = _keys(plan)
        self.supervises = True
        self.leaders: dict[str, PoolLeader] = {}

    # Hosts.

    def build(self) -> None:
        """Make all hosts and start their programs."""
        plan = self.plan
        for number in range(plan.admissions):
            self._host(f"admission{number}", self._admission)
        for number in range(plan.slottables):
            self._host(f"slottable{number}", self._slottable)
        for number in range(plan.registries):
            self._host(f"registry{number}", self._registry)
        for number in range(plan.schedulers):
            self._host(f"scheduler{number}", self._scheduler)
        for number in range(plan.agents):
            host = self._host(f"a{number}", self._agent)
            self.nodes[host.name] = Node(self.world, host)
        for host in self.hosts.values():
            host.begin()
            self._watch_over(host)

    def host(self, name: str) -> Host:
        """Return a host of clients, made on first use."""
        if name not in self.hosts:
            self.hosts[name] = Host(name, self._clock(name))
        return self.hosts[name]

    def _host(self, name: str, start: Any) -> Host:
        host = self.host(name)
        host.start = lambda process: start(host, process)
        return host

    def _clock(self, name: str) -> HostClock:
        rng = self.world.rng(f"clock {name}")
        skew = rng.randint(-self.plan.skew_ms, self.plan.skew_ms)
        return HostClock(self.world, skew, rng.randint(0, 10_000_000))

    def _watch_over(self, host: Host) -> None:
        """Start its program again a while after it died."""
        process = host.process
        assert process is not None

        def again() -> None:
            if self.supervises and not host.runs:
                host.begin()
                self.world.say(f"started    {host.name} again")
                self._watch_over(host)

        process.on_death.append(lambda: self.network.later(RESTART_S, again))

    # Calls.

    def client(self, here: Host, service: str, key: str) -> Client:
        """Return a client of a service, as one caller on one host."""
        return Client(
            Channel(self.network, self.directory, here, service),  # type: ignore[arg-type]
            api_key=self.keys[key],
            default_timeout_s=4.0,
            rng=self.world.rng(f"retry {here.name}"),
        )

    def _serve(
        self, host: Host, process: Process, service: str, permissions: Any, add: Any, servicer: Any
    ) -> None:
        server = Server(
            host, process, service, self.keyring, permissions, lambda into: add(servicer, into)
        )
        self.directory.register(service, server)

    def _link(self, name: str, store: Any) -> Any:
        return DatabaseLink(self.world, name, store, self.watcher)

    # Programs.

    def _admission(self, host: Host, process: Process) -> None:
        ids = RandomIds(random.Random(f"{self.world.seed}/{host.name}/{host.starts}"))
        parts = admission_app.build(
            self._link("leases", self.stores.leases),
            AnyPool(),
            host.clock,
            service_info("admission", host.name, EPOCH_MS, 1),
            ids=ids,
        )
        process.spawn(_quietly(parts.waiting.run()))
        add = agrpc.add_AdmissionServiceServicer_to_server
        permissions = admission_servicer.PERMISSIONS
        self._serve(host, process, "admission", permissions, add, parts.servicer)

    def _slottable(self, host: Host, process: Process) -> None:
        servicer = slottable_servicer.SlotTableServicer(
            SlotTableUseCases(self._link("slots", self.stores.slots)),
            service_info("slottable", host.name, EPOCH_MS, 1),
        )
        add = sgrpc.add_SlotTableServiceServicer_to_server
        permissions = slottable_servicer.PERMISSIONS
        self._serve(host, process, "slottable", permissions, add, servicer)

    def _registry(self, host: Host, process: Process) -> None:
        settings = RegistrySettings(
            keyring_file=Path("/dev/null"),
            database_dsn="",
            instance=host.name,
            heartbeat_period_ms=HEARTBEAT_MS,
            fence_ms=FENCE_MS,
            loss_ms=LOSS_MS,
            replica_loss_ms=8_000,
        )
        rng = random.Random(f"{self.world.seed}/{host.name}/{host.starts}")
        registry = registry_app.build(
            settings,
            self._link("agents", self.stores.agents),
            self.notices,
            Draining(),
            clock=host.clock.boot(),
            wall=host.clock,
            ids=RandomIds(rng),
        )

        async def stay_awake() -> None:
            while True:
                registry.vigil.stay_awake()
                await asyncio.sleep(FENCE_MS / 8_000)

        async def serve() -> None:
            while True:
                try:
                    await registry.vigil.renew()
                    break
                except Exception:
                    await asyncio.sleep(0.1)
            add = rgrpc.add_RegistryServiceServicer_to_server
            permissions = registry_servicer.PERMISSIONS
            self.notices.listen(host.name, process, registry.sessions.hear)
            self._serve(host, process, "registry", permissions, add, registry.servicer)
            await run_loop(
                "registry.vigil",
                registry.vigil.run_once,
                period_s=HEARTBEAT_MS / 2_000,
                longest_wait_s=2,
                rng=rng,
            )

        process.spawn(_quietly(stay_awake()))
        process.spawn(_quietly(serve()))

    def _scheduler(self, host: Host, process: Process) -> None:
        slots = SlottableClient(self.client(host, "slottable", "scheduler"))
        slots._ids = RandomIds(self.world.rng(f"ids {host.name}"))
        neighbours = Neighbours(
            AdmissionClient(self.client(host, "admission", "scheduler")),
            slots,
            RegistryClient(self.client(host, "registry", "scheduler")),
        )
        leader = PoolLeader(
            POOL,
            holder=host.name,
            address=f"{host.name}@{host.name}:1",
            elector=SimElector(self.etcd, host, process),
            neighbours=neighbours,
            usage=self.usage,
            policies=lambda: self.plan.policies,
            boot=host.clock.boot(),
        )
        self.leaders[host.name] = leader
        process.spawn(_quietly(leader.run()))

    def _agent(self, host: Host, process: Process) -> None:
        process.spawn(_quietly(self._run_agent(host)))

    async def _run_agent(self, host: Host) -> None:
        """Do what `tenure_agent.app.assemble` does, over the simulated hardware."""
        node, rng = self.nodes[host.name], self.world.rng(f"agent {host.name}")
        node.disk.incarnation = node.disk.incarnation or RandomIds(rng).short(16)
        fence = SimFence(node)
        ledger = Ledger(*SimJournal.open(node))  # type: ignore[arg-type]
        outbox = Outbox(ledger)
        spans = Spans()
        driver = SimDriver(node)
        identity = Identity(
            id=host.name,
            incarnation=node.disk.incarnation,
            version="simulated",
            pool=POOL,
            capacity=self.plan.capacity,
            attributes={},
            suspended_keeps=driver.suspended_keeps,
            # No lease here has secrets.
            sealing_key=b"",
        )
        prefix = f"{host.name}.{identity.incarnation}"
        reporting = Reporting(ledger, outbox, host.clock, prefix=prefix, spans=spans)
        boot = host.clock.boot()
        bare = BareDriver(fence, boot.now_ms)
        executor = Executor(Parts(ledger, outbox, fence, driver, bare, boot, reporting, spans))
        executor.recover()
        node.disk.rebooted = False
        session = Session(
            SessionParts(
                identity=identity,
                dial=lambda _: self.client(host, "registry", host.name),
                ledger=ledger,
                executor=executor,
                outbox=outbox,
                fence=fence,
                folder_of=lambda key: Path("/nowhere") / key.folder,
                boot_clock=boot,
                rng=rng,
            ),
            "registry",
        )
        async with asyncio.TaskGroup() as loops:
            loops.create_task(outbox.run())
            loops.create_task(executor.run())
            loops.create_task(session.run())


async def _quietly(work: Coroutine[Any, Any, Any]) -> None:
    """Run to the end. Anything but a cancellation is a bug, and ends the whole run."""
    try:
        await work
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        _failures.append(error)


_failures: list[BaseException] = []


def failures() -> list[BaseException]:
    """Return the errors with which processes ended by themselves."""
    return _failures


def _keys(plan: Plan) -> tuple[dict[str, str], Keyring]:
    roles = {
        "scheduler": {Role.SERVICE},
        "ops": {Role.OPERATOR, Role.USER},
        "ann": {Role.USER},
        "bob": {Role.USER},
        **{f"a{number}": {Role.AGENT} for number in range(plan.agents)},
    }
    keys, entries = {}, []
    for name, role in roles.items():
        keys[name], entry = create_key(name, role)
        entries.append(entry)
    return keys, Keyring(entries)
