"""One open stream: what goes up in which order, and what comes down as values.

Decides the order of sending: a beat that is due first, then reports, then parts of logs, each group
of reports in one message. One task writes, because a gRPC stream takes one write at a time; a
registry that does not read holds everything back here, within bounds.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from tenure.registry.v1 import agent_pb2, application_pb2, registry_pb2
from tenure_agent import convert
from tenure_agent.capacity import UsageMeter
from tenure_agent.logs import LogPart, Logs, LogWish
from tenure_agent.outbox import Outbox
from tenure_agent.work import Observed
from tenure_core.errors import Unavailable
from tenure_runtime.rpc.stream import ClientStream
from tenure_runtime.rpc.wire import span_to_millis

PROTOCOL_VERSION: Final = 1
_LOG_PARTS_MAX: Final = 8
_BEATS_MAX: Final = 1_000
# Terms that a registry leaves out.
_PERIOD_MS: Final = 1_000
_FENCE_MS: Final = 15_000

Duplex = ClientStream[registry_pb2.ConnectRequest, registry_pb2.ConnectResponse]


class ProtocolBroken(Exception):
    """The registry breaks the contract, or is silent: a new stream is the way out."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this agent is and what its machine has."""

    id: str
    incarnation: str
    version: str
    pool: str
    capacity: Mapping[str, int]
    attributes: Mapping[str, str]
    suspended_keeps: tuple[str, ...]
    sealing_key: bytes


@dataclass(frozen=True, slots=True)
class Terms:
    """What the registry answered: the session and its times."""

    session: str
    period_ms: int
    fence_ms: int
    epochs: Mapping[str, int]


class AgentStream:
    """The agent's end of a stream that was opened."""

    def __init__(
        self, duplex: Duplex, agent: str, outbox: Outbox, now_ms: Callable[[], int]
    ) -> None:
        self._duplex = duplex
        self._agent = agent
        self._outbox = outbox
        self._now_ms = now_ms
        self._usage = UsageMeter()
        self._beat: registry_pb2.Heartbeat | None = None
        self._due_ms = 0
        self._application: application_pb2.ApplicationReport | None = None
        self._sent: dict[int, int] = {}
        self._log_parts: deque[LogPart] = deque()
        self._log_space = asyncio.Event()
        self._log_space.set()

    async def hello(
        self, identity: Identity, allocations: list[Observed], epochs: Mapping[str, int]
    ) -> Terms:
        """Say who calls and what is true; return the terms that the registry answers."""
        hello = registry_pb2.Hello(
            agent=f"agents/{identity.id}",
            incarnation=identity.incarnation,
            version=identity.version,
            protocol_version=PROTOCOL_VERSION,
            pool=identity.pool,
            capacity=identity.capacity,
            attributes=identity.attributes,
            suspended_keeps=identity.suspended_keeps,
            sealing_key=identity.sealing_key,
            allocations=[convert.from_observed(each) for each in allocations],
            epochs=epochs,
        )
        await self._duplex.write(registry_pb2.ConnectRequest(hello=hello))
        response = await self._duplex.read()
        if response is None:
            raise Unavailable("STREAM_ENDED", "The registry ended the stream before a session.")
        if response.WhichOneof("message") == "redirect":
            raise redirected(response.redirect)
        if response.WhichOneof("message") != "session":
            raise ProtocolBroken("SESSION_EXPECTED")
        session = response.session
        return Terms(
            session.session,
            span_to_millis(session.heartbeat_period) or _PERIOD_MS,
            span_to_millis(session.fence_duration) or _FENCE_MS,
            dict(session.epochs),
        )

    async def read(self) -> registry_pb2.ConnectResponse | None:
        """Return the next message, None when the registry ended the stream well."""
        return await self._duplex.read()

    # Up.

    def beat(self, sequence: int, running_count: int) -> None:
        """Have a beat sent next."""
        usage = self._usage.look()
        load = agent_pb2.Load(
            cpu_permille=usage.cpu_permille,
            memory_bytes=usage.memory_bytes,
            running_count=running_count,
        )
        if self._beat is None:
            self._due_ms = self._now_ms()
        self._beat = registry_pb2.Heartbeat(sequence=sequence, load=load)
        self._outbox.changed.set()

    def tell_application(self, report: application_pb2.ApplicationReport | None) -> None:
        """Have what the application says sent; only its newest word counts."""
        if report is not None:
            self._application = report
            self._outbox.changed.set()

    def answered(self, sequence: int) -> int | None:
        """Return when a beat was sent (boot clock), None for one that was never sent.

        Contact is proven up to then, so older beats need no answer any more.
        """
        sent_ms = self._sent.get(sequence)
        if sent_ms is not None:
            for older in [each for each in self._sent if each <= sequence]:
                del self._sent[older]
        return sent_ms

    def unanswered_ms(self) -> int:
        """Return for how long the oldest beat has waited for its answer, or to be sent at all."""
        waiting = list(self._sent.values())
        if self._beat is not None:
            waiting.append(self._due_ms)
        return self._now_ms() - min(waiting) if waiting else 0

    async def send_log(self, part: LogPart) -> None:
        """Have a part of a log sent, waiting while too many wait."""
        while len(self._log_parts) >= _LOG_PARTS_MAX:
            self._log_space.clear()
            await self._log_space.wait()
        self._log_parts.append(part)
        self._outbox.changed.set()

    async def send_forever(self) -> None:
        """Write what is to be sent, until cancelled or the stream ends."""
        while True:
            await self._outbox.changed.wait()
            beat, self._beat = self._beat, None
            if beat is not None:
                await self._send_beat(beat)
            said, self._application = self._application, None
            if said is not None:
                await self._duplex.write(registry_pb2.ConnectRequest(application_report=said))
            reports = self._outbox.take()
            if reports:
                await self._duplex.write(convert.from_reports(reports, self._agent))
            if self._log_parts:
                await self._duplex.write(_log_chunk(self._log_parts.popleft()))
                self._log_space.set()
            if self._log_parts:
                self._outbox.changed.set()

    async def _send_beat(self, beat: registry_pb2.Heartbeat) -> None:
        # The time before the write: a write may wait, and contact is proven up to the sending.
        if len(self._sent) < _BEATS_MAX:
            self._sent[beat.sequence] = self._now_ms()
        await self._duplex.write(registry_pb2.ConnectRequest(heartbeat=beat))


def _log_chunk(part: LogPart) -> registry_pb2.ConnectRequest:
    return registry_pb2.ConnectRequest(
        log_chunk=registry_pb2.LogChunk(
            log_request_id=part.id,
            offset=part.offset,
            data=part.data,
            end=part.end,
            reason=part.reason,
        )
    )


class Redirected(Exception):
    """The registry wants the agent elsewhere, or later."""

    def __init__(self, address: str, delay_s: float) -> None:
        super().__init__(address)
        self.address = address
        self.delay_s = delay_s


def redirected(message: registry_pb2.Redirect) -> Redirected:
    """Return what ends this stream because the registry said so."""
    return Redirected(message.address, span_to_millis(message.delay_duration) / 1_000)


async def serve_log(logs: Logs, request: registry_pb2.LogRequest) -> None:
    """Begin what a log request asks for, or end it."""
    if request.cancel:
        logs.cancel(request.log_request_id)
        return
    key = convert.to_key(request)
    await logs.begin(LogWish(request.log_request_id, key, request.offset, request.follow))
