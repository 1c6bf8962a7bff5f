"""The signal that a process is about to stop, which open streams await so that they end first.

`grpc.aio.Server.stop(grace)` refuses new calls at once but waits its whole grace for open streams;
so streams are told before it is called.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from tenure_core.errors import Unavailable

Item = TypeVar("Item")


class Draining:
    """Set once, when the process begins to stop."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._callbacks: set[Callable[[], None]] = set()

    def begin(self) -> None:
        """Tell every stream to end."""
        self._event.set()
        for callback in tuple(self._callbacks):
            callback()

    @property
    def begun(self) -> bool:
        """Say whether the process is stopping."""
        return self._event.is_set()

    async def wait(self) -> None:
        """Return when the process begins to stop."""
        await self._event.wait()

    @contextmanager
    def calling(self, callback: Callable[[], None]) -> Iterator[None]:
        """Within the block, call back when the process begins to stop."""
        self._callbacks.add(callback)
        try:
            yield
        finally:
            self._callbacks.discard(callback)

    def error(self) -> Unavailable:
        """Return the error that ends a stream on a stopping server: reconnect elsewhere."""
        return Unavailable(
            "SERVER_DRAINING", "The server is stopping; reconnect with the resume token."
        )

    async def until(self, items: AsyncIterator[Item]) -> AsyncGenerator[Item, None]:
        """Yield from `items`; raise Unavailable SERVER_DRAINING as soon as the process stops."""
        stopping = asyncio.ensure_future(self._event.wait())
        following: asyncio.Future[Item] | None = None
        try:
            while True:
                following = asyncio.ensure_future(_next(items))
                await asyncio.wait({stopping, following}, return_when=asyncio.FIRST_COMPLETED)
                if not following.done():
                    raise self.error()
                try:
                    yield following.result()
                except _Ended:
                    return
        finally:
            stopping.cancel()
            if following is not None:
                following.cancel()
                with suppress(asyncio.CancelledError, _Ended):
                    await following


class _Ended(Exception):
    """The items came to their end (a future cannot carry StopAsyncIteration)."""


async def _next(items: AsyncIterator[Item]) -> Item:
    try:
        return await anext(items)
    except StopAsyncIteration:
        raise _Ended from None
