"""A change feed in memory: what was appended, in order, and watches that resume by token."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from tenure_core.agents.agent import Agent
from tenure_core.agents.work import Report
from tenure_core.errors import Invalid, Stale, Violation
from tenure_core.timebase import Millis


@dataclass(slots=True)
class MemoryFeed:
    """A change feed in memory. A token is `m` and the number of changes before it."""

    changes: list[tuple[str, Agent | Report, Millis]] = field(default_factory=list)
    grown: asyncio.Event = field(default_factory=asyncio.Event)

    def append(self, pool: str, item: Agent | Report, now_ms: Millis) -> None:
        """Add a change and wake all who wait."""
        self.changes.append((pool, item, now_ms))
        self.grown.set()
        self.grown = asyncio.Event()

    def token(self, count: int | None = None) -> str:
        """Return the token after `count` changes; of all of them by default."""
        return f"m{len(self.changes) if count is None else count}"

    def start(self, token: str) -> int:
        """Return the number of changes before a token; "" means all. Raises Invalid or Stale."""
        if not token:
            return len(self.changes)
        if not (token.startswith("m") and token[1:].isdigit()):
            violation = Violation(
                "resume_token", "RESUME_TOKEN_INVALID", "is no token of this feed"
            )
            raise Invalid([violation], "RESUME_TOKEN_INVALID")
        if int(token[1:]) > len(self.changes):
            raise Stale("RESUME_TOKEN_EXPIRED", "List again and watch from its token.")
        return int(token[1:])


async def follow(
    feed: MemoryFeed, token: str, pool: str
) -> AsyncGenerator[tuple[str, Agent | Report, Millis], None]:
    """Yield (token, item, instant) of each change after a token, of one pool or ("") of all."""
    count = feed.start(token)
    while True:
        grown = feed.grown
        while count < len(feed.changes):
            kind, item, now_ms = feed.changes[count]
            count += 1
            if not pool or kind == pool:
                yield feed.token(count), item, now_ms
        if not grown.is_set():
            await grown.wait()
