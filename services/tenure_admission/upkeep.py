"""What admission does by itself: forget old changes and request ids, and audit the charge ledger.

Each method is one run of a loop; tests call it themselves.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from tenure_admission import metrics
from tenure_admission.budgets import SPENT_DAYS
from tenure_admission.charges import Drift
from tenure_core.timebase import DAY_MS, Clock, Millis
from tenure_runtime.telemetry.logging import get_logger

ROUNDS_MAX: Final = 100
"""How often one run removes a portion; a store removes at most some 10,000 at a time."""


class Kept(Protocol):
    """What a store keeps and forgets."""

    async def trim_feed(self, retention_ms: Millis) -> int:
        """Forget a portion of the changes older than the retention; return how many."""
        ...

    async def forget_requests(self, retention_ms: Millis) -> int:
        """Forget a portion of the request ids older than the retention; return how many."""
        ...

    async def forget_spent(self, before_day: int) -> int:
        """Forget a portion of what was spent before a day; return how much."""
        ...


class Audited(Protocol):
    """A charge ledger that can be recomputed."""

    async def drifts(self) -> Sequence[Drift]:
        """Return the accounts whose usage is not the sum over the charged leases."""
        ...


class Upkeep:
    """The bodies of the service's own loops."""

    def __init__(
        self,
        store: Kept,
        ledger: Audited,
        clock: Clock,
        feed_retention_ms: Millis,
        request_retention_ms: Millis,
    ) -> None:
        self._clock = clock
        self._store = store
        self._ledger = ledger
        self._feed_retention_ms = feed_retention_ms
        self._request_retention_ms = request_retention_ms

    async def trim_feed(self) -> int:
        """Forget changes that no watch can resume from any more; return how many."""
        return await _in_portions(self._store.trim_feed, self._feed_retention_ms)

    async def forget_requests(self) -> int:
        """Forget request ids that are repeated no more; return how many."""
        return await _in_portions(self._store.forget_requests, self._request_retention_ms)

    async def forget_spent(self) -> int:
        """Forget what was spent longer ago than any budget asks for; return how much."""
        before = self._clock.now_ms() // DAY_MS - SPENT_DAYS
        return await _in_portions(self._store.forget_spent, before)

    async def audit_ledger(self) -> Sequence[Drift]:
        """Return (and log) every account whose usage is not the sum over the charged leases.

        There is none unless someone wrote to the tables by hand; usage and leases change together.
        """
        drifts = await self._ledger.drifts()
        metrics.DRIFTED_ACCOUNTS.set(len(drifts))
        for drift in drifts:
            dimension, name, resource = drift.account
            get_logger().error(
                "ledger.drifted",
                dimension=dimension,
                name=name,
                resource=resource,
                stored=drift.stored,
                recomputed=drift.recomputed,
            )
        return drifts


async def _in_portions(forget: Callable[[Millis], Awaitable[int]], retention_ms: Millis) -> int:
    total = 0
    for _ in range(ROUNDS_MAX):
        count = await forget(retention_ms)
        total += count
        if count == 0:
            break
    return total
