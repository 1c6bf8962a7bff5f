"""Token buckets: how often something may happen, with a burst, by names that come and go.

Pure but for what the buckets remember; the present is passed in, in milliseconds of any clock that
does not go back.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rate:
    """`per_s` a second in the long run, `burst` at once."""

    per_s: float
    burst: float


class Buckets:
    """A bucket for each name, full at first; at most `names_max` are kept.

    Those that were not used for longest are forgotten first: they are full again by then, or the
    names come faster than any of them can be held to account.
    """

    def __init__(self, rate: Rate, names_max: int = 10_000) -> None:
        self._rate = rate
        self._names_max = names_max
        self._levels: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def take(self, name: Hashable, now_ms: float) -> float:
        """Take one and return 0.0, or return in how many milliseconds there will be one."""
        wait_ms = self.wait_ms(name, now_ms)
        if wait_ms == 0.0:
            level, at = self._level(name, now_ms)
            self._levels[name] = (level - 1.0, at)
            self._levels.move_to_end(name)
            if len(self._levels) > self._names_max:
                self._levels.popitem(last=False)
        return wait_ms

    def wait_ms(self, name: Hashable, now_ms: float) -> float:
        """Return in how many milliseconds there will be one to take; 0.0 when there is."""
        missing = 1.0 - self._level(name, now_ms)[0]
        return 0.0 if missing <= 0 else missing * 1_000 / self._rate.per_s

    def _level(self, name: Hashable, now_ms: float) -> tuple[float, float]:
        level, at = self._levels.get(name, (self._rate.burst, now_ms))
        grown = level + max(0.0, now_ms - at) * self._rate.per_s / 1_000
        return min(self._rate.burst, grown), now_ms
