"""Probes that say whether a child serves, for `ChildSpec.ready`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2

from tenure_runtime.rpc.tls import TlsReader, channel_credentials
from tenure_runtime.rpc.transport import TlsFiles

# A probe must not go through a proxy, nor inherit the back-off of the one before.
_OPTIONS = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
)


def grpc_health(
    address: str, *, service: str = "", tls: TlsFiles | None = None
) -> Callable[[], Awaitable[bool]]:
    """Return a probe of the gRPC health service at `host:port`: true once it says SERVING."""

    def channel_to() -> grpc.aio.Channel:
        if tls is None:
            return grpc.aio.insecure_channel(address, options=_OPTIONS)
        credentials = channel_credentials(TlsReader(tls).read())
        return grpc.aio.secure_channel(address, credentials, options=_OPTIONS)

    async def probe() -> bool:
        async with channel_to() as channel:
            check = channel.unary_unary(
                "/grpc.health.v1.Health/Check",
                request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
                response_deserializer=health_pb2.HealthCheckResponse.FromString,
            )
            try:
                answer = await check(health_pb2.HealthCheckRequest(service=service), timeout=2.0)
            except grpc.aio.AioRpcError:
                return False
            return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    return probe
