"""One agent's open stream: hello, then messages both ways until either side ends it.

The edge of the registry for agents, as `servicer` is for everyone else: unpacks, validates, calls,
packs. Decides the order on the wire (session, wanted set, commands), that answers never overtake
one another, and that a stream which is not read, floods or goes backward ends without harm to
others.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import grpc

from tenure.registry.v1 import application_pb2, registry_pb2
from tenure.registry.v1.registry_pb2 import ConnectRequest, ConnectResponse, HeartbeatAck, ReportAck
from tenure_core.agents.intake import Intake, IntakeLimits
from tenure_core.agents.work import Report
from tenure_core.errors import DomainError, Exhausted, Forbidden, WrongState
from tenure_core.timebase import Clock, Millis
from tenure_registry import convert, metrics, validation
from tenure_registry.sessions import LiveAgent
from tenure_registry.usecases import RegistryUseCases
from tenure_registry.values import LogRequest, Outgoing
from tenure_runtime.rpc.draining import Draining
from tenure_runtime.rpc.identity import Identity
from tenure_runtime.rpc.wellformed import well_formed
from tenure_runtime.rpc.wire import bare, to_duration
from tenure_runtime.telemetry.logging import get_logger

# grpc's context is only partly typed.
Context = Any
_EOF: Final[Any] = grpc.aio.EOF  # type: ignore[attr-defined]  # missing in the stubs
OUTBOX_MAX: Final = 5_000
SENT_MAX: Final = 10_000
"""So many commands of one stream are measured until they are reported on."""
FIRST_PART: Final = 500


@dataclass(frozen=True, slots=True)
class StreamTerms:
    """What every stream is told and held to."""

    heartbeat_ms: Millis
    fence_ms: Millis
    loss_ms: Millis
    hello_s: float = 10.0
    write_s: float = 30.0
    limits: IntakeLimits = field(default_factory=IntakeLimits)


class AgentStream:
    """Serves one stream: `await AgentStream(...).serve()` returns when the agent has ended it."""

    def __init__(
        self,
        context: Context,
        cases: RegistryUseCases,
        terms: StreamTerms,
        clock: Clock,
        draining: Draining,
    ) -> None:
        self._context = context
        self._cases = cases
        self._terms = terms
        self._clock = clock
        self._draining = draining
        self._intake = Intake(terms.limits, clock.now_ms())
        self._outbox: deque[ConnectResponse] = deque()
        self._sent: dict[str, tuple[str, Millis]] = {}
        """Commands without a report, with verb and when they were sent."""
        self._writing = False
        self._writer: asyncio.Task[None] | None = None
        self._error: DomainError | None = None
        self._task: asyncio.Task[Any] | None = None
        self._agent = ""

    async def serve(self, caller: Identity) -> None:
        """Serve until the agent ends its side. Raises the DomainError that ends it otherwise."""
        self._task = asyncio.current_task()
        try:
            await self._serve(caller)
        except asyncio.CancelledError:
            if self._error is None or self._task is None:
                raise
            self._task.uncancel()
            raise self._error from None
        finally:
            if self._writer is not None:
                self._writer.cancel()

    async def _serve(self, caller: Identity) -> None:
        hello = await self._read_hello(caller)
        if self._draining.begun:
            raise self._draining.error()
        claim = convert.claim_of(hello, self._cases.capacity_limits)
        live, opened = await self._cases.sessions.open(claim, convert.present_of(hello), self)
        try:
            terms = self._terms
            self._put(
                convert.session_response(opened, terms.heartbeat_ms, terms.fence_ms, terms.loss_ms)
            )
            self._put(convert.wanted_response(opened))
            waiting = self._cases.sessions.started(live, opened)
            for start in range(0, len(waiting), FIRST_PART):
                self.deliver(live.session, waiting[start : start + FIRST_PART])
                await self._emptied()
            get_logger().info("agent.connected", agent=live.agent, session=live.session)
            await self._emptied()
            while (message := await self._read()) is not None:
                await self._handle(live, message)
        finally:
            self._cases.closed(live)
            get_logger().info("agent.disconnected", agent=live.agent, session=live.session)

    async def _read_hello(self, caller: Identity) -> registry_pb2.Hello:
        try:
            async with asyncio.timeout(self._terms.hello_s):
                message = await self._read()
        except TimeoutError:
            message = None
        if message is None or message.WhichOneof("message") != "hello":
            raise WrongState("HELLO_EXPECTED", "The first message of a stream is a hello.")
        validation.hello(message.hello)
        agent = bare(message.hello.agent)
        if caller.name not in (agent, f"agent/{agent}"):
            raise Forbidden(
                "AGENT_NOT_ALLOWED",
                f"{caller.name} may not speak for agent {agent}.",
                caller=caller.name,
                agent=agent,
            )
        self._agent = agent
        return message.hello

    async def _read(self) -> ConnectRequest | None:
        message = await self._context.read()
        if message is _EOF:
            return None
        well_formed(message)
        request: ConnectRequest = message
        known_log = request.WhichOneof("message") == "log_chunk" and self._cases.logs.expects(
            request.log_chunk.log_request_id
        )
        try:
            # What was asked for is bounded by who asks; everything else by the stream's account.
            self._intake.take(0 if known_log else request.ByteSize(), self._clock.now_ms())
        except Exhausted as error:
            metrics.REFUSED_STREAMS.add(1, error.reason)
            raise
        return request

    async def _handle(self, live: LiveAgent, message: ConnectRequest) -> None:
        match message.WhichOneof("message"):
            case "heartbeat":
                beat = message.heartbeat
                self._intake.beat(beat.sequence)
                metrics.BEATS.add(1)
                metrics.BEAT_GAP.record(self._clock.now_ms() - live.contact_ms)
                if self._cases.sessions.beat(live, convert.load_of(beat)):
                    ack = HeartbeatAck(sequence=beat.sequence)
                    await self._send(ConnectResponse(heartbeat_ack=ack))
            case "report_batch":
                await self._record(live, message.report_batch)
            case "log_chunk":
                chunk = message.log_chunk
                if len(chunk.data) <= validation.LOG_DATA_MAX:
                    self._cases.logs.arrived(live.agent, convert.log_part_of(chunk))
            case "application_report":
                await self._application(live, message.application_report)
            case "hello":
                raise WrongState("HELLO_EXPECTED", "A stream has one hello, its first message.")
            case _:
                pass  # A newer agent may say what this release does not know.

    async def _record(self, live: LiveAgent, batch: registry_pb2.ReportBatch) -> None:
        validation.reports(batch)
        reports = [convert.report_of(report, live.agent) for report in batch.reports]
        if reports:
            await self._cases.record(live, reports)
            self._answered(reports)
            highest = max(report.sequence for report in reports)
            await self._send(ConnectResponse(report_ack=ReportAck(sequence=highest)))

    async def _application(
        self, live: LiveAgent, report: application_pb2.ApplicationReport
    ) -> None:
        if live.given_up or not validation.is_application(report):
            return
        body = report.SerializeToString(deterministic=True)
        if (order := await self._cases.application_reported(live, body)) is not None:
            await self._send(convert.application_order_response(order))

    def _answered(self, reports: Sequence[Report]) -> None:
        now_ms = self._clock.now_ms()
        for report in reports:
            verb, sent_ms = self._sent.pop(report.command_id, ("", now_ms))
            if verb:
                metrics.COMMAND_LATENCY.record(now_ms - sent_ms, verb)

    # What others have this stream do (ports.AgentLink); nothing here waits.

    def deliver(self, session: str, outgoing: Sequence[Outgoing]) -> None:
        """Send commands, in order."""
        now_ms = self._clock.now_ms()
        for each in outgoing:
            self._put(convert.command_response(each, session))
            if len(self._sent) < SENT_MAX:
                self._sent[each.command.command_id] = (each.command.verb.value, now_ms)
        metrics.COMMANDS_SENT.add(len(outgoing))
        self._flush()

    def request_log(self, request: LogRequest) -> None:
        """Ask for a log, or end the request of that id."""
        self._put(convert.log_request_response(request))
        self._flush()

    def redirect(self, delay_ms: Millis) -> None:
        """Tell the agent to connect anew after a while."""
        redirect = registry_pb2.Redirect(delay_duration=to_duration(delay_ms))
        self._put(ConnectResponse(redirect=redirect))
        self._flush()

    def end(self, error: DomainError) -> None:
        """End the stream with an error, once what it is doing now is done."""
        if self._error is None:
            self._error = error
            if self._task is not None:
                self._task.cancel()

    # Writing: one message at a time, by whoever finds nobody writing.

    def _put(self, response: ConnectResponse) -> None:
        if len(self._outbox) >= OUTBOX_MAX:
            self.end(too_slow(self._agent))
        else:
            self._outbox.append(response)

    async def _send(self, response: ConnectResponse) -> None:
        self._put(response)
        if not self._writing:
            await self._drain()

    async def _emptied(self) -> None:
        """Return when all was written."""
        while self._outbox:
            if self._writing and self._writer is not None:
                await asyncio.wait({self._writer})
            else:
                await self._drain()

    def _flush(self) -> None:
        if self._outbox and not self._writing:
            self._writing = True
            self._writer = asyncio.get_running_loop().create_task(self._drain_for_others())

    async def _drain_for_others(self) -> None:
        try:
            await self._drain()
        except DomainError as error:
            self.end(error)
        except (grpc.aio.BaseError, asyncio.InvalidStateError):
            pass  # The stream is gone; its reader sees that too.

    async def _drain(self) -> None:
        self._writing = True
        try:
            while self._outbox:
                async with asyncio.timeout(self._terms.write_s):
                    await self._context.write(self._outbox[0])
                self._outbox.popleft()
        except TimeoutError:
            raise too_slow(self._agent) from None
        finally:
            self._writing = False


def too_slow(agent: str) -> Exhausted:
    """Return the error that ends a stream whose agent does not read."""
    return Exhausted(
        "AGENT_TOO_SLOW",
        "The agent does not read what it is sent.",
        retry_after_ms=1_000,
        agent=agent,
    )
