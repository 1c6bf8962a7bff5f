"""Serves many watchers of one change feed from one reader.

Decides how a watch joins: it subscribes first, reads from the database what lies between its token
and the place where it joined, then follows the hub's own reading; so nothing is missed and nothing
repeated. A watch that falls behind its queue joins anew, that is, reads from the database at its
own pace; one that does not read at all is cut off by the write timeout of the server's edge.
Reading the feed is left to `changefeed`, the queues to `rpc.watch`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace

from tenure_core.errors import Stale, Unavailable
from tenure_runtime.postgres.changefeed import Change, ChangeFeed, expired
from tenure_runtime.postgres.position import Position, parse_token
from tenure_runtime.rpc.draining import Draining
from tenure_runtime.rpc.watch import Fanout, Idle, WatcherTooSlow
from tenure_runtime.telemetry import metrics
from tenure_runtime.telemetry.logging import get_logger


@dataclass(frozen=True, slots=True)
class Bookmark:
    """Nothing changed for a while; `position.token()` is where the watch is now."""

    position: Position


class FeedHub:
    """Reads one feed once for all watchers of this process. `run()` belongs in a TaskGroup."""

    def __init__(
        self,
        feed: ChangeFeed,
        draining: Draining,
        *,
        queue_limit: int = 1_000,
        bookmark_s: float = 10.0,
        poll_s: float = 1.0,
    ) -> None:
        self.feed = feed
        self._fanout: Fanout[Change] = Fanout(
            draining, feed=feed.feed, queue_limit=queue_limit, bookmark_s=bookmark_s
        )
        self._bookmark_s = bookmark_s
        self._poll_s = poll_s
        self._position: Position | None = None
        self._started = asyncio.Event()

    async def run(self) -> None:
        """Follow the feed for ever; a database that is away is waited for."""
        failures = 0
        while True:
            try:
                await self._follow()
            except Unavailable as error:
                failures += 1
                get_logger().warning("feed.unreadable", feed=self.feed.feed, reason=error.reason)
                await asyncio.sleep(min(5.0, 0.1 * 2**failures))
            except Stale as error:
                # The feed has begun anew under us: all watchers must list again.
                self._position = None
                self._fanout.end(error)

    async def _follow(self) -> None:
        clock = asyncio.get_running_loop().time
        if self._position is None:
            # Without the snapshot: the hub hands on every change after its place in the order, for
            # a watch with an older token knows nothing of what was visible when the hub began.
            self._position = replace(await self.feed.now(), snapshot="")
        self._started.set()
        held_back, since = 0, clock()
        while True:
            page = await self.feed.read(self._position)
            for change in page.changes:
                self._fanout.publish(change)
            self._position = page.position
            if page.changes or not page.unsettled:
                since = clock()
            waited_s = clock() - since if page.unsettled else 0.0
            metrics.FEED_HELD_BACK.set(waited_s, self.feed.feed)
            if page.more:
                continue
            if page.unsettled:
                # Older transactions mostly end within milliseconds; a long one is asked less often.
                held_back = 0 if page.changes else held_back + 1
                await asyncio.sleep(0.002 if held_back < 50 else 0.02)
            else:
                held_back = 0
                await self.feed.wait(self._poll_s)

    async def watch(
        self, token: str, wants: Callable[[Change], bool] = lambda _: True
    ) -> AsyncGenerator[Change | Bookmark, None]:
        """Yield every change after `token` that is wanted, and bookmarks when idle.

        Each item's position resumes after it. Raises Invalid RESUME_TOKEN_INVALID, Stale
        RESUME_TOKEN_EXPIRED or Unavailable SERVER_DRAINING. Close it (`contextlib.aclosing`).
        """
        position = parse_token(token)
        await self._started.wait()
        clock = asyncio.get_running_loop().time
        spoke = clock()
        while True:
            async with aclosing(self._joined(position)) as items:
                try:
                    async for item in items:
                        position = item.position
                        if isinstance(item, Bookmark) or wants(item):
                            yield item
                            spoke = clock()
                        elif clock() - spoke > self._bookmark_s:
                            # Among changes that are not wanted a watch is idle all the same.
                            yield Bookmark(position)
                            spoke = clock()
                except WatcherTooSlow:
                    get_logger().info("watch.rejoined", feed=self.feed.feed)

    async def _joined(self, start: Position) -> AsyncGenerator[Change | Bookmark, None]:
        """Yield all changes after `start`; raise WatcherTooSlow when the queue overflowed."""
        with self._fanout.subscribe() as watcher:
            joined = self._position
            if joined is None or start.incarnation != joined.incarnation:
                raise expired()
            async with aclosing(self._between(start, joined)) as earlier:
                async for change in earlier:
                    yield change
            position = start.after(*max(start.order, joined.order))
            async for item in watcher:
                if isinstance(item, Idle):
                    yield Bookmark(position)
                elif not start.covers(item.tx, item.sequence):
                    # What the token's list already showed stays known in the tokens handed on.
                    position = start.after(item.tx, item.sequence)
                    # Most are followed for long: then it is the reader's own position.
                    yield item if item.position == position else replace(item, position=position)

    async def _between(self, start: Position, joined: Position) -> AsyncGenerator[Change, None]:
        """Yield from the database what lies after `start` and not after `joined`."""
        position = start
        while position.order < joined.order:
            page = await self.feed.read(position)
            for change in page.changes:
                if (change.tx, change.sequence) > joined.order:
                    return
                yield change
            position = page.position
            if not page.more:
                return
