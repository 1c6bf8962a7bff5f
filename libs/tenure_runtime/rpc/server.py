"""Builds, starts and stops the gRPC server of a service.

Decides the transport settings that trials showed to be necessary, serves health and reflection
beside the service, and stops in the order that loses nothing: health says NOT_SERVING, streams are
told, then new calls are refused and those under way get their grace. What is served is left to the
servicers, what happens around a call to `edge`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer
from grpc_reflection.v1alpha import reflection

from tenure_runtime.rpc.draining import Draining
from tenure_runtime.rpc.edge import Edge, EdgeInterceptor
from tenure_runtime.rpc.gate import Gate
from tenure_runtime.rpc.identity import Keyring, Permissions
from tenure_runtime.rpc.shedding import WAITING_MAX
from tenure_runtime.rpc.tls import server_credentials
from tenure_runtime.rpc.transport import MESSAGE_BYTES_MAX, refuse_after_fork
from tenure_runtime.rpc.transport import TlsFiles as TlsFiles
from tenure_runtime.telemetry.logging import get_logger

Servicer = TypeVar("Servicer")
_LAST_WORD_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How a server listens. `listen` is host:port; port 0 takes a free one.

    With an authority in `tls`, clients must show a certificate of it that fits their key (`peer`).
    Of calls that wait to be taken up, more and more are dropped above `waiting_max`, all above
    twice as many: see `shedding`.
    """

    service: str
    listen: str = "127.0.0.1:0"
    message_bytes_max: int = MESSAGE_BYTES_MAX
    write_timeout_s: float = 30.0
    keepalive_s: float = 30.0
    waiting_max: int = WAITING_MAX
    tls: TlsFiles | None = None


class RpcServer:
    """One gRPC server. Make it inside a running event loop.

    Without a `gate` it accepts keys of the keyring only.
    """

    def __init__(
        self,
        options: ServerOptions,
        *,
        keyring: Keyring,
        permissions: Permissions,
        draining: Draining | None = None,
        gate: Gate | None = None,
    ) -> None:
        self.draining = draining or Draining()
        self._options = options
        refuse_after_fork()
        self._health = _Health(self.draining)
        self._names = [health_pb2.DESCRIPTOR.services_by_name["Health"].full_name]
        edge = Edge(
            options.service,
            gate or Gate(keyring),
            permissions,
            options.write_timeout_s,
            certificates=options.tls is not None and options.tls.authority is not None,
        )
        self._server = grpc.aio.server(
            interceptors=[EdgeInterceptor(edge)], options=_channel_arguments(options)
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)

    def add(
        self,
        register: Callable[[Servicer, grpc.aio.Server], None],
        servicer: Servicer,
        name: str,
    ) -> None:
        """Serve `servicer` under its full name (`tenure.admission.v1.AdmissionService`)."""
        register(servicer, self._server)
        self._names.append(name)

    async def start(self) -> int:
        """Bind, start and report healthy; return the port. Raises OSError when it is taken."""
        reflection.enable_server_reflection((*self._names, reflection.SERVICE_NAME), self._server)
        port = self._bind()
        await self._server.start()
        await self.set_serving(True)
        get_logger().info("server.started", port=port, services=self._names)
        return port

    def _bind(self) -> int:
        tls = self._options.tls
        try:
            if tls is None:
                return self._server.add_insecure_port(self._options.listen)
            return self._server.add_secure_port(self._options.listen, server_credentials(tls))
        except RuntimeError as error:
            raise OSError(f"cannot listen on {self._options.listen}: {error}") from None

    async def set_serving(self, serving: bool, name: str | None = None) -> None:
        """Say in health whether one service (or, with None, the whole server) is ready."""
        states = health_pb2.HealthCheckResponse
        state = states.SERVING if serving else states.NOT_SERVING
        for each in ["", *self._names[1:]] if name is None else [name]:
            await self._health.set(each, state)

    async def stop(self, grace_s: float = 5.0) -> None:
        """Stop in order: NOT_SERVING, streams told to end, new calls refused, grace, cut."""
        await self._health.enter_graceful_shutdown()
        self.draining.begin()
        await self._server.stop(grace_s)
        get_logger().info("server.stopped")


class _Health(HealthServicer):  # type: ignore[misc] # the package ships no types
    """Health whose watches end at a stop: they would hold it up for its whole grace."""

    def __init__(self, draining: Draining) -> None:
        super().__init__()
        self._draining = draining

    async def Watch(self, request: object, context: object) -> None:  # noqa: N802 - gRPC's name
        """Stream the state of a service until the client leaves or the server stops."""
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(super().Watch(request, context))
            await self._draining.wait()
            # Time for the NOT_SERVING that the stop has just set.
            await asyncio.wait({watching}, timeout=_LAST_WORD_S)
            watching.cancel()


def _channel_arguments(options: ServerOptions) -> list[tuple[str, Any]]:
    keepalive_ms = int(options.keepalive_s * 1_000)
    return [
        ("grpc.max_receive_message_length", options.message_bytes_max),
        ("grpc.max_send_message_length", options.message_bytes_max),
        # Dropping costs no Python, unlike refusing: it is what holds when everybody comes at once.
        ("grpc.server.max_pending_requests", options.waiting_max),
        ("grpc.server.max_pending_requests_hard_limit", 2 * options.waiting_max),
        ("grpc.max_concurrent_streams", 20_000),
        # Find dead peers, and let clients ping: by default a server answers frequent pings with
        # GOAWAY ENHANCE_YOUR_CALM.
        ("grpc.keepalive_time_ms", keepalive_ms),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", 500),
        # Two processes on one port is a mistake unless it is asked for.
        ("grpc.so_reuseport", 0),
    ]
