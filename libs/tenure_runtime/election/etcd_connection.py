"""Keeps one connection to one of several etcd members, moves on when it fails, and logs in.

Decides which member is talked to, what an answer says about it, and when a token is renewed. What
is asked is `etcd_client`'s business. Every call of ours may be repeated without harm (each is
idempotent, or leaves at worst a lease that runs out), so a failed one goes to the next member.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from tenure.etcd.v1 import etcd_pb2 as wire
from tenure_core.errors import DomainError, Forbidden, NotFound, Unavailable

_Request = TypeVar("_Request", bound=Message)
_Answer = TypeVar("_Answer", bound=Message)
_Result = TypeVar("_Result")
Metadata = tuple[tuple[str, str], ...]

_AUTHENTICATE: Final = "/etcdserverpb.Auth/Authenticate"
_ENDPOINT: Final = re.compile(r"(https?://)?[^/\s]+:[0-9]{1,5}")
_LOGIN_TIMEOUT_S: Final = 10.0  # A first login hashes with bcrypt: 0.1 to 0.3 s, more under load.
_PAUSE_FIRST_S: Final = 0.05
_PAUSE_MAX_S: Final = 0.5

# A member that lost its leader must say so instead of serving an old view (etcd rpctypes).
_NEEDS_LEADER: Final = ("hasleader", "true")

_MOVE_ON: Final = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
    }
)

_CHANNEL_OPTIONS: Final = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),  # A fresh channel must not inherit an old back-off.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # etcd answers pings more frequent than every 5 s with GOAWAY.
    ("grpc.keepalive_time_ms", 6_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.max_pings_without_data", 0),
)


@dataclass(frozen=True, slots=True)
class EtcdSettings:
    """How etcd is reached.

    An endpoint is `host:port`, `http://host:port` or `https://host:port`. TLS is used for the last,
    and for all when `ca` is given; without `ca` the system's authorities are trusted. Certificates
    are PEM texts. `user` empty means that no login is needed.

    `call_timeout_s` bounds one attempt at one member; `patience_s` bounds a call over all attempts.
    """

    endpoints: tuple[str, ...]
    ca: bytes | None = None
    certificate: bytes | None = None
    private_key: bytes | None = None
    user: str = ""
    password: str = field(default="", repr=False)
    call_timeout_s: float = 1.0
    patience_s: float = 5.0

    def __post_init__(self) -> None:
        if not self.endpoints:
            raise ValueError("etcd needs at least one endpoint, host:port")
        for endpoint in self.endpoints:
            if not _ENDPOINT.fullmatch(endpoint):
                raise ValueError(f"an etcd endpoint is [https://]host:port, not {endpoint!r}")


class Member:
    """One connection to one member, until it is given up."""

    def __init__(self, endpoint: str, channel: grpc.aio.Channel) -> None:
        self.endpoint = endpoint
        self.channel = channel
        self.given_up = asyncio.Event()

    def unary(
        self, path: str, request: type[_Request], answer: type[_Answer]
    ) -> grpc.aio.UnaryUnaryMultiCallable[_Request, _Answer]:
        """Return a callable for a method by path."""
        return self.channel.unary_unary(
            path,
            request_serializer=request.SerializeToString,
            response_deserializer=answer.FromString,
        )

    def stream(
        self,
        path: str,
        request: type[_Request],
        answer: type[_Answer],
        *,
        metadata: Metadata,
        timeout_s: float | None = None,
    ) -> grpc.aio.StreamStreamCall[_Request, _Answer]:
        """Open a bidirectional call by path; without `timeout_s` it has no end of its own."""
        method = self.channel.stream_stream(
            path,
            request_serializer=request.SerializeToString,
            response_deserializer=answer.FromString,
        )
        # The stub lacks the default of None for the requests, which are written one by one.
        return method(timeout=timeout_s, metadata=metadata)  # type: ignore[call-arg]


class EtcdConnection:
    """The way to etcd: the member in use, the others to move to, and the token."""

    def __init__(self, settings: EtcdSettings) -> None:
        self.settings = settings
        self._next = 0
        self._member: Member | None = None
        self._token: str | None = None
        self._login = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Close the connection; calls under way end with an error."""
        if self._member is not None:
            self.give_up(self._member)
        await asyncio.gather(*self._closing)

    def member(self) -> Member:
        """Return the member in use, connecting to the next one if there is none."""
        if self._member is None:
            endpoints = self.settings.endpoints
            endpoint = endpoints[self._next % len(endpoints)]
            self._next += 1
            self._member = Member(endpoint, self._channel(endpoint))
        return self._member

    def _channel(self, endpoint: str) -> grpc.aio.Channel:
        settings = self.settings
        scheme, _, target = endpoint.rpartition("://")
        if settings.ca is None and scheme != "https":
            return grpc.aio.insecure_channel(target, options=_CHANNEL_OPTIONS)
        credentials = grpc.ssl_channel_credentials(
            settings.ca, settings.private_key, settings.certificate
        )
        return grpc.aio.secure_channel(target, credentials, options=_CHANNEL_OPTIONS)

    def give_up(self, member: Member) -> None:
        """Stop using the member: its watches move on, its calls get a moment to finish."""
        if self._member is member:
            self._member = None
        if not member.given_up.is_set():
            member.given_up.set()
            task = asyncio.ensure_future(self._close(member))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _close(self, member: Member) -> None:
        await member.channel.close(grace=self.settings.call_timeout_s)

    async def metadata(self, member: Member) -> Metadata:
        """Return what goes along with a call: the wish for a leader, and the token."""
        if not self.settings.user:
            return (_NEEDS_LEADER,)
        async with self._login:
            if self._token is None:
                call = member.unary(
                    _AUTHENTICATE, wire.AuthenticateRequest, wire.AuthenticateResponse
                )
                who = wire.AuthenticateRequest(
                    name=self.settings.user, password=self.settings.password
                )
                answer = await call(who, timeout=_LOGIN_TIMEOUT_S, metadata=(_NEEDS_LEADER,))
                self._token = answer.token
            return (_NEEDS_LEADER, ("token", self._token))

    def judge(self, error: grpc.aio.AioRpcError, member: Member, sent: Metadata) -> bool:
        """Say whether the call is worth repeating, having dropped the token or member at fault."""
        if _token_refused(error):
            return self.forget_token(sent)
        if error.code() in _MOVE_ON:
            self.give_up(member)
            return True
        return False

    def forget_token(self, sent: Metadata) -> bool:
        """Log in anew before the next call if `sent` holds the token in use; say if one was sent.

        Another call may have logged in again meanwhile: its new token stays.
        """
        if ("token", self._token) in sent:
            self._token = None
        return len(sent) > 1

    async def repeat(self, attempt: Callable[[Member, Metadata], Awaitable[_Result]]) -> _Result:
        """Do `attempt` until it succeeds, moving from member to member.

        Raises Unavailable ETCD_UNAVAILABLE after `patience_s`, and at once what another attempt
        would not change: NotFound ETCD_LEASE_NOT_FOUND, Forbidden ETCD_FORBIDDEN.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.settings.patience_s
        pause_s = _PAUSE_FIRST_S
        failures = 0
        while True:
            member = self.member()
            sent: Metadata = ()
            try:
                sent = await self.metadata(member)
                return await attempt(member, sent)
            except grpc.aio.AioRpcError as error:
                if not self.judge(error, member, sent):
                    raise translated(error) from None
                last = f"{member.endpoint}: {error.code().name} {error.details()}"
            except asyncio.CancelledError:
                # grpc.aio cancels the caller's wait when a channel closes under it.
                if was_cancelled() or not member.given_up.is_set():
                    raise
                last = f"{member.endpoint}: connection given up"
            failures += 1
            if loop.time() + pause_s > deadline:
                raise Unavailable("ETCD_UNAVAILABLE", f"etcd does not answer ({last})")
            if failures % len(self.settings.endpoints) == 0:
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, _PAUSE_MAX_S)

    async def unary(self, path: str, request: Message, answer: type[_Answer]) -> _Answer:
        """Call a method and return its answer; errors as `repeat` says."""

        async def attempt(member: Member, metadata: Metadata) -> _Answer:
            call = member.unary(path, type(request), answer)
            return await call(request, timeout=self.settings.call_timeout_s, metadata=metadata)

        return await self.repeat(attempt)


def translated(error: grpc.aio.AioRpcError) -> DomainError:
    """Return the expected failure that an answer of etcd's stands for."""
    details = error.details() or error.code().name
    match error.code():
        case grpc.StatusCode.NOT_FOUND:
            return NotFound("ETCD_LEASE_NOT_FOUND", f"etcd: {details}")
        case (
            grpc.StatusCode.PERMISSION_DENIED
            | grpc.StatusCode.UNAUTHENTICATED
            | grpc.StatusCode.INVALID_ARGUMENT
        ):
            return Forbidden("ETCD_FORBIDDEN", f"etcd: {details}")
        case _:
            return Unavailable("ETCD_UNAVAILABLE", f"etcd: {error.code().name} {details}")


def was_cancelled() -> bool:
    """Say whether somebody asked the running task to end, as opposed to a call below it."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _token_refused(error: grpc.aio.AioRpcError) -> bool:
    """Say whether etcd wants a new login: the token expired, or users changed since it was made."""
    details = error.details() or ""
    return error.code() is grpc.StatusCode.UNAUTHENTICATED or (
        error.code() is grpc.StatusCode.INVALID_ARGUMENT
        and ("auth store is old" in details or "user name is empty" in details)
    )
