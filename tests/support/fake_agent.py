"""A scripted agent on a real stream: it does what the test says and nothing by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tenure.registry.v1 import agent_pb2, registry_pb2
from tenure.registry.v1.registry_pb2_grpc import RegistryServiceStub
from tenure_runtime.rpc.client import Client

CAPACITY = {"cpu": 4_000, "memory": 8 * 2**30}


class FakeAgent:
    """One stream of one agent. Everything that comes down is kept in order in `heard`."""

    def __init__(self, stream: Any, agent: str) -> None:
        self.stream = stream
        self.agent = agent
        self.heard: list[registry_pb2.ConnectResponse] = []
        self.session = registry_pb2.Session()
        self.beats = 0
        self.reports = 0

    async def hello(self, **fields: Any) -> list[agent_pb2.Allocation]:
        """Say hello, and return the wanted set."""
        await self.say_hello(**fields)
        self.session = (await self.next("session")).session
        return list((await self.next("wanted_set")).wanted_set.allocations)

    async def say_hello(self, **fields: Any) -> None:
        given: dict[str, Any] = {
            "agent": f"agents/{self.agent}",
            "incarnation": "disk-1",
            "version": "0.1",
            "protocol_version": 1,
            "pool": "main",
            "capacity": CAPACITY,
            **fields,
        }
        await self.send(hello=registry_pb2.Hello(**given))

    async def send(self, **message: Any) -> None:
        await self.stream.write(registry_pb2.ConnectRequest(**message))

    async def beat(self, sequence: int | None = None, **load: int) -> None:
        """Send a beat without awaiting its answer."""
        self.beats = self.beats + 1 if sequence is None else sequence
        beat = registry_pb2.Heartbeat(sequence=self.beats, load=agent_pb2.Load(**load))
        await self.send(heartbeat=beat)

    async def answered_beat(self) -> None:
        """Send a beat and await its answer."""
        await self.beat()
        while (await self.next("heartbeat_ack")).heartbeat_ack.sequence < self.beats:
            pass

    async def report(self, *reports: agent_pb2.Report) -> int:
        """Send reports in one batch and return the acknowledged sequence."""
        await self.send(report_batch=registry_pb2.ReportBatch(reports=reports))
        return (await self.next("report_ack")).report_ack.sequence

    def about(
        self, command: agent_pb2.Command | None, kind: str, **fields: Any
    ) -> agent_pb2.Report:
        """Return the next report of the journal, about a command's allocation."""
        self.reports += 1
        base: dict[str, Any] = {}
        if command is not None:
            base = {
                "command_id": command.command_id,
                "lease": command.lease,
                "attempt": command.attempt,
                "rank": command.rank,
            }
        return agent_pb2.Report(
            **{
                "report_id": f"{self.agent}.{self.reports}",
                "sequence": self.reports,
                "kind": agent_pb2.Report.Kind.Value(f"KIND_{kind}"),
                "agent": f"agents/{self.agent}",
                **base,
                **fields,
            }
        )

    async def next(self, kind: str, timeout_s: float = 5.0) -> registry_pb2.ConnectResponse:
        """Return the next message of a kind; others are kept in `heard` only."""
        async with asyncio.timeout(timeout_s):
            while True:
                message = await self.stream.read()
                assert message is not None, f"the stream ended while a {kind} was awaited"
                self.heard.append(message)
                if message.WhichOneof("message") == kind:
                    return message

    async def command(self) -> agent_pb2.Command:
        return (await self.next("command")).command

    async def end(self, timeout_s: float = 5.0) -> None:
        """Read until the stream ends; raises the DomainError that it ended with."""
        async with asyncio.timeout(timeout_s):
            while (message := await self.stream.read()) is not None:
                self.heard.append(message)


@asynccontextmanager
async def connected(client: Client, agent: str) -> AsyncIterator[FakeAgent]:
    """Open a stream as `agent`; nothing is said yet."""
    async with client.duplex(RegistryServiceStub(client.channel).Connect) as stream:
        yield FakeAgent(stream, agent)


def start(
    agent: str, lease: str = "l1", attempt: int = 1, rank: int = 0, n: int = 0, **fields: Any
) -> agent_pb2.Command:
    """Return a START command."""
    return command(agent, "start", lease, attempt, rank, n, agent_pb2.StartCommand(), **fields)


def command(
    agent: str,
    verb: str,
    lease: str = "l1",
    attempt: int = 1,
    rank: int = 0,
    n: int = 0,
    content: Any = None,
    **fields: Any,
) -> agent_pb2.Command:
    """Return a command of a verb."""
    contents = {
        "prepare": agent_pb2.PrepareCommand,
        "start": agent_pb2.StartCommand,
        "suspend": agent_pb2.SuspendCommand,
        "resume": agent_pb2.ResumeCommand,
        "stop": agent_pb2.StopCommand,
    }
    return agent_pb2.Command(
        **{
            "command_id": f"{lease}.{attempt}.{rank}.{verb}.{n}",
            "agent": f"agents/{agent}",
            "lease": f"leases/{lease}",
            "attempt": attempt,
            "rank": rank,
            verb: content or contents[verb](),
            **fields,
        }
    )


def kinds(messages: Sequence[registry_pb2.ConnectResponse]) -> list[str]:
    """Return what each message is."""
    return [str(message.WhichOneof("message")) for message in messages]
