"""The agent and the registry as they are, together: a real process on a real registry.

The registry keeps its state in memory; that its PostgreSQL store does the same is shown by the
contract suite of its stores.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.agents import AgentProcess, agent, alive, eventually

from tenure.registry.v1 import agent_pb2, registry_pb2
from tenure.registry.v1.agent_pb2 import Agent, Report
from tenure.registry.v1.registry_pb2_grpc import (
    RegistryServiceStub,
    add_RegistryServiceServicer_to_server,
)
from tenure_registry.app import Registry, memory_registry
from tenure_registry.servicer import PERMISSIONS, SERVICE
from tenure_registry.settings import RegistrySettings
from tenure_runtime.clocks import BootClock, SystemClock
from tenure_runtime.rpc.client import Client, connect
from tenure_runtime.rpc.identity import Keyring, Role, create_key
from tenure_runtime.rpc.server import RpcServer, ServerOptions


@dataclass
class _Plane:
    """A running registry as its leader sees it."""

    registry: Registry
    client: Client
    address: str
    agent_key: str
    reports: list[agent_pb2.Report] = field(default_factory=list)

    @property
    def stub(self) -> RegistryServiceStub:
        return RegistryServiceStub(self.client.channel)

    async def dispatch(self, *commands: agent_pb2.Command, epoch: int = 1) -> list[str]:
        request = registry_pb2.DispatchCommandsRequest(
            scope="pool/default", epoch=epoch, commands=commands
        )
        response = await self.client.call(self.stub.DispatchCommands, request)
        return [verdict.reason for verdict in response.verdicts]

    async def follow(self) -> None:
        request = registry_pb2.ListReportsRequest(pool="default")
        token = (await self.client.call(self.stub.ListReports, request)).resume_token
        watch = registry_pb2.WatchReportsRequest(pool="default", resume_token=token)
        async with self.client.stream(self.stub.WatchReports, watch) as changes:
            async for change in changes:
                if change.HasField("report"):
                    self.reports.append(change.report)

    async def agent_is(self, state: int) -> None:
        request = registry_pb2.ListAgentsRequest()

        async with asyncio.timeout(20):
            while True:
                listed = await self.client.call(self.stub.ListAgents, request)
                if [each.state for each in listed.agents] == [state]:
                    return
                await asyncio.sleep(0.05)

    def of(self, lease: str) -> list[tuple[int, int, str]]:
        mine = [r for r in self.reports if r.lease == f"leases/{lease}"]
        return [(r.kind, r.exit_code, r.reason) for r in mine]


def _start(command_id: str, lease: str, *words: str) -> agent_pb2.Command:
    command = agent_pb2.Command(
        command_id=command_id, agent="agents/n1", lease=f"leases/{lease}", attempt=1
    )
    command.start.work.command.extend(words)
    return command


@asynccontextmanager
async def _plane(folder: Path, fence_ms: int) -> AsyncIterator[_Plane]:
    leader, leader_entry = create_key("leader", {Role.SERVICE})
    agent_key, agent_entry = create_key("n1", {Role.AGENT})
    keyring = Keyring([leader_entry, agent_entry])
    keyring.store(folder / "keyring.json")
    settings = RegistrySettings(
        keyring_file=folder / "keyring.json",
        database_dsn="postgresql://none",
        instance="r1",
        heartbeat_period_ms=100,
        fence_ms=fence_ms,
        loss_ms=2 * fence_ms,
    )
    registry = memory_registry(settings, BootClock(), SystemClock())
    server = RpcServer(
        ServerOptions("registry"),
        keyring=keyring,
        permissions=PERMISSIONS,
        draining=registry.draining,
    )
    server.add(add_RegistryServiceServicer_to_server, registry.servicer, SERVICE)
    address = f"127.0.0.1:{await server.start()}"

    async def watch_over() -> None:
        while True:
            registry.vigil.stay_awake()
            await registry.vigil.run_once()
            await asyncio.sleep(0.05)

    async with connect(address, api_key=leader) as client:
        plane = _Plane(registry, client, address, agent_key)
        await registry.vigil.renew()
        tasks = [asyncio.create_task(watch_over()), asyncio.create_task(plane.follow())]
        try:
            yield plane
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await server.stop(0.1)


@asynccontextmanager
async def _both(folder: Path, fence_ms: int = 20_000) -> AsyncIterator[tuple[_Plane, AgentProcess]]:
    async with (
        _plane(folder, fence_ms) as plane,
        agent(folder / "data", plane.address, api_key=plane.agent_key) as process,
    ):
        await plane.agent_is(Agent.STATE_ALIVE)
        yield plane, process


async def test_a_lease_starts_prints_and_ends(tmp_path: Path) -> None:
    async with _both(tmp_path) as (plane, _):
        assert await plane.dispatch(_start("c1", "one", "sh", "-c", "echo hi; exit 2")) == [""]
        await eventually(lambda: len(plane.of("one")) == 2)
        request = registry_pb2.StreamLogsRequest(lease="leases/one")
        async with plane.client.stream(plane.stub.StreamLogs, request) as parts:
            output = b"".join([part.data async for part in parts])

        assert plane.of("one") == [(Report.KIND_STARTED, 0, ""), (Report.KIND_ENDED, 2, "EXITED")]
        assert output == b"hi\n"


async def test_a_killed_agent_takes_its_work_up_again(tmp_path: Path) -> None:
    async with _both(tmp_path) as (plane, process):
        await plane.dispatch(_start("c1", "work", "sleep", "600"))
        await eventually(lambda: len(plane.of("work")) == 1)
        process.kill()
        process.start()
        assert await plane.dispatch(_start("c2", "next", "true")) == [""]
        await eventually(lambda: len(plane.of("next")) == 2)

        assert alive(process.trail()[0]["pid"])
        assert plane.of("work") == [(Report.KIND_STARTED, 0, "")]


async def test_work_has_ended_before_its_agent_is_declared_lost(tmp_path: Path) -> None:
    async with _both(tmp_path, fence_ms=1_200) as (plane, process):
        await plane.dispatch(_start("c1", "work", "sleep", "600"))
        await eventually(lambda: len(plane.of("work")) == 1)
        pid = process.trail()[0]["pid"]
        process.signal(signal.SIGSTOP)
        try:
            await eventually(lambda: len(plane.of("work")) == 2)
            assert not alive(pid)
            assert [line["event"] for line in process.trail()] == ["start", "end"]
            assert plane.of("work")[1][0] == Report.KIND_LOST
        finally:
            process.signal(signal.SIGCONT)
        await plane.agent_is(Agent.STATE_ALIVE)
        await plane.dispatch(_start("c2", "after", "true"))
        await eventually(lambda: len(plane.of("after")) == 2)
