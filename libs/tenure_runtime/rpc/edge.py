"""The server's edge: what happens around every call, whatever it does.

In this order: the trace is continued, the deadline stored, the caller identified and its right to
the method checked, a message that is not well formed refused, the handler run, an error turned into
a status, and one line logged. All of it is one interceptor: each further one would cost another
wrapping of the handler.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, cast

import grpc
from google.rpc import status_pb2

from tenure_core.audit.entry import Origin
from tenure_core.errors import DomainError, Exhausted, Unavailable
from tenure_core.timebase import Millis
from tenure_runtime.clocks import SystemClock
from tenure_runtime.ids import RandomIds
from tenure_runtime.rpc import deadline, identity, origin, status
from tenure_runtime.rpc.gate import Gate
from tenure_runtime.rpc.identity import Permissions
from tenure_runtime.rpc.peer import peer_of, vouched
from tenure_runtime.rpc.shedding import OVERLOADED, RETRY_AFTER_MS, Load, takes_its_time
from tenure_runtime.rpc.watch import WatcherTooSlow
from tenure_runtime.rpc.wellformed import reading, well_formed
from tenure_runtime.telemetry import metrics
from tenure_runtime.telemetry.logging import Logger, get_logger
from tenure_runtime.telemetry.tracing import TRACEPARENT, adopt, span

# grpc's own types are partial stubs; handlers and contexts stay untyped in this module only.
Handler = Any
Context = Any

_CLOCK: Final = SystemClock()


@dataclass(frozen=True, slots=True)
class Edge:
    """What the interceptor needs to know of its server.

    `service` is the short name that error domains carry. `write_timeout_s` bounds how long one
    message of a stream may wait for a reader that does not read. With `certificates`, who calls is
    known by certificate and key together.
    """

    service: str
    gate: Gate
    permissions: Permissions
    write_timeout_s: float = 30.0
    certificates: bool = False


class EdgeInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg] # generic in stubs only
    """Wraps every handler of a server in the edge, once."""

    def __init__(self, edge: Edge) -> None:
        self._edge = edge
        self._load = Load()
        self._wrapped: dict[str, tuple[Handler, Handler]] = {}
        self._refusing = _refusing(edge.service)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Return the handler with the edge around it; None when no such method exists."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        method = handler_call_details.method
        if self._load.is_behind() and not self._is_vital(method, handler_call_details):
            metrics.record_call(method, _REFUSED, 0.0)
            return self._refusing[bool(handler.response_streaming)]
        if not (handler.request_streaming or handler.response_streaming or takes_its_time(method)):
            self._load.note(asyncio.current_task())
        known, wrapped = self._wrapped.get(method, (None, None))
        if known is not handler:
            wrapped = _wrap(self._edge, method, handler)
            self._wrapped[method] = (handler, wrapped)
        return wrapped

    def _is_vital(self, method: str, details: grpc.HandlerCallDetails) -> bool:
        """Say whether a call is served under any load: a probe's, a service's or an agent's."""
        if method.startswith(identity.OPEN_PREFIXES):
            return True
        metadata = details.invocation_metadata or ()
        shown = next((value for key, value in metadata if key == "authorization"), "")
        return self._edge.gate.is_of_machinery(str(shown))


_REFUSED: Final = grpc.StatusCode.RESOURCE_EXHAUSTED.name


def _refusing(service: str) -> dict[bool, Handler]:
    """Return handlers that refuse, by whether they stream answers; no request is decoded."""
    text = "The service is behind with the calls that it has; try again a little later."
    answer = status.encode(Exhausted(OVERLOADED, text, retry_after_ms=RETRY_AFTER_MS), service)
    trailing = ((status.DETAILS_KEY, answer.SerializeToString()),)

    async def refuse(_: object, context: Context) -> None:
        await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text, trailing)

    return {
        False: grpc.unary_unary_rpc_method_handler(refuse),
        True: grpc.unary_stream_rpc_method_handler(refuse),
    }


def _wrap(edge: Edge, method: str, handler: Handler) -> Handler:
    streams = (handler.request_streaming, handler.response_streaming)
    inner, make = {
        (False, False): (handler.unary_unary, grpc.unary_unary_rpc_method_handler),
        (True, False): (handler.stream_unary, grpc.stream_unary_rpc_method_handler),
        (False, True): (handler.unary_stream, grpc.unary_stream_rpc_method_handler),
        (True, True): (handler.stream_stream, grpc.stream_stream_rpc_method_handler),
    }[streams]
    is_stream = handler.request_streaming or handler.response_streaming
    around = _around(edge, method, _writing(inner, edge.write_timeout_s), is_stream=is_stream)
    # A stream's messages are read by its handler, which says `well_formed` of each.
    return make(
        around,
        request_deserializer=reading(handler.request_deserializer),
        response_serializer=handler.response_serializer,
    )


def _writing(inner: Handler, timeout_s: float) -> Handler:
    """Return a coroutine that writes what an async generator yields, each within `timeout_s`.

    A client that stops reading would otherwise hold its handler, and all it holds, for ever.
    """
    if not inspect.isasyncgenfunction(inner):
        return inner

    async def write_all(request: object, context: Context) -> None:
        async with aclosing(inner(request, context)) as messages:
            async for message in messages:
                try:
                    async with asyncio.timeout(timeout_s):
                        await context.write(message)
                except TimeoutError:
                    metrics.WATCHERS_CUT_OFF.add(1)
                    raise WatcherTooSlow() from None

    return write_all


@asynccontextmanager
async def _until(ends_ms: Millis) -> AsyncIterator[None]:
    """End a stream with its credential. Raises Unavailable CREDENTIAL_ENDED: open it anew."""
    try:
        async with asyncio.timeout((ends_ms - _CLOCK.now_ms()) / 1_000) as limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        text = "The credential of this stream has to be shown again."
        raise Unavailable("CREDENTIAL_ENDED", text, retry_after_ms=0) from None


def _around(edge: Edge, method: str, inner: Handler, *, is_stream: bool) -> Handler:
    is_open = method.startswith(identity.OPEN_PREFIXES)
    log = get_logger().bind()

    async def handle(request: object, context: Context) -> object:
        started = time.perf_counter()
        metadata = {k: v for k, v in context.invocation_metadata() or () if isinstance(v, str)}
        adopt(metadata.get(TRACEPARENT))
        deadline.enter(context.time_remaining())
        call = _Call(edge, method, context, log, started)
        try:
            with span(method[1:], kind="server", rpc_system="grpc"):
                if not is_open:
                    await call.admit(metadata.get("authorization"), request)
                well_formed(request)
                if is_stream and call.ends_ms is not None:
                    async with _until(call.ends_ms):
                        response = await inner(request, context)
                else:
                    response = await inner(request, context)
        except asyncio.CancelledError:
            call.ended("CANCELLED")
            raise
        except grpc.aio.AbortError:
            call.ended("ABORTED_BY_HANDLER")
            raise
        except DomainError as error:
            await call.refuse(error)
        except Exception as error:  # noqa: BLE001 - this is the edge: nothing may leak out of it
            await call.failed(error)
        else:
            call.ended("OK", quiet=is_open)
            return cast(object, response)
        raise AssertionError("a refused call has been aborted")

    return handle


@dataclass(slots=True)
class _Call:
    """One call under way: how it is admitted, and how it ends."""

    edge: Edge
    method: str
    context: Context
    log: Logger
    started: float
    caller: str = ""
    ends_ms: Millis | None = None

    async def admit(self, authorization: str | None, request: object) -> None:
        """Identify the caller and check its right. Raises as the gate, or Forbidden."""
        known = await self.edge.gate.admit(authorization, self.context.peer())
        self.caller = known.name
        self.ends_ms = known.ends
        if self.edge.certificates:
            known = vouched(known, peer_of(self.context.auth_context()))
        self.edge.permissions.check(known, self.method)
        identity.enter(known)
        name, peer = self.method.rpartition("/")[2], self.context.peer()
        origin.enter(Origin(known.name, name, peer, getattr(request, "request_id", "")))

    def ended(self, code: str, *, quiet: bool = False, **facts: object) -> None:
        """Log the one line of this call and count it."""
        duration_ms = round((time.perf_counter() - self.started) * 1_000, 3)
        metrics.record_call(self.method, code, duration_ms)
        say = self.log.debug if quiet else self.log.info
        say(
            "call.served",
            method=self.method,
            code=code,
            caller=self.caller,
            duration_ms=duration_ms,
            **facts,
        )

    async def refuse(self, error: DomainError) -> None:
        """End the call with the status of an expected failure."""
        code = status.code_of(error)
        if code is grpc.StatusCode.INTERNAL:
            # A neighbour's bug: its incident is in the trace of this one.
            await self.failed(error)
        self.ended(code.name, reason=error.reason)
        await self._abort(status.encode(error, self.edge.service))

    async def failed(self, error: Exception) -> None:
        """End the call with a neutral sentence; the log has the rest under the same incident."""
        incident = RandomIds().short(10)
        self.log.error("call.failed", method=self.method, incident=incident, exc_info=error)
        self.ended("INTERNAL", incident=incident)
        await self._abort(status.internal(incident, self.edge.service))

    async def _abort(self, answer: status_pb2.Status) -> None:
        await self.context.abort(
            _code_of(answer), answer.message, ((status.DETAILS_KEY, answer.SerializeToString()),)
        )


def _code_of(answer: status_pb2.Status) -> grpc.StatusCode:
    return next(code for code in grpc.StatusCode if code.value[0] == answer.code)
