"""Keeps the one stream to the registry: dial, say what is true, beat, listen, dial again.

Decides when to connect anew (the stream ended, or beats go unanswered) and how long to wait before
(full jitter, so that agents that lost a registry together do not return together). What is told is
handed to the executor, what happened comes from the outbox. The fence is renewed by answered beats
and by nothing else.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tenure.registry.v1 import agent_pb2, registry_pb2
from tenure.registry.v1.registry_pb2_grpc import RegistryServiceStub
from tenure_agent import convert
from tenure_agent.application import Application
from tenure_agent.executor import Executor
from tenure_agent.fence import Fence
from tenure_agent.inbox import Received, Wanted
from tenure_agent.ledger import Ledger
from tenure_agent.logs import Logs
from tenure_agent.outbox import Outbox
from tenure_agent.stream import (
    AgentStream,
    Identity,
    ProtocolBroken,
    Redirected,
    Terms,
    redirected,
    serve_log,
)
from tenure_agent.work import Key
from tenure_core.errors import DomainError
from tenure_core.timebase import Clock
from tenure_runtime.rpc.client import Client
from tenure_runtime.telemetry.logging import get_logger

FIRST_WAIT_S: Final = 0.1
LONGEST_WAIT_S: Final = 2.0
# A stream that lasted this long was a good one: the next wait begins small again.
_GOOD_S: Final = 5.0
_SESSION_WITHIN_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class SessionParts:
    """What a session works with. `dial` opens a client of an address."""

    identity: Identity
    dial: Callable[[str], Client]
    ledger: Ledger
    executor: Executor
    outbox: Outbox
    fence: Fence
    folder_of: Callable[[Key], Path]
    boot_clock: Clock
    rng: random.Random
    application: Application | None = None


class Session:
    """The stream, over all its reconnects. `opened` is set once there was a first one."""

    def __init__(self, parts: SessionParts, address: str) -> None:
        self._parts = parts
        self._home = address
        self._failures = 0
        self.opened = asyncio.Event()

    async def run(self) -> None:
        """Stay connected until cancelled."""
        address = self._home
        while True:
            began_ms = self._parts.boot_clock.now_ms()
            ended = await self._outcome(address)
            if self._parts.boot_clock.now_ms() - began_ms >= _GOOD_S * 1_000:
                self._failures = 0
            wait_s = max(_asked_s(ended), self._wait_s())
            reason = getattr(ended, "reason", type(ended).__name__)
            get_logger().warning("session.ended", reason=reason, wait_ms=round(wait_s * 1_000))
            address = ended.address if isinstance(ended, Redirected) else self._home
            await asyncio.sleep(wait_s)

    def _wait_s(self) -> float:
        self._failures += 1
        ceiling = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(self._failures - 1, 10))
        return self._parts.rng.uniform(0, ceiling)

    async def _outcome(self, address: str) -> Exception | None:
        """Serve one stream and return what ended it, None for a good end."""
        try:
            async with self._parts.dial(address or self._home) as client:
                await self._serve(client)
        except (DomainError, ProtocolBroken, Redirected) as error:
            return error
        except ExceptionGroup as group:
            expected, others = group.split((DomainError, ProtocolBroken, Redirected))
            if others is not None or expected is None:
                raise
            return _first(expected)
        return None

    async def _serve(self, client: Client) -> None:
        parts = self._parts
        stub = RegistryServiceStub(client.channel)
        async with client.duplex(stub.Connect) as duplex:
            now_ms = parts.boot_clock.now_ms
            stream = AgentStream(duplex, parts.identity.id, parts.outbox, now_ms)
            terms = await self._open(stream)
            logs = Logs(parts.ledger, parts.folder_of, stream.send_log)
            try:
                async with asyncio.TaskGroup() as tasks:
                    sender = tasks.create_task(stream.send_forever())
                    beater = tasks.create_task(self._beat(stream, terms))
                    await self._listen(stream, terms, logs)
                    sender.cancel()
                    beater.cancel()
            finally:
                logs.close()

    async def _open(self, stream: AgentStream) -> Terms:
        """Say hello and take up the session."""
        parts = self._parts
        try:
            async with asyncio.timeout(_SESSION_WITHIN_S):
                observed = parts.executor.observed()
                terms = await stream.hello(parts.identity, observed, parts.ledger.epochs)
        except TimeoutError:
            raise ProtocolBroken("NO_SESSION") from None
        for scope, epoch in terms.epochs.items():
            parts.ledger.raise_epoch(scope, epoch)
        parts.executor.begin_session(terms.session)
        parts.outbox.restart()
        get_logger().info("session.opened", session=terms.session, fence_ms=terms.fence_ms)
        self.opened.set()
        return terms

    async def _beat(self, stream: AgentStream, terms: Terms) -> None:
        """Beat, and give the stream up when beats go unanswered for half of the fence time."""
        patience_ms = max(terms.fence_ms // 2, 2 * terms.period_ms)
        sequence = 0
        while True:
            sequence += 1
            stream.beat(sequence, self._parts.executor.running_count())
            if self._parts.application is not None:
                stream.tell_application(self._parts.application.report())
            await asyncio.sleep(terms.period_ms / 1_000)
            if stream.unanswered_ms() > patience_ms:
                raise ProtocolBroken("UNANSWERED")

    async def _listen(self, stream: AgentStream, terms: Terms, logs: Logs) -> None:
        told_wanted = False
        while (message := await stream.read()) is not None:
            match message.WhichOneof("message"):
                case "wanted_set":
                    told_wanted = True
                    wanted = convert.to_wanted(message.wanted_set)
                    await self._parts.executor.submit(Wanted(wanted, terms.session))
                case "command":
                    if not told_wanted:
                        raise ProtocolBroken("COMMAND_BEFORE_WANTED_SET")
                    await self._parts.executor.submit(self._received(message.command, terms))
                case "heartbeat_ack":
                    self._renew(stream, message.heartbeat_ack, terms)
                case "report_ack":
                    self._parts.outbox.acknowledge(message.report_ack.sequence)
                case "log_request":
                    await serve_log(logs, message.log_request)
                case "application_order":
                    if self._parts.application is not None:
                        await self._parts.application.take(message.application_order)
                case "redirect":
                    raise redirected(message.redirect)
                case _:
                    pass  # said by a newer registry; nothing that we know of

    def _renew(self, stream: AgentStream, answer: registry_pb2.HeartbeatAck, terms: Terms) -> None:
        sent_ms = stream.answered(answer.sequence)
        if sent_ms is not None:
            self._parts.fence.renew(sent_ms, terms.fence_ms)

    def _received(self, message: agent_pb2.Command, terms: Terms) -> Received:
        at_ms = self._parts.boot_clock.now_ms()
        try:
            return Received(convert.to_command(message), terms.session, at_ms)
        except convert.Unreadable as error:
            return Received(error.command, terms.session, at_ms, problem=str(error))


def _asked_s(ended: Exception | None) -> float:
    """Return how long the registry asked us to stay away."""
    if isinstance(ended, Redirected):
        return ended.delay_s
    return (getattr(ended, "retry_after_ms", None) or 0) / 1_000


def _first(group: BaseExceptionGroup[Exception]) -> Exception:
    error: Exception | BaseExceptionGroup[Exception] = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
