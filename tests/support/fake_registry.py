"""A registry that says what a test tells it to, over real gRPC, and remembers what it heard.

It keeps the registry's side of the contract (session, wanted set before commands, answers to beats
and reports) unless the test turns a part of it off.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import grpc

from tenure.registry.v1 import agent_pb2, registry_pb2
from tenure.registry.v1.registry_pb2_grpc import (
    RegistryServiceServicer,
    add_RegistryServiceServicer_to_server,
)
from tenure_runtime.rpc.wire import to_duration

SCOPE = "pool/default"
Report = agent_pb2.Report


@dataclass
class Script:
    """How the registry behaves; a test may change it while it runs."""

    period_ms: int = 100
    fence_ms: int = 2_000
    loss_ms: int = 4_000
    answers_beats: bool = True
    answers_reports: bool = True
    epochs: dict[str, int] = field(default_factory=dict)


class FakeRegistry(RegistryServiceServicer):
    """One registry for the agents of a test."""

    def __init__(self, script: Script | None = None) -> None:
        self.script = script or Script()
        self.hellos: list[registry_pb2.Hello] = []
        self.keys: list[str] = []
        self.reports: list[agent_pb2.Report] = []
        self.heartbeats: list[registry_pb2.Heartbeat] = []
        self.log_chunks: list[registry_pb2.LogChunk] = []
        self.wanted: dict[tuple[str, int, int], int] = {}
        self.told: list[agent_pb2.Command] = []
        self.session = ""
        self.address = ""
        self._down: asyncio.Queue[registry_pb2.ConnectResponse | None] | None = None
        self._heard = asyncio.Condition()
        self._sessions = itertools.count(1)
        self._commands = itertools.count(1)

    # What agents call.

    async def Connect(self, requests, context):
        metadata = dict(context.invocation_metadata())
        self.keys.append(metadata.get("authorization", ""))
        first = await anext(aiter(requests))
        hello = first.hello
        self.session = f"session-{next(self._sessions)}"
        down: asyncio.Queue[registry_pb2.ConnectResponse | None] = asyncio.Queue()
        self._down = down
        down.put_nowait(registry_pb2.ConnectResponse(session=self._terms()))
        down.put_nowait(registry_pb2.ConnectResponse(wanted_set=self._wanted_set()))
        async with self._heard:
            self.hellos.append(hello)
            self._heard.notify_all()
        listening = asyncio.create_task(self._listen(requests, down))
        try:
            while (message := await down.get()) is not None:
                yield message
        finally:
            listening.cancel()

    def _terms(self) -> registry_pb2.Session:
        script = self.script
        return registry_pb2.Session(
            session=self.session,
            heartbeat_period=to_duration(script.period_ms),
            fence_duration=to_duration(script.fence_ms),
            loss_duration=to_duration(script.loss_ms),
            epochs=script.epochs,
        )

    def _wanted_set(self) -> registry_pb2.WantedSet:
        return registry_pb2.WantedSet(
            allocations=[
                agent_pb2.Allocation(
                    lease=f"leases/{lease}", attempt=attempt, rank=rank, state=state
                )
                for (lease, attempt, rank), state in self.wanted.items()
            ]
        )

    async def _listen(self, requests, down) -> None:
        async for request in requests:
            kind = request.WhichOneof("message")
            if kind == "heartbeat" and self.script.answers_beats:
                ack = registry_pb2.HeartbeatAck(sequence=request.heartbeat.sequence)
                down.put_nowait(registry_pb2.ConnectResponse(heartbeat_ack=ack))
            if kind == "report_batch" and self.script.answers_reports:
                upto = max(report.sequence for report in request.report_batch.reports)
                ack = registry_pb2.ReportAck(sequence=upto)
                down.put_nowait(registry_pb2.ConnectResponse(report_ack=ack))
            async with self._heard:
                self._remember(kind, request)
                self._heard.notify_all()

    def _remember(self, kind: str, request: registry_pb2.ConnectRequest) -> None:
        if kind == "heartbeat":
            self.heartbeats.append(request.heartbeat)
        elif kind == "report_batch":
            self.reports += request.report_batch.reports
            for report in request.report_batch.reports:
                if report.kind in (Report.KIND_ENDED, Report.KIND_REFUSED):
                    self.wanted.pop(_slot(report), None)
                elif _slot(report) in self.wanted:
                    self.wanted[_slot(report)] = agent_pb2.Allocation.STATE_RUNNING
        elif kind == "log_chunk":
            self.log_chunks.append(request.log_chunk)

    # What a test does.

    @property
    def beats(self) -> int:
        """Return how many beats came."""
        return len(self.heartbeats)

    async def until(self, condition: Callable[[], bool], within_s: float = 20.0) -> None:
        """Wait until something heard makes `condition` true."""
        async with asyncio.timeout(within_s), self._heard:
            await self._heard.wait_for(condition)

    async def connected(self, times: int = 1) -> None:
        """Wait until agents have said so many hellos."""
        await self.until(lambda: len(self.hellos) >= times)

    async def report(self, kind: int, lease: str = "", *, command_id: str = "") -> agent_pb2.Report:
        """Wait for a report of a kind, about a lease or answering a command, and return it."""

        def found() -> list[agent_pb2.Report]:
            return [
                each
                for each in self.reports
                if each.kind == kind
                and (not lease or each.lease == f"leases/{lease}")
                and (not command_id or each.command_id == command_id)
            ]

        await self.until(lambda: bool(found()))
        return found()[0]

    def of(self, lease: str) -> list[agent_pb2.Report]:
        """Return the distinct reports about a lease, in the order of their first coming."""
        distinct = {r.report_id: r for r in self.reports if r.lease == f"leases/{lease}"}
        return list(distinct.values())

    def send(self, message: registry_pb2.ConnectResponse) -> None:
        """Say something on the present stream."""
        assert self._down is not None, "no agent is connected"
        self._down.put_nowait(message)

    def command(
        self, lease: str, *, attempt: int = 1, rank: int = 0, **fields
    ) -> agent_pb2.Command:
        """Return a command of the present session; `start=…`, `stop=…` say what to do."""
        known = {
            "command_id": f"command-{next(self._commands)}",
            "scope": SCOPE,
            "epoch": 1,
            "session": self.session,
        }
        return agent_pb2.Command(
            lease=f"leases/{lease}", attempt=attempt, rank=rank, **{**known, **fields}
        )

    def tell(self, command: agent_pb2.Command) -> str:
        """Send a command; return its id. What is started becomes wanted."""
        if command.WhichOneof("kind") == "start":
            slot = (command.lease.removeprefix("leases/"), command.attempt, command.rank)
            self.wanted[slot] = agent_pb2.Allocation.STATE_STARTING
        self.told.append(command)
        self.send(registry_pb2.ConnectResponse(command=command))
        return command.command_id

    def start(
        self,
        lease: str,
        *words: str,
        environment: dict[str, str] | None = None,
        grace_ms: int = 1_000,
        on_loss: int = 1,
        amounts: dict[str, int] | None = None,
        secrets: tuple[str, ...] = (),
        sealed_secrets: bytes = b"",
        **fields,
    ) -> str:
        """Have a command run for a lease; return the command's id."""
        start = agent_pb2.StartCommand(
            on_loss=on_loss, stop_grace_duration=to_duration(grace_ms), node_count=1, nodes=["n1"]
        )
        start.work.command.extend(words)
        start.work.environment.update(environment or {})
        start.amounts.update(amounts or {})
        start.work.secrets.update(dict.fromkeys(secrets, "[hidden]"))
        start.sealed_secrets = sealed_secrets
        return self.tell(self.command(lease, start=start, **fields))

    def stop(self, lease: str, *, reason: str = "TIME_OVER", **fields) -> str:
        """Have a lease stopped."""
        return self.tell(self.command(lease, stop=agent_pb2.StopCommand(reason=reason), **fields))

    def suspend(self, lease: str) -> str:
        """Have a lease suspended."""
        return self.tell(self.command(lease, suspend=agent_pb2.SuspendCommand()))

    def resume(self, lease: str) -> str:
        """Have a lease resumed."""
        return self.tell(self.command(lease, resume=agent_pb2.ResumeCommand()))

    def repeat_unanswered(self) -> None:
        """Send every command that has no report again, for the present session."""
        answered = {report.command_id for report in self.reports}
        told, self.told = self.told, []
        for command in told:
            if command.command_id not in answered:
                command.session = self.session
                self.tell(command)

    def hang_up(self) -> None:
        """End the present stream."""
        assert self._down is not None
        self._down.put_nowait(None)


def _slot(report: agent_pb2.Report) -> tuple[str, int, int]:
    return (report.lease.removeprefix("leases/"), report.attempt, report.rank)


@asynccontextmanager
async def registry(
    script: Script | None = None, kind: type[FakeRegistry] = FakeRegistry
) -> AsyncIterator[FakeRegistry]:
    """Serve a fake registry on a free port for the length of a block."""
    fake = kind(script)
    server = grpc.aio.server()
    add_RegistryServiceServicer_to_server(fake, server)
    fake.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        yield fake
    finally:
        await server.stop(0)
