"""Calls other services: channels, deadlines, retries, and errors as domain errors.

Decides how a call travels: API key or token, and trace in its metadata, the incoming deadline
passed on, UNAVAILABLE and OVERLOADED repeated with jittered back-off, a call whose token is refused
made once more with another. Every changing call carries a request id, so a repeat does nothing more
than the first. Nothing is repeated inside a stream: its caller holds the resume token.
ABORTED is retried one level up, after reading again.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import grpc

from tenure_core.errors import Exhausted, Unauthenticated, Unavailable
from tenure_runtime.rpc import deadline, status
from tenure_runtime.rpc.renewing import RenewingChannel
from tenure_runtime.rpc.shedding import OVERLOADED
from tenure_runtime.rpc.stream import ClientStream
from tenure_runtime.rpc.tls import TlsContents, channel_credentials
from tenure_runtime.rpc.token_source import TokenSource, refuses_token
from tenure_runtime.rpc.transport import MESSAGE_BYTES_MAX, TlsFiles, refuse_after_fork
from tenure_runtime.telemetry.tracing import (
    TRACEPARENT,
    current_traceparent,
    outer_traceparent,
    span,
)

Request = TypeVar("Request")
Response = TypeVar("Response")

_Metadata = tuple[tuple[str, str], ...]
_SERVICE_CONFIG: Final = json.dumps({"loadBalancingConfig": [{"round_robin": {}}]})


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how far apart UNAVAILABLE and OVERLOADED are repeated.

    The wait before repeat n is uniform in [0, min(longest, first * 2^n)], but at least what the
    server asked for (full jitter: callers that failed together must not return together).
    """

    attempts: int = 8
    first_ms: int = 50
    longest_ms: int = 2_000

    def wait_ms(self, failures: int, rng: random.Random, asked_ms: int | None) -> float:
        """Return how long to wait after the given number of failures (1 is the first)."""
        ceiling = min(self.longest_ms, self.first_ms * 2 ** (failures - 1))
        return max(rng.uniform(0, ceiling), asked_ms or 0)


@dataclass(frozen=True, slots=True)
class ChannelOptions:
    """How a channel connects. `target` is host:port, or `ipv4:a:1,b:2` for several addresses."""

    target: str
    tls: TlsFiles | None = None
    keepalive_s: float = 20.0
    message_bytes_max: int = MESSAGE_BYTES_MAX


def open_channel(options: ChannelOptions) -> grpc.aio.Channel:
    """Open a channel that spreads its calls over all addresses and finds dead peers.

    With TLS it follows its files: see `renewing`. Raises ForkedProcess in a child of a process that
    used gRPC before it forked, and TlsFilesRefused.
    """
    refuse_after_fork()
    arguments: list[tuple[str, Any]] = [
        ("grpc.service_config", _SERVICE_CONFIG),
        ("grpc.max_receive_message_length", options.message_bytes_max),
        ("grpc.max_send_message_length", options.message_bytes_max),
        ("grpc.keepalive_time_ms", int(options.keepalive_s * 1_000)),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.http2.max_pings_without_data", 0),
        # A restarted server is found within two seconds; the default backs off to two minutes.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 2_000),
        # Despite its name, how long one attempt to connect may take, handshakes included.
        ("grpc.min_reconnect_backoff_ms", 5_000),
        # New replicas are found within seconds; the default asks the resolver every 30 s at most.
        ("grpc.dns_min_time_between_resolutions_ms", 5_000),
        # Channels of one process to one target must not share their fate.
        ("grpc.use_local_subchannel_pool", 1),
    ]
    if options.tls is None:
        return grpc.aio.insecure_channel(options.target, arguments)

    def make(contents: TlsContents) -> grpc.aio.Channel:
        return grpc.aio.secure_channel(options.target, channel_credentials(contents), arguments)

    return RenewingChannel(options.tls, make)


class Client:
    """Makes calls over one channel as one caller.

    `stub = AdmissionServiceStub(client.channel)`, then `await client.call(stub.GetLease, request)`.
    With `tokens` it shows those instead of a key. `rng` and `sleep` are for tests.
    """

    def __init__(
        self,
        channel: grpc.aio.Channel,
        *,
        api_key: str | None = None,
        tokens: TokenSource | None = None,
        default_timeout_s: float = 10.0,
        retry: RetryPolicy | None = None,
        rng: random.Random | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.channel = channel
        self._api_key = api_key
        self._tokens = tokens
        self._default_timeout_s = default_timeout_s
        self._retry = retry or RetryPolicy()
        self._rng = rng or random.Random()  # noqa: S311 - spreads retries, protects nothing
        self._sleep = sleep

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the channel; calls under way are cancelled."""
        await self.channel.close(None)

    async def call(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[Request, Response],
        request: Request,
        *,
        timeout_s: float | None = None,
        retry: bool = True,
    ) -> Response:
        """Make a unary call and return its response, or raise the DomainError it failed with.

        The time for all attempts together is the smaller of `timeout_s` (default: the client's)
        and what is left for the call being served; RemoteFailure DEADLINE_EXCEEDED when it is up.
        """
        limit_s = deadline.clamp_s(self._default_timeout_s if timeout_s is None else timeout_s)
        assert limit_s is not None
        loop = asyncio.get_running_loop()
        end = loop.time() + limit_s
        failures = 0
        with span(_name(method), kind="client", rpc_system="grpc"):
            while True:
                try:
                    return await self._attempt(method, request, max(0.0, end - loop.time()))
                except (Unavailable, Exhausted) as error:
                    if isinstance(error, Exhausted) and error.reason != OVERLOADED:
                        raise
                    failures += 1
                    wait_s = self._retry.wait_ms(failures, self._rng, error.retry_after_ms) / 1_000
                    out_of_time = loop.time() + wait_s >= end
                    if not retry or failures >= self._retry.attempts or out_of_time:
                        raise
                await self._sleep(wait_s)

    async def _attempt(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[Request, Response],
        request: Request,
        timeout_s: float,
    ) -> Response:
        bearer = await self._bearer()
        try:
            return await self._once(method, request, timeout_s, bearer)
        except Unauthenticated as error:
            if self._tokens is None or bearer is None or not refuses_token(error):
                raise
            # The clocks may be apart, or the signing keys were changed in a hurry.
            bearer = await self._tokens.another(bearer)
        return await self._once(method, request, timeout_s, bearer)

    async def _once(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[Request, Response],
        request: Request,
        timeout_s: float,
        bearer: str | None,
    ) -> Response:
        try:
            return await method(request, timeout=timeout_s, metadata=self._metadata(bearer))
        except grpc.aio.AioRpcError as error:
            raise status.decode(error) from None

    def stream(
        self,
        method: grpc.aio.UnaryStreamMultiCallable[Request, Response],
        request: Request,
        *,
        timeout_s: float | None = None,
    ) -> ClientStream[Request, Response]:
        """Open a stream of responses: `async with client.stream(stub.WatchLeases, request) as s`.

        Without `timeout_s` it lasts until either side ends it (or the call being served ends).
        """
        return self._open(
            lambda metadata: method(request, timeout=deadline.clamp_s(timeout_s), metadata=metadata)
        )

    def duplex(
        self,
        method: grpc.aio.StreamStreamMultiCallable[Request, Response],
        *,
        timeout_s: float | None = None,
    ) -> ClientStream[Request, Response]:
        """Open a stream both ways: `await s.write(request)`, `async for response in s`."""
        requests: AsyncIterator[Request] | None = None
        return self._open(
            lambda metadata: method(
                requests, timeout=deadline.clamp_s(timeout_s), metadata=metadata
            )
        )

    def _open(self, start: Callable[[_Metadata], Any]) -> ClientStream[Any, Any]:
        if self._tokens is None:
            return ClientStream(start(self._metadata()))

        async def opening() -> Any:
            return start(self._metadata(await self._bearer()))

        return ClientStream(opening=opening)

    async def _bearer(self) -> str | None:
        return self._api_key if self._tokens is None else await self._tokens.bearer()

    def _metadata(self, token: str | None = None) -> _Metadata:
        traceparent = current_traceparent() or outer_traceparent()
        trace = ((TRACEPARENT, traceparent),) if traceparent else ()
        bearer = token or self._api_key
        shown = (("authorization", f"Bearer {bearer}"),) if bearer else ()
        return (*shown, *trace)


def connect(
    target: str, *, api_key: str | None = None, tls: TlsFiles | None = None, **options: Any
) -> Client:
    """Return a client of the server at `target`; nothing is sent before the first call."""
    return Client(open_channel(ChannelOptions(target, tls)), api_key=api_key, **options)


def _name(method: object) -> str:
    name = getattr(method, "_method", b"call")
    return name.decode().lstrip("/") if isinstance(name, bytes) else str(name).lstrip("/")
