"""The client's side of an open stream, with its errors as domain errors.

Decides that a failed write never hides why the stream ended: grpc.aio overwrites the status that
the server sent with INTERNAL when a write fails after it (grpc/grpc#36066), so the first status is
kept here. Resuming is left to whoever holds the resume token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, TypeVar

import grpc

from tenure_core.errors import Unavailable
from tenure_runtime.rpc import status

# grpc's type stubs do not know the mark that ends a stream.
_END: Final[object] = getattr(grpc.aio, "EOF")  # noqa: B009

Request = TypeVar("Request")
Response = TypeVar("Response")


class ClientStream(Generic[Request, Response]):
    """An open call; leaving its `async with` block cancels it.

    One that is given its `opening` is called when the block is entered.
    """

    def __init__(
        self, call: Any = None, *, opening: Callable[[], Awaitable[Any]] | None = None
    ) -> None:
        self._opening = opening
        self._first_status: grpc.aio.AioRpcError | None = None
        # grpc has one class for each direction with no common type.
        self._call = call
        if call is not None:
            call.add_done_callback(self._keep_first_status)

    async def __aenter__(self) -> ClientStream[Request, Response]:
        if self._opening is not None:
            self._call = await self._opening()
            self._call.add_done_callback(self._keep_first_status)
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
            ended = self._first_status or error
        else:
            if message is not _END:
                read: Response = message
                return read
            ended = await self._status()
        if ended.code() is grpc.StatusCode.OK:
            return None
        raise status.decode(ended)

    async def write(self, request: Request) -> None:
        """Send a message, waiting while the server does not read.

        Raises the DomainError that the stream ended with.
        """
        try:
            await self._call.write(request)
        except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError):
            ended = await self._status()
            if ended.code() is grpc.StatusCode.OK:
                raise Unavailable("STREAM_ENDED", "The server has ended the stream.") from None
            raise status.decode(ended) from None

    async def done_writing(self) -> None:
        """Tell the server that nothing more will be written."""
        await self._call.done_writing()

    def _keep_first_status(self, _: object) -> None:
        """Keep what the call ended with, before a failed write can overwrite it."""
        ended = self._status()
        try:
            # The call has ended, so that nothing in here waits.
            ended.send(None)
        except StopIteration as kept:
            self._first_status = kept.value
        finally:
            ended.close()

    async def _status(self) -> grpc.aio.AioRpcError:
        """Return the status that the call ended with first, once it has ended."""
        return self._first_status or grpc.aio.AioRpcError(
            await self._call.code(),
            await self._call.initial_metadata(),
            await self._call.trailing_metadata(),
            await self._call.details(),
            None,
        )
