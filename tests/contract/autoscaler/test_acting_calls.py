"""The acting autoscaler over real gRPC and PostgreSQL: registry and slottable are real, machines
are simulated and become agents on real streams, and the queue is what the test says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from tests.support.fake_agent import connected
from tests.support.servers import Served, serving

from tenure.autoscaler.v1 import autoscaler_pb2 as pb
from tenure.autoscaler.v1.autoscaler_pb2_grpc import AutoscalerServiceStub
from tenure.autoscaler.v1.machine_pb2 import Group, Machine
from tenure.scheduler.v1 import scheduler_pb2 as cpb
from tenure.scheduler.v1.scheduler_pb2_grpc import (
    SchedulerServiceServicer,
    add_SchedulerServiceServicer_to_server,
)
from tenure.slottable.v1 import reservation_pb2 as rpb
from tenure.slottable.v1 import slottable_pb2 as spb
from tenure.slottable.v1.slottable_pb2_grpc import SlotTableServiceStub
from tenure.type.v1 import work_pb2
from tenure_autoscaler.app import serve
from tenure_autoscaler.providers.port import MachineSpec
from tenure_autoscaler.providers.simulated import SimulatedProvider
from tenure_autoscaler.settings import AutoscalerSettings
from tenure_registry.app import serve as serve_registry
from tenure_registry.settings import RegistrySettings
from tenure_runtime.clocks import SystemClock
from tenure_runtime.rpc.client import connect
from tenure_runtime.rpc.identity import KeyEntry, Keyring, Role, create_key
from tenure_runtime.rpc.wire import to_timestamp
from tenure_slottable.app import app as serve_slottable
from tenure_slottable.settings import SlottableSettings

NAMES = ("g-1", "g-2", "g-3")
BEAT_S = 0.1


class Queue(SchedulerServiceServicer):
    """Says that so many leases wait."""

    def __init__(self) -> None:
        self.waiting = 0

    async def WatchDemand(
        self, request: cpb.WatchDemandRequest, context: Any
    ) -> AsyncIterator[cpb.WatchDemandResponse]:
        entries = [
            cpb.DemandEntry(lease=f"leases/w{n}", node_count=1, amounts={"cpu": 4_000})
            for n in range(self.waiting)
        ]
        yield cpb.WatchDemandResponse(entries=entries)


class World:
    """Everything that runs, and agents for the machines that the provider makes."""

    def __init__(self, queue: Queue, keys: dict[str, str]) -> None:
        self.queue = queue
        self.keys = keys
        self.provider = SimulatedProvider(SystemClock(), on_boot=self._boot, on_end=self._end)
        self.registry = self.slottable = self.autoscaler = 0
        self._agents: dict[str, asyncio.Task[None]] = {}
        self._lives = 0

    async def call(self, stub: Callable[..., Any], port: int, method: str, request: Any) -> Any:
        key = self.keys["ops" if port == self.autoscaler else "svc"]
        async with connect(f"127.0.0.1:{port}", api_key=key) as client:
            return await client.call(getattr(stub(client.channel), method), request)

    async def scale(self, method: str, request: Any) -> Any:
        return await self.call(AutoscalerServiceStub, self.autoscaler, method, request)

    async def slots(self, method: str, request: Any) -> Any:
        return await self.call(SlotTableServiceStub, self.slottable, method, request)

    async def states(self) -> dict[str, str]:
        listed = await self.scale("ListMachines", pb.ListMachinesRequest(group="groups/g"))
        return {m.name[9:]: Machine.State.Name(m.state)[6:] for m in listed.machines}

    async def nodes(self) -> dict[str, rpb.Node]:
        request = spb.ListNodesRequest(pool="main", include_retired=True)
        return {n.name[6:]: n for n in (await self.slots("ListNodes", request)).nodes}

    async def eventually(self, holds: Callable[[dict[str, str]], bool]) -> dict[str, str]:
        async with asyncio.timeout(20):
            while not holds(states := await self.states()):
                await asyncio.sleep(0.05)
        return states

    def _boot(self, spec: MachineSpec) -> None:
        self._lives += 1
        coroutine = self._live(spec.machine, f"life-{self._lives}")
        self._agents[spec.machine] = asyncio.get_running_loop().create_task(coroutine)

    def _end(self, machine: str) -> None:
        self._agents.pop(machine).cancel()

    async def _live(self, name: str, incarnation: str) -> None:
        target = f"127.0.0.1:{self.registry}"
        async with (
            connect(target, api_key=self.keys[name]) as client,
            connected(client, name) as agent,
        ):
            await agent.hello(incarnation=incarnation, capacity={"cpu": 4_000})
            while True:
                await agent.answered_beat()
                await asyncio.sleep(BEAT_S)

    def close(self) -> None:
        for task in self._agents.values():
            task.cancel()


@pytest.fixture
async def world(database_dsn: str, tmp_path: Path) -> AsyncIterator[World]:
    roles = {"ops": Role.OPERATOR, "svc": Role.SERVICE, **dict.fromkeys(NAMES, Role.AGENT)}
    keys: dict[str, str] = {}
    entries: list[KeyEntry] = []
    for name, role in roles.items():
        keys[name], entry = create_key(name, {role})
        entries.append(entry)
    keyring, file = Keyring(entries), tmp_path / "keyring.json"
    keyring.store(file)
    common = {"keyring_file": file, "database_dsn": database_dsn, "grace_s": 0.2}
    queue = Queue()
    like = Served(None, 0, keys, keyring, AsyncExitStack())  # type: ignore[arg-type]
    world = World(queue, keys)
    async with AsyncExitStack() as stack:
        scheduler = await stack.enter_async_context(
            serving(
                add_SchedulerServiceServicer_to_server,
                queue,
                "tenure.scheduler.v1.SchedulerService",
                methods=[
                    m.name for m in cpb.DESCRIPTOR.services_by_name["SchedulerService"].methods
                ],
                like=like,
            )
        )
        registry = RegistrySettings(
            **common,
            heartbeat_period_ms=100,
            fence_ms=800,
            loss_ms=1_200,  # type: ignore[arg-type]
        )
        world.registry = await stack.enter_async_context(serve_registry(registry, keyring))
        ready = tmp_path / "slottable.json"
        slottable = SlottableSettings(**common, ready_file=ready)  # type: ignore[arg-type]
        await stack.enter_async_context(serve_slottable(slottable))
        world.slottable = json.loads(ready.read_text())["port"]
        stack.callback(world.close)
        settings = AutoscalerSettings(
            **common,  # type: ignore[arg-type]
            registry_address=f"127.0.0.1:{world.registry}",
            scheduler_address=scheduler.target,
            slottable_address=f"127.0.0.1:{world.slottable}",
            api_key=keys["svc"],
            decide_period_s=0.1,
        )
        world.autoscaler = await stack.enter_async_context(
            serve(settings, keyring, load=lambda name, _: world.provider)
        )
        yield world


async def begin(world: World, **fields: Any) -> None:
    group = Group(
        name="groups/g",
        kind=Group.KIND_POOL,
        pool="pools/main",
        provider="simulated",
        amounts={"cpu": 4_000},
        boot_duration=Duration(seconds=5),
        idle_duration=Duration(nanos=500_000_000),
        **fields,
    )
    await world.scale("CreateGroup", pb.CreateGroupRequest(group=group))


async def test_machines_come_for_the_queue_and_go_after_it(world: World) -> None:
    await begin(world, size_max=2)
    world.queue.waiting = 3
    await world.eventually(lambda seen: list(seen.values()) == ["RUNNING"] * 2)
    assert world.provider.most_at_once == 2
    world.queue.waiting = 0
    await world.eventually(lambda seen: list(seen.values()) == ["REMOVED"] * 2)
    assert not world.provider.machines
    told = await world.scale("ListDecisions", pb.ListDecisionsRequest(subject="groups/g"))
    done = [dict(d.results) for d in told.decisions if d.enacted]
    assert {"g-1": "BOOTING", "g-2": "BOOTING"} in done
    [first] = [d for d in told.decisions if "BOOT" in d.inputs["orders"]]
    assert (first.rule, first.enacted) == ("BACKLOG", True)
    assert first.inputs["orders"].count("BOOT:") == 2


async def test_nodes_are_offered_booked_and_backed_before_their_start(world: World) -> None:
    await begin(world, size_max=2)
    async with asyncio.timeout(20):
        while len(offered := await world.nodes()) < 2:
            await asyncio.sleep(0.05)
    now_ms = SystemClock().now_ms()
    starts = [n.capacity[0].start_time.ToMilliseconds() - now_ms for n in offered.values()]
    assert all(4_000 < wait < 12_000 for wait in starts), starts
    assert [(n.agent, dict(n.attributes)) for n in offered.values()] == [("", {"group": "g"})] * 2
    await book(world, "g-2", now_ms + 15_000)
    assert await world.states() == {}
    await world.eventually(lambda seen: seen == {"g-2": "RUNNING"})
    assert SystemClock().now_ms() < now_ms + 15_000
    rows = await world.slots("ListReservations", spb.ListReservationsRequest(pool="main"))
    assert [(row.node, row.displaced) for row in rows.reservations] == [("nodes/g-2", False)]


async def book(world: World, node: str, start_ms: int) -> None:
    """Book a node as the pool's leader would."""
    acquired = await world.slots(
        "AcquireEpoch", spb.AcquireEpochRequest(scope="pool/main", holder="test")
    )
    row = rpb.Reservation(
        name="reservations/l1.1.0.run.1", node=f"nodes/{node}", lease="leases/l1",
        attempt=1, kind=work_pb2.RESERVATION_KIND_RUN, amounts={"cpu": 4_000},
    )  # fmt: skip
    row.interval.start_time.CopyFrom(to_timestamp(start_ms))
    row.interval.end_time.CopyFrom(to_timestamp(start_ms + 600_000))
    operation = rpb.Operation(book=rpb.BookOperation(reservation=row))
    done = await world.slots(
        "SubmitPlan",
        spb.SubmitPlanRequest(
            scope="pool/main", epoch=acquired.epoch,
            groups=[rpb.OperationGroup(group_id="one", operations=[operation])],
        ),
    )  # fmt: skip
    assert [verdict.reason for verdict in done.verdicts] == [""]


async def test_a_groups_leader_sets_only_nodes_that_no_agent_backs(world: World) -> None:
    scopes = {}
    for scope in ("pool/main", "group/x"):
        request = spb.AcquireEpochRequest(scope=scope, holder="test")
        scopes[scope] = (await world.slots("AcquireEpoch", request)).epoch

    async def tell(scope: str, name: str, cpu: int, agent: str = "") -> rpb.Node:
        node = rpb.Node(
            name=f"nodes/{name}", agent=agent, capacity=[rpb.CapacityChange(amounts={"cpu": cpu})]
        )
        request = spb.SetCapacityRequest(scope=scope, epoch=scopes[scope], nodes=[node])
        if scope.startswith("group/"):
            request.pool = "main"
        [stored] = (await world.slots("SetCapacity", request)).nodes
        return stored

    assert (await tell("group/x", "n1", 1_000)).capacity[0].amounts["cpu"] == 1_000
    backed = await tell("pool/main", "n1", 2_000, agent="agents/n1")
    assert backed.capacity[0].amounts["cpu"] == 2_000
    assert await tell("group/x", "n1", 3_000) == backed
