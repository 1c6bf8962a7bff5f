"""The registry as a process: killed and restarted with agents connected."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.contract.registry.conftest import beating
from tests.support.fake_agent import connected, start

from tenure.registry.v1 import agent_pb2, registry_pb2
from tenure.registry.v1.registry_pb2_grpc import RegistryServiceStub
from tenure_core.errors import DomainError
from tenure_runtime.rpc.client import connect
from tenure_runtime.rpc.identity import Keyring, Role, create_key


def keys_in(folder: Path) -> tuple[dict[str, str], Path]:
    """Return an agent's and a leader's key, the same at each call, and the keyring's file."""
    keyring, keys = folder / "keyring.json", folder / "keys.json"
    if not keyring.exists():
        agent, agent_entry = create_key("a1", {Role.AGENT})
        leader, leader_entry = create_key("svc", {Role.SERVICE})
        Keyring([agent_entry, leader_entry]).store(keyring)
        keys.write_text(json.dumps({"a1": agent, "svc": leader}))
    return json.loads(keys.read_text()), keyring


class Process:
    """`python -m tenure_registry` on one port, as often as it is started."""

    def __init__(self, folder: Path, dsn: str, instance: str = "registry-1") -> None:
        self._ready = folder / f"{instance}.json"
        self._child: subprocess.Popen[bytes] | None = None
        self.port = 0
        self.keys, keyring = keys_in(folder)
        self._environment = {
            **os.environ,
            "TENURE_DATABASE_DSN": dsn,
            "TENURE_KEYRING_FILE": str(keyring),
            "TENURE_READY_FILE": str(self._ready),
            "TENURE_INSTANCE": instance,
            "TENURE_GRACE_S": "0.5",
        }

    async def start(self) -> None:
        self._ready.unlink(missing_ok=True)
        self._environment["TENURE_LISTEN"] = f"127.0.0.1:{self.port}"
        command = [sys.executable, "-m", "tenure_registry"]
        self._child = subprocess.Popen(command, env=self._environment, stderr=subprocess.DEVNULL)
        async with asyncio.timeout(30):
            while not self._ready.exists():
                assert self._child.poll() is None, "the registry ended at its start"
                await asyncio.sleep(0.02)
        self.port = json.loads(self._ready.read_text())["port"]

    async def end(self, number: int) -> int:
        """Send a signal and return the exit code."""
        assert self._child is not None
        self._child.send_signal(number)
        async with asyncio.timeout(15):
            while self._child.poll() is None:
                await asyncio.sleep(0.02)
        return self._child.returncode

    def kill(self) -> None:
        if self._child is not None and self._child.poll() is None:
            self._child.kill()
            self._child.wait()


@asynccontextmanager
async def running(folder: Path, dsn: str, instance: str = "registry-1") -> AsyncIterator[Process]:
    process = Process(folder, dsn, instance)
    try:
        await process.start()
        yield process
    finally:
        process.kill()


@pytest.mark.faults
async def test_a_registry_that_is_killed_forgets_nothing(database_dsn: str, tmp_path: Path) -> None:
    async with running(tmp_path, database_dsn) as process:
        target = f"127.0.0.1:{process.port}"
        async with (
            connect(target, api_key=process.keys["svc"]) as leader,
            connect(target, api_key=process.keys["a1"]) as client,
        ):
            stub = RegistryServiceStub(leader.channel)
            async with connected(client, "a1") as agent:
                await agent.hello(pool="main")
                dispatch = registry_pb2.DispatchCommandsRequest(
                    scope="pool/main", epoch=3, commands=[start("a1", "x"), start("a1", "y")]
                )
                await leader.call(stub.DispatchCommands, dispatch)
                first, second = await agent.command(), await agent.command()
                await agent.report(agent.about(first, "STARTED"))
                assert await process.end(signal.SIGKILL) == -signal.SIGKILL
                with pytest.raises(DomainError):
                    await agent.end()
            await process.start()
        async with (
            connect(target, api_key=process.keys["svc"]) as leader,
            connect(target, api_key=process.keys["a1"]) as client,
        ):
            stub = RegistryServiceStub(leader.channel)
            async with connected(client, "a1") as again:
                wanted = await again.hello(pool="main")
                assert [(a.lease, a.state) for a in wanted] == [
                    ("leases/x", agent_pb2.Allocation.STATE_RUNNING),
                    ("leases/y", agent_pb2.Allocation.STATE_STARTING),
                ]
                assert dict(again.session.epochs) == {"pool/main": 3}
                assert (await again.command()).command_id == second.command_id
                async with beating(again):
                    request = registry_pb2.GetAgentRequest(name="agents/a1")
                    seen = (await leader.call(stub.GetAgent, request)).agent
                assert seen.state == agent_pb2.Agent.STATE_ALIVE
            assert await process.end(signal.SIGTERM) == 0


@pytest.mark.faults
async def test_agents_of_a_replica_that_is_killed_go_on_at_another(
    database_dsn: str, tmp_path: Path
) -> None:
    async with (
        running(tmp_path, database_dsn, "registry-1") as first,
        running(tmp_path, database_dsn, "registry-2") as second,
        connect(f"127.0.0.1:{first.port}", api_key=first.keys["a1"]) as near,
        connect(f"127.0.0.1:{second.port}", api_key=second.keys["a1"]) as far,
        connect(f"127.0.0.1:{second.port}", api_key=second.keys["svc"]) as leader,
    ):
        stub = RegistryServiceStub(leader.channel)
        async with connected(near, "a1") as agent:
            await agent.hello(pool="main")
            # The leader talks to one replica, the agent to the other.
            dispatch = registry_pb2.DispatchCommandsRequest(
                scope="pool/main", epoch=1, commands=[start("a1", "x")]
            )
            await leader.call(stub.DispatchCommands, dispatch)
            sent = await agent.command()
            await first.end(signal.SIGKILL)
            with pytest.raises(DomainError):
                await agent.end()
        async with connected(far, "a1") as again:
            assert [a.lease for a in await again.hello(pool="main")] == ["leases/x"]
            assert (await again.command()).command_id == sent.command_id
            await again.report(again.about(sent, "STARTED"))
            request = registry_pb2.GetAgentRequest(name="agents/a1")
            seen = (await leader.call(stub.GetAgent, request)).agent
            assert (seen.state, seen.session) == (
                agent_pb2.Agent.STATE_ALIVE, again.session.session,
            )  # fmt: skip
