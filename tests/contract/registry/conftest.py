"""A registry over PostgreSQL behind a real gRPC server, with short times, and agents to connect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.fake_agent import FakeAgent, connected

from tenure.registry.v1 import agent_pb2, registry_pb2
from tenure.registry.v1.registry_pb2_grpc import RegistryServiceStub
from tenure_registry.app import serve
from tenure_registry.settings import RegistrySettings
from tenure_runtime.rpc.client import Client, connect
from tenure_runtime.rpc.identity import Keyring, Role, create_key

AGENTS = ("a1", "a2", "a3", "a4", "a5")


QUICK = {
    "heartbeat_period_ms": 40,
    "fence_ms": 350,
    "loss_ms": 700,
    "replica_loss_ms": 1_500,
}
"""Times for tests about loss: a beat every 40 ms, the fence at 350, lost at 700."""


class World:
    """Registries over one database, one after another or at once, and clients of them."""

    def __init__(self, dsn: str, folder: Path, stack: AsyncExitStack) -> None:
        self.dsn = dsn
        self._stack = stack
        self._keys: dict[str, str] = {}
        self._clients: dict[tuple[str, str], Client] = {}
        entries = []
        for name, role in {
            **dict.fromkeys(AGENTS, Role.AGENT),
            "ops": Role.OPERATOR,
            "svc": Role.SERVICE,
            "ann": Role.USER,
        }.items():
            self._keys[name], entry = create_key(name, {role})
            entries.append(entry)
        self._keyring = Keyring(entries)
        self._keyring_file = folder / "keyring.json"
        self._keyring.store(self._keyring_file)
        self.running: dict[str, AsyncExitStack] = {}
        self.ports: dict[str, int] = {}

    async def start(self, instance: str = "r1", **settings: Any) -> None:
        """Start a replica with the usual times, unless told otherwise."""
        given: dict[str, Any] = {"grace_s": 0.3, **settings}
        stack = AsyncExitStack()
        self.running[instance] = stack
        self.ports[instance] = await stack.enter_async_context(
            serve(
                RegistrySettings(
                    keyring_file=self._keyring_file,
                    database_dsn=self.dsn,
                    instance=instance,
                    **given,
                ),
                self._keyring,
            )
        )

    async def stop(self, instance: str = "r1") -> None:
        await self.running.pop(instance).aclose()

    async def stop_all(self) -> None:
        for instance in list(self.running):
            await self.stop(instance)

    async def client(self, caller: str = "svc", instance: str = "r1") -> Client:
        """Return the one client of a caller at a replica."""
        target = f"127.0.0.1:{self.ports[instance]}"
        if (caller, target) not in self._clients:
            client = connect(target, api_key=self._keys[caller])
            self._clients[caller, target] = await self._stack.enter_async_context(client)
        return self._clients[caller, target]

    async def agent(self, name: str, instance: str = "r1", *, caller: str = "") -> FakeAgent:
        """Open a stream as an agent; it lasts until the test ends."""
        client = await self.client(caller or name, instance)
        return await self._stack.enter_async_context(connected(client, name))

    async def joined(self, name: str, instance: str = "r1", **hello: Any) -> FakeAgent:
        """Open a stream and say hello."""
        agent = await self.agent(name, instance)
        await agent.hello(**hello)
        return agent

    async def dispatch(
        self,
        *commands: agent_pb2.Command,
        epoch: int = 1,
        instance: str = "r1",
        timeout_s: float = 10.0,
    ) -> list[str]:
        """Send commands as the pool's leader and return the reasons."""
        client = await self.client("svc", instance)
        response = await client.call(
            RegistryServiceStub(client.channel).DispatchCommands,
            registry_pb2.DispatchCommandsRequest(scope="pool/main", epoch=epoch, commands=commands),
            timeout_s=timeout_s,
        )
        return [verdict.reason for verdict in response.verdicts]

    async def call(
        self, method: str, request: Any, *, caller: str = "svc", instance: str = "r1"
    ) -> Any:
        client = await self.client(caller, instance)
        return await client.call(getattr(RegistryServiceStub(client.channel), method), request)

    async def get(self, name: str, instance: str = "r1") -> agent_pb2.Agent:
        request = registry_pb2.GetAgentRequest(name=f"agents/{name}")
        response = await self.call("GetAgent", request, instance=instance)
        agent: agent_pb2.Agent = response.agent
        return agent

    async def until_state(self, name: str, state: str, instance: str = "r1") -> agent_pb2.Agent:
        """Return the agent once it is in a state; at most 5 s."""
        wanted = agent_pb2.Agent.State.Value(f"STATE_{state}")
        async with asyncio.timeout(5):
            while (agent := await self.get(name, instance)).state != wanted:
                await asyncio.sleep(0.02)
        return agent

    async def reports(self, instance: str = "r1") -> list[agent_pb2.Report]:
        """Return the last report of each allocation."""
        request = registry_pb2.ListReportsRequest(pool="main")
        return list((await self.call("ListReports", request, instance=instance)).reports)


@asynccontextmanager
async def beating(*agents: FakeAgent) -> AsyncIterator[None]:
    """Have agents beat every 40 ms while the block runs; nobody else may write to them."""

    async def beat(agent: FakeAgent) -> None:
        while True:
            await agent.beat()
            await asyncio.sleep(0.04)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(beat(agent)) for agent in agents]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()


@pytest.fixture
async def world(database_dsn: str, tmp_path: Path) -> AsyncIterator[World]:
    """No registry runs yet."""
    async with AsyncExitStack() as stack:
        world = World(database_dsn, tmp_path, stack)
        try:
            yield world
        finally:
            await stack.aclose()
            await world.stop_all()


@pytest.fixture
async def registry(world: World) -> World:
    """One registry runs."""
    await world.start()
    return world
