"""The client's side of an open stream, with its errors as domain errors.

Decides that a failed write never hides why the stream ended (grpc/grpc#36066): the call's own
status is asked for instead. Resuming is left to whoever holds the resume token.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, Generic, TypeVar

import grpc

from tenure_core.errors import DomainError
from tenure_runtime.rpc import status

# grpc's type stubs do not know the mark that ends a stream.
_END: Final[object] = getattr(grpc.aio, "EOF")  # noqa: B009

Request = TypeVar("Request")
Response = TypeVar("Response")


class ClientStream(Generic[Request, Response]):
    """An open call; leaving its `async with` block cancels it."""

    def __init__(self, call: Any) -> None:
        # grpc has one class for each direction with no common type.
        self._call = call

    async def __aenter__(self) -> ClientStream[Request, Response]:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cancel()

    def cancel(self) -> None:
        """End the call now; the server's handler is cancelled at once."""
        self._call.cancel()

    def __aiter__(self) -> ClientStream[Request, Response]:
        return self

    async def __anext__(self) -> Response:
        response = await self.read()
        if response is None:
            raise StopAsyncIteration
        return response

    async def read(self) -> Response | None:
        """Return the next message, or None when the server has ended the stream well.

        Raises the DomainError that it ended with otherwise.
        """
        try:
            message = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise status.decode(error) from None
        if message is _END:
            await self._raise_unless_ok()
            return None
        read: Response = message
        return read

    async def write(self, request: Request) -> None:
        """Send a message, waiting while the server does not read.

        Raises the DomainError that the stream ended with.
        """
        try:
            await self._call.write(request)
        except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError):
            raise await self._error() from None

    async def done_writing(self) -> None:
        """Tell the server that nothing more will be written."""
        await self._call.done_writing()

    async def _raise_unless_ok(self) -> None:
        if await self._call.code() is not grpc.StatusCode.OK:
            raise await self._error()

    async def _error(self) -> DomainError:
        return status.decode(
            grpc.aio.AioRpcError(
                await self._call.code(),
                await self._call.initial_metadata(),
                await self._call.trailing_metadata(),
                await self._call.details(),
                None,
            )
        )
