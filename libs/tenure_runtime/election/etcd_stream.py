"""Reads answers from a bidirectional call, and the true error when it ends instead."""

from __future__ import annotations

import asyncio
from typing import TypeVar, cast

import grpc
import grpc.aio
from google.protobuf.message import Message

_Request = TypeVar("_Request", bound=Message)
_Answer = TypeVar("_Answer", bound=Message)


async def ask(call: grpc.aio.StreamStreamCall[_Request, _Answer], request: _Request) -> _Answer:
    """Write one request and return the next answer; AioRpcError if the stream ends instead."""
    try:
        await call.write(request)
        answer = await call.read()
    except asyncio.InvalidStateError:
        # A write on a stream that has failed hides the failure (grpc/grpc#36066).
        raise await ended(call) from None
    if isinstance(answer, Message):
        return cast("_Answer", answer)
    raise await ended(call)


async def ended(call: grpc.aio.Call) -> grpc.aio.AioRpcError:
    """Return the error of a stream that ended without the answer that was due."""
    code = await call.code()
    if code is grpc.StatusCode.OK:
        code = grpc.StatusCode.UNAVAILABLE
    headers, trailers = await call.initial_metadata(), await call.trailing_metadata()
    return grpc.aio.AioRpcError(code, headers, trailers, await call.details(), "")
