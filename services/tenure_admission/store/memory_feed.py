"""The change feed of the memory store: a list, and watchers that wait for it to grow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

from tenure_admission.ports import FeedBookmark, LeaseEvent
from tenure_core.errors import Stale
from tenure_runtime.postgres.changefeed import expired
from tenure_runtime.postgres.position import Position, parse_token
from tenure_runtime.rpc.draining import Draining


@dataclass(frozen=True, slots=True)
class _Change:
    sequence: int
    lease_id: str
    body: bytes


class MemoryFeed:
    """All changes since the start, or since what was trimmed."""

    def __init__(self, draining: Draining, incarnation: str, bookmark_s: float = 10.0) -> None:
        self._draining = draining
        self._incarnation = incarnation
        self._bookmark_s = bookmark_s
        self._changes: list[_Change] = []
        self._trimmed = 0
        self._grown = asyncio.Event()

    def append(self, lease_id: str, body: bytes) -> None:
        """Add a change and wake the watchers."""
        self._changes.append(_Change(self._last() + 1, lease_id, body))
        self._wake()

    def _wake(self) -> None:
        # Everyone who waits has the old event; whoever waits next gets a new one.
        self._grown.set()
        self._grown = asyncio.Event()

    def _last(self) -> int:
        return self._trimmed + len(self._changes)

    def now(self) -> Position:
        """Return the position after the newest change."""
        return self._position(self._last())

    def _position(self, sequence: int) -> Position:
        return Position(self._incarnation, sequence, 0)

    def trim(self) -> int:
        """Forget every change so far; return how many."""
        count = len(self._changes)
        self._trimmed += count
        self._changes.clear()
        return count

    async def run(self) -> None:
        """End the waits of all watchers once the process stops."""
        await self._draining.wait()
        self._wake()

    async def watch(
        self, token: str, wants: Callable[[str, bytes], bool]
    ) -> AsyncGenerator[LeaseEvent | FeedBookmark, None]:
        """Yield each wanted change after the token, and bookmarks when idle."""
        start = parse_token(token)
        if start.incarnation != self._incarnation:
            raise expired()
        seen = start.tx
        while True:
            grown = self._grown
            for change in self._after(seen):
                seen = change.sequence
                if wants(change.lease_id, change.body):
                    yield LeaseEvent(change.lease_id, change.body, self._position(seen))
            if self._draining.begun:
                raise self._draining.error()
            if self._last() > seen:
                continue
            try:
                async with asyncio.timeout(self._bookmark_s):
                    await grown.wait()
            except TimeoutError:
                yield FeedBookmark(self._position(seen))

    def _after(self, seen: int) -> list[_Change]:
        if seen < self._trimmed:
            error: Stale = expired()
            raise error
        return self._changes[seen - self._trimmed :]
