"""How much may be created or removed at once, and how fast (P28).

A budget limits what is being disrupted at one time, by reason, absolutely or as a share, perhaps
only in certain hours. A bucket limits the rate. Both are durable values; neither knows a clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tenure_core.timebase import DAY_MS, MINUTE_MS, Millis

_PPM = 1_000_000


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """At most `count` machines, or `share_ppm` of the fleet (at least one), disrupted at a time.

    `reasons` empty means every reason. `from_ms`/`to_ms` are times of day (UTC) between which the
    budget holds; a span over midnight is allowed; equal ends mean always.
    """

    count: int | None = None
    share_ppm: int | None = None
    reasons: frozenset[str] = frozenset()
    from_ms: Millis = 0
    to_ms: Millis = 0

    def holds(self, reason: str, now_ms: Millis) -> bool:
        """Say whether the budget speaks of `reason` at `now_ms`."""
        if self.reasons and reason not in self.reasons:
            return False
        of_day = now_ms % DAY_MS
        if self.from_ms == self.to_ms:
            return True
        if self.from_ms < self.to_ms:
            return self.from_ms <= of_day < self.to_ms
        return of_day >= self.from_ms or of_day < self.to_ms

    def allowed(self, fleet: int) -> int:
        """Return how many machines of a fleet of `fleet` may be disrupted at a time."""
        limits = []
        if self.count is not None:
            limits.append(self.count)
        if self.share_ppm is not None:
            limits.append(max(1, fleet * self.share_ppm // _PPM) if self.share_ppm else 0)
        return min(limits, default=fleet)


def allowance(
    budgets: Sequence[DisruptionBudget],
    *,
    reason: str,
    fleet: int,
    disrupted: Mapping[str, int],
    now_ms: Millis,
) -> int:
    """Return how many more machines may be disrupted for `reason`: what the tightest budget leaves.

    `disrupted` counts machines being disrupted now, by reason.
    """
    left = fleet
    for budget in budgets:
        if budget.holds(reason, now_ms):
            used = sum(
                count for why, count in disrupted.items()
                if not budget.reasons or why in budget.reasons
            )  # fmt: skip
            left = min(left, budget.allowed(fleet) - used)
    return max(0, left)


@dataclass(frozen=True, slots=True)
class TokenBucket:
    """A rate: `per_minute` on average, `burst` at once. `spent` is what is owed, in thousandths."""

    per_minute: int
    burst: int
    owed_milli: int = 0
    at_ms: Millis = field(default=0)

    def available(self, now_ms: Millis) -> int:
        """Return how many whole tokens there are at `now_ms`."""
        return max(0, (self.burst * 1000 - self._owed(now_ms)) // 1000)

    def taken(self, count: int, now_ms: Millis) -> TokenBucket:
        """Return the bucket after `count` tokens are taken; there must be as many."""
        assert 0 <= count <= self.available(now_ms)
        return replace(self, owed_milli=self._owed(now_ms) + count * 1000, at_ms=now_ms)

    def _owed(self, now_ms: Millis) -> int:
        refilled = max(0, now_ms - self.at_ms) * self.per_minute * 1000 // MINUTE_MS
        return max(0, self.owed_milli - refilled)
