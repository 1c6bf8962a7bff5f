"""A small gRPC service without a proto: text in, text out, in all the shapes a call can have.

Its handlers are functions that a test gives, so that it can be made to fail, wait or stream.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.wrappers_pb2 import StringValue

SERVICE = "tenure.echo.v1.EchoService"
METHODS = ("Echo", "Tail", "Talk", "Gather")


async def _say(text: str, _context: Any) -> str:
    return text


async def _nothing(_text: str, _context: Any) -> AsyncIterator[str]:
    return
    yield


async def _repeat(texts: AsyncIterator[str], _context: Any) -> AsyncIterator[str]:
    async for text in texts:
        yield text


async def _join(texts: AsyncIterator[str], _context: Any) -> str:
    return "".join([text async for text in texts])


@dataclass
class Echo:
    """The handlers of the service, one a shape."""

    echo: Callable[[str, Any], Awaitable[str]] = _say
    tail: Callable[[str, Any], AsyncIterator[str]] = _nothing
    talk: Callable[[AsyncIterator[str], Any], AsyncIterator[str]] = _repeat
    gather: Callable[[AsyncIterator[str], Any], Awaitable[str]] = _join


def register(echo: Echo, server: grpc.aio.Server) -> None:
    """Add the service to a server, as generated code would."""

    async def unary(request: StringValue, context: Any) -> StringValue:
        return StringValue(value=await echo.echo(request.value, context))

    async def tail(request: StringValue, context: Any) -> AsyncIterator[StringValue]:
        async for text in echo.tail(request.value, context):
            yield StringValue(value=text)

    async def talk(requests: AsyncIterator[StringValue], context: Any):
        async for text in echo.talk(_texts(requests), context):
            yield StringValue(value=text)

    async def gather(requests: AsyncIterator[StringValue], context: Any) -> StringValue:
        return StringValue(value=await echo.gather(_texts(requests), context))

    kinds = {
        "Echo": (grpc.unary_unary_rpc_method_handler, unary),
        "Tail": (grpc.unary_stream_rpc_method_handler, tail),
        "Talk": (grpc.stream_stream_rpc_method_handler, talk),
        "Gather": (grpc.stream_unary_rpc_method_handler, gather),
    }
    handlers = {
        name: make(
            handler,
            request_deserializer=StringValue.FromString,
            response_serializer=StringValue.SerializeToString,
        )
        for name, (make, handler) in kinds.items()
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))


async def _texts(requests: AsyncIterator[StringValue]) -> AsyncIterator[str]:
    async for request in requests:
        yield request.value


class EchoStub:
    """What generated code would give."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        coded = {
            "request_serializer": StringValue.SerializeToString,
            "response_deserializer": StringValue.FromString,
        }
        self.Echo = channel.unary_unary(f"/{SERVICE}/Echo", **coded)
        self.Tail = channel.unary_stream(f"/{SERVICE}/Tail", **coded)
        self.Talk = channel.stream_stream(f"/{SERVICE}/Talk", **coded)
        self.Gather = channel.stream_unary(f"/{SERVICE}/Gather", **coded)


def text(value: str) -> StringValue:
    """Return the message of a text."""
    return StringValue(value=value)
