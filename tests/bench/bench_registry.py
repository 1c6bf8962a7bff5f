"""Figures of the registry with thousands of agents: `python tests/bench/bench_registry.py`.

One registry process over a durable PostgreSQL of its own, one process (this one) that plays all the
agents: scripted streams over a few shared connections. Goals (issue of the agents): 5,000 agents
that beat every 5 s (1,000/s) with under 1 ms of registry CPU a beat and under 40 KiB of memory an
agent; a connect storm of 5,000 within 20 s without a lost one; a command's round trip p50 under
5 ms, p99 under 25 ms; 1,000 commands to 1,000 agents under 2 s; PostgreSQL writes that do not grow
with beats; the loss of one noticed within the loss time + 1 s; all back within 15 s of a restart.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg

from tenure.registry.v1 import agent_pb2, registry_pb2
from tenure.registry.v1.registry_pb2_grpc import RegistryServiceStub
from tenure_core.errors import DomainError
from tenure_runtime.embedded.postgres import EmbeddedPostgres
from tenure_runtime.rpc.client import ChannelOptions, Client, open_channel
from tenure_runtime.rpc.identity import Keyring, Role, create_key

ALIVE = agent_pb2.Agent.STATE_ALIVE
LOST = agent_pb2.Agent.STATE_LOST


class Figures:
    """Prints what was measured beside what was wanted."""

    def say(self, what: str, got: str, goal: str = "") -> None:
        print(f"{what:<58} {got:>22}   {goal}", flush=True)


class Registry:
    """The registry's process."""

    def __init__(
        self, folder: Path, dsn: str, keyring: Path, period_ms: int, instance: str
    ) -> None:
        self._ready = folder / f"{instance}.json"
        self._environment = {
            **os.environ,
            "TENURE_DATABASE_DSN": dsn,
            "TENURE_KEYRING_FILE": str(keyring),
            "TENURE_INSTANCE": instance,
            "TENURE_READY_FILE": str(self._ready),
            "TENURE_HEARTBEAT_PERIOD_MS": str(period_ms),
            "TENURE_FENCE_MS": str(period_ms * 3),
            "TENURE_LOSS_MS": str(period_ms * 4),
            "TENURE_LOG_LEVEL": "warning",
            "TENURE_GRACE_S": "1",
        }
        self.process: subprocess.Popen[bytes] | None = None
        self.port = 0

    async def start(self) -> None:
        self._ready.unlink(missing_ok=True)
        self._environment["TENURE_LISTEN"] = f"127.0.0.1:{self.port}"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tenure_registry"], env=self._environment
        )
        while not self._ready.exists():
            assert self.process.poll() is None, "the registry ended"
            await asyncio.sleep(0.02)
        self.port = json.loads(self._ready.read_text())["port"]

    async def stop(self, number: int = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            while self.process.poll() is None:
                await asyncio.sleep(0.02)

    def cpu_s(self) -> float:
        assert self.process is not None
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_kib(self) -> int:
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if "VmRSS" in line)


class Registries:
    """Some replicas over one database, seen as one."""

    def __init__(self, replicas: list[Registry]) -> None:
        self.replicas = replicas

    async def start(self) -> None:
        for replica in self.replicas:
            await replica.start()

    async def stop(self, number: int = signal.SIGTERM) -> None:
        await asyncio.gather(*(replica.stop(number) for replica in self.replicas))

    def cpu_s(self) -> float:
        return sum(replica.cpu_s() for replica in self.replicas)

    def memory_kib(self) -> int:
        return sum(replica.memory_kib() for replica in self.replicas)


class Agents:
    """All agents of the bench, each a stream that answers commands at once."""

    def __init__(self, keys: dict[str, str], channels: int, period_s: float) -> None:
        self._keys = keys
        self._channels = channels
        self.period_s = period_s
        self.round_trips: list[float] = []
        self.sessions = 0
        self.failures = 0
        self.silent: set[str] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._clients: list[Any] = []

    def connect(self, ports: list[int], spread_s: float) -> None:
        """Have every agent connect at a random instant of a span, and again after each end."""
        self._clients = [
            open_channel(ChannelOptions(f"127.0.0.1:{port}"))
            for port in ports
            for _ in range(self._channels)
        ]
        rng = random.Random(1)
        for index, name in enumerate(self._keys):
            client = Client(self._clients[index % len(self._clients)], api_key=self._keys[name])
            first_s = rng.uniform(0, spread_s)
            self._tasks.append(asyncio.create_task(self._live(name, client, first_s)))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for channel in self._clients:
            await channel.close(None)

    async def _live(self, name: str, client: Client, first_s: float) -> None:
        rng = random.Random(name)
        await asyncio.sleep(first_s)
        while True:
            try:
                await self._stream(name, client, rng)
            except DomainError:
                self.failures += 1
            await asyncio.sleep(rng.uniform(0, 2.0))

    async def _stream(self, name: str, client: Client, rng: random.Random) -> None:
        async with client.duplex(RegistryServiceStub(client.channel).Connect) as stream:
            hello = registry_pb2.Hello(
                agent=f"agents/{name}",
                incarnation="1",
                version="bench",
                protocol_version=1,
                pool="main",
                capacity={"cpu": 4_000, "memory": 2**33},
            )
            await stream.write(registry_pb2.ConnectRequest(hello=hello))
            sent: dict[int, float] = {}
            lock = asyncio.Lock()
            beating = asyncio.create_task(self._beat(name, stream, sent, lock, rng))
            counted = False
            reports = 0
            try:
                while (message := await stream.read()) is not None:
                    match message.WhichOneof("message"):
                        case "session":
                            self.sessions += 1
                            counted = True
                        case "heartbeat_ack":
                            began = sent.pop(message.heartbeat_ack.sequence, None)
                            if began is not None:
                                self.round_trips.append(time.perf_counter() - began)
                        case "command":
                            reports += 1
                            async with lock:
                                await stream.write(answer(message.command, reports))
            finally:
                self.sessions -= counted
                beating.cancel()

    async def _beat(
        self, name: str, stream: Any, sent: dict[int, float], lock: asyncio.Lock, rng: random.Random
    ) -> None:
        await asyncio.sleep(rng.uniform(0, self.period_s))
        sequence = 0
        while True:
            sequence += 1
            if name not in self.silent:
                sent[sequence] = time.perf_counter()
                beat = registry_pb2.Heartbeat(sequence=sequence)
                async with lock:
                    await stream.write(registry_pb2.ConnectRequest(heartbeat=beat))
            await asyncio.sleep(self.period_s)


def answer(command: agent_pb2.Command, sequence: int) -> registry_pb2.ConnectRequest:
    """Return the report that a command's work ended well."""
    report = agent_pb2.Report(
        report_id=f"{command.command_id}.r",
        command_id=command.command_id,
        lease=command.lease,
        attempt=command.attempt,
        rank=command.rank,
        kind=agent_pb2.Report.KIND_ENDED,
        exit_code=0,
        sequence=sequence,
    )
    return registry_pb2.ConnectRequest(report_batch=registry_pb2.ReportBatch(reports=[report]))


async def until(done: Callable[[], bool | Awaitable[bool]], within_s: float) -> float:
    """Return the seconds until something holds; fails when it takes too long."""
    began = time.perf_counter()
    while True:
        held = done()
        if not isinstance(held, bool):
            held = await held
        if held:
            return time.perf_counter() - began
        assert time.perf_counter() - began < within_s, "it took too long"
        await asyncio.sleep(0.02)


def spread(values: list[float]) -> str:
    """Return the median and the 99th percentile in milliseconds."""
    ordered = sorted(values)
    median, high = (
        statistics.median(ordered),
        ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)],
    )
    return f"p50 {median * 1e3:.1f} p99 {high * 1e3:.1f} ms"


class Leader:
    """A pool's leader: dispatches commands and watches their reports."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._stub = RegistryServiceStub(client.channel)
        self.seen: dict[str, float] = {}

    async def watch(self) -> None:
        request = registry_pb2.WatchReportsRequest(pool="main")
        async with self._client.stream(self._stub.WatchReports, request) as stream:
            async for event in stream:
                self.seen[event.report.command_id] = time.perf_counter()

    async def send(self, commands: list[agent_pb2.Command]) -> None:
        request = registry_pb2.DispatchCommandsRequest(
            scope="pool/main", epoch=1, commands=commands
        )
        response = await self._client.call(self._stub.DispatchCommands, request, timeout_s=30)
        assert not any(verdict.reason for verdict in response.verdicts), response.verdicts[0]

    async def count(self, state: int) -> int:
        request = registry_pb2.ListAgentsRequest(page_size=5_000, states=[state])  # type: ignore[list-item]
        total = 0
        while True:
            page = await self._client.call(self._stub.ListAgents, request, timeout_s=30)
            total += len(page.agents)
            request.page_token = page.next_page_token
            if not page.next_page_token:
                return total

    async def all_in(self, state: int, count: int) -> bool:
        return await self.count(state) == count


def start(agent: str, lease: str) -> agent_pb2.Command:
    return agent_pb2.Command(
        command_id=f"{lease}.start",
        agent=f"agents/{agent}",
        lease=f"leases/{lease}",
        attempt=1,
        start=agent_pb2.StartCommand(),
    )


async def measure(options: argparse.Namespace, folder: Path, dsn: str) -> None:
    names = [f"agent-{i:05}" for i in range(options.agents)]
    made = {name: create_key(name, {Role.AGENT}) for name in names}
    leader_key, leader_entry = create_key("leader", {Role.SERVICE})
    keyring = folder / "keyring.json"
    Keyring([*(entry for _, entry in made.values()), leader_entry]).store(keyring)
    period_ms = int(options.period_s * 1_000)
    registry = Registries(
        [
            Registry(folder, dsn, keyring, period_ms, f"registry-{number}")
            for number in range(options.replicas)
        ]
    )
    await registry.start()
    agents = Agents({name: made[name][0] for name in names}, options.channels, options.period_s)
    figures, count = Figures(), options.agents
    figures.say(f"{count} agents, a beat every {options.period_s:g} s", "measured", "goal")
    idle_kib = registry.memory_kib()
    leader = Leader(
        Client(
            open_channel(ChannelOptions(f"127.0.0.1:{registry.replicas[0].port}")),
            api_key=leader_key,
        )
    )
    watching = asyncio.create_task(leader.watch())
    try:
        cpu = registry.cpu_s()
        agents.connect([replica.port for replica in registry.replicas], spread_s=0.0)
        took = await until(lambda: agents.sessions == count, 120)
        figures.say("connect storm, all at once", f"{took:.1f} s", "20 s")
        figures.say("  streams that failed on the way", str(agents.failures), "0")
        figures.say("  registry CPU a connect", f"{(registry.cpu_s() - cpu) / count * 1e3:.2f} ms")
        await beats(options, registry, agents, figures, dsn)
        each_kib = (registry.memory_kib() - idle_kib) / count
        figures.say("registry memory an agent", f"{each_kib:.1f} KiB", "40 KiB")
        await commands(leader, names, figures)
        await losses(options, leader, agents, names, figures)
        await restart(registry, leader, agents, count, figures)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        figures.say("memory of the process that plays the agents", f"{peak:.0f} MiB")
    finally:
        watching.cancel()
        await agents.close()
        await registry.stop()


async def beats(
    options: argparse.Namespace, registry: Registries, agents: Agents, figures: Figures, dsn: str
) -> None:
    connection = await asyncpg.connect(dsn)
    ids = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
    wal = "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"
    await asyncio.sleep(options.period_s)
    agents.round_trips.clear()
    cpu, began = registry.cpu_s(), time.perf_counter()
    before = await connection.fetchval(ids), await connection.fetchval(wal)
    await asyncio.sleep(options.seconds)
    took, used = time.perf_counter() - began, registry.cpu_s() - cpu
    after = await connection.fetchval(ids), await connection.fetchval(wal)
    await connection.close()
    answered = len(agents.round_trips)
    figures.say(
        "beats answered", f"{answered / took:.0f}/s", f"{options.agents / options.period_s:.0f}/s"
    )
    figures.say(
        "  registry CPU a beat, everything included", f"{used / answered * 1e3:.3f} ms", "1 ms"
    )
    figures.say("  round trip", spread(agents.round_trips))
    figures.say(
        "  PostgreSQL transactions that wrote",
        f"{(after[0] - before[0]) / took:.2f}/s",
        "no growth",
    )
    figures.say("  WAL", f"{float(after[1] - before[1]) / took / 1024:.1f} KiB/s", "no growth")


async def commands(leader: Leader, names: list[str], figures: Figures) -> None:
    trips, until_told = [], []
    for index in range(200):
        command = start(names[index % len(names)], f"single-{index}")
        began = time.perf_counter()
        await leader.send([command])
        until_told.append(time.perf_counter() - began)
        while command.command_id not in leader.seen:
            await asyncio.sleep(0.0005)
        trips.append(leader.seen[command.command_id] - began)
    figures.say("one command: dispatch acknowledged (durable)", spread(until_told))
    figures.say("  dispatch, run, report stored, leader told", spread(trips), "p50 5 p99 25 ms")
    batch = [start(name, f"batch-{name}") for name in names[:1_000]]
    began = time.perf_counter()
    await leader.send(batch)
    await until(lambda: all(command.command_id in leader.seen for command in batch), 60)
    took = time.perf_counter() - began
    figures.say(f"{len(batch)} commands to as many agents, all answered", f"{took:.2f} s", "2 s")


async def losses(
    options: argparse.Namespace, leader: Leader, agents: Agents, names: list[str], figures: Figures
) -> None:
    loss_s = options.period_s * 4
    agents.silent.add(names[0])
    took = await until(lambda: leader.all_in(LOST, 1), loss_s * 2 + options.period_s)
    # The last beat came up to a period before the silence began.
    figures.say("one falls silent: lost after", f"{took:.1f} s", f"{loss_s:g} s + 1 s")
    agents.silent.clear()
    await until(lambda: leader.all_in(ALIVE, len(names)), 30)


async def restart(
    registry: Registries, leader: Leader, agents: Agents, count: int, figures: Figures
) -> None:
    await registry.stop(signal.SIGKILL)
    await until(lambda: agents.sessions == 0, 30)
    await registry.start()
    took = await until(lambda: agents.sessions == count, 120)
    figures.say("all back after kill -9 and a restart", f"{took:.1f} s", "15 s")
    figures.say("  lost", str(await leader.count(LOST)), "0")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=5_000)
    parser.add_argument("--channels", type=int, default=4, help="connections that streams share")
    parser.add_argument("--replicas", type=int, default=1, help="registry processes")
    parser.add_argument("--period-s", type=float, default=5.0, help="time between an agent's beats")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long beats are measured")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="tenure-bench-", dir="/tmp"))
    server = EmbeddedPostgres(folder / "postgres")
    try:
        await server.start()
        await measure(options, folder, await server.ensure_database("bench"))
    finally:
        await server.destroy()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    asyncio.run(main())
