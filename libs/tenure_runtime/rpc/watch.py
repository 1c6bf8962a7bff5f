"""Hands each published item to many watchers, in bounded memory.

Decides what happens to a watcher that does not keep up (it is cut off with WATCHER_TOO_SLOW and
resumes from its token) and when an idle one gets a bookmark. What is published, and reading what
came before a subscription, is left to the publisher (`postgres.changefeed` for stored changes).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from tenure_core.errors import DomainError, Exhausted
from tenure_runtime.rpc.draining import Draining
from tenure_runtime.telemetry import metrics

Item = TypeVar("Item")


class WatcherTooSlow(Exhausted):
    """A stream was cut off because its reader does not keep up; its last token resumes it."""

    def __init__(self) -> None:
        super().__init__(
            "WATCHER_TOO_SLOW",
            "The stream was ended because its reader did not keep up; resume from the last token.",
            retry_after_ms=1_000,
        )


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing was published for a while: time for a bookmark."""


IDLE: Final = Idle()


class Fanout(Generic[Item]):
    """One publisher, many watchers; `feed` names it in metrics.

    `queue_limit` is how many items a watcher may lag behind, `bookmark_s` how long it may be idle
    before it is handed IDLE.
    """

    def __init__(
        self,
        draining: Draining,
        *,
        feed: str = "",
        queue_limit: int = 1_000,
        bookmark_s: float = 10.0,
    ) -> None:
        assert queue_limit > 0
        self._draining = draining
        self._feed = feed
        self._queue_limit = queue_limit
        self._bookmark_s = bookmark_s
        self._watchers: set[Watcher[Item]] = set()

    def __len__(self) -> int:
        return len(self._watchers)

    def publish(self, item: Item) -> None:
        """Hand an item to every watcher that wants it; never waits. O(watchers)."""
        for watcher in self._watchers:
            watcher.offer(item)

    def end(self, error: DomainError) -> None:
        """End every present watcher with `error`."""
        for watcher in self._watchers:
            watcher.end(error)

    @contextmanager
    def subscribe(self, wants: Callable[[Item], bool] = lambda _: True) -> Iterator[Watcher[Item]]:
        """Collect what is published from now on, until the block is left."""
        watcher = Watcher(self._draining, wants, self._queue_limit, self._bookmark_s)
        self._watchers.add(watcher)
        metrics.WATCHERS.add(1, self._feed)
        try:
            yield watcher
        finally:
            metrics.WATCHERS.add(-1, self._feed)
            self._watchers.discard(watcher)


class Watcher(Generic[Item]):
    """What one watcher has not read yet."""

    def __init__(
        self,
        draining: Draining,
        wants: Callable[[Item], bool],
        queue_limit: int,
        bookmark_s: float,
    ) -> None:
        self._draining = draining
        self._wants = wants
        self._queue_limit = queue_limit
        self._bookmark_s = bookmark_s
        self._items: deque[Item] = deque()
        self._arrived = asyncio.Event()
        self._error: DomainError | None = None

    def offer(self, item: Item) -> None:
        """Queue an item; one too many cuts the watcher off and frees what it held."""
        if self._error is not None or not self._wants(item):
            return
        if len(self._items) >= self._queue_limit:
            metrics.WATCHERS_CUT_OFF.add(1)
            self.end(WatcherTooSlow())
        else:
            self._items.append(item)
        self._arrived.set()

    def end(self, error: DomainError) -> None:
        """Free what was queued and raise `error` at the next read."""
        self._error = error
        self._items.clear()
        self._arrived.set()

    async def __aiter__(self) -> AsyncIterator[Item | Idle]:
        """Yield items as they come, and IDLE when none came for a while.

        Raises Exhausted WATCHER_TOO_SLOW when cut off, Unavailable SERVER_DRAINING at a stop.
        """
        with self._draining.calling(self._arrived.set):
            while True:
                if self._error is not None:
                    raise self._error
                if self._items:
                    yield self._items.popleft()
                    continue
                if self._draining.begun:
                    raise self._draining.error()
                self._arrived.clear()
                try:
                    async with asyncio.timeout(self._bookmark_s):
                        await self._arrived.wait()
                except TimeoutError:
                    yield IDLE
