"""What is free on one node from each change point on, as two parallel lists.

Knows neither reservations nor leases: packed amounts (`slots.packing`) go in and out. With k change
points on the node, finding a point costs O(log k), changing a span O(k) (a list insert and one
addition a segment inside), searching O(k). Neighbouring segments always differ, so adding and
removing the same span restores the very same lists.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final

from tenure_core.timebase import FOREVER, Millis

BEGINNING: Final[Millis] = -(2**53)
"""An instant earlier than any other."""


class NodeProfile:
    """`free[i]` holds from `times[i]` to `times[i + 1]`, the last one for ever."""

    __slots__ = ("free", "times")

    def __init__(self, nothing: int) -> None:
        self.times: list[Millis] = [BEGINNING]
        self.free: list[int] = [nothing]

    def shift(self, start: Millis, end: Millis, by: int) -> None:
        """Add `by` (negative to take) to what is free in [start, end)."""
        times, free = self.times, self.free
        i = bisect_left(times, start)
        if i == len(times) or times[i] != start:
            times.insert(i, start)
            free.insert(i, free[i - 1])
        j = bisect_left(times, end, i)
        if j == len(times) or times[j] != end:
            times.insert(j, end)
            free.insert(j, free[j - 1])
        for k in range(i, j):
            free[k] += by
        if free[j] == free[j - 1]:
            del times[j], free[j]
        if i and free[i] == free[i - 1]:
            del times[i], free[i]

    def raise_from(self, start: Millis, end: Millis | None, by: int) -> None:
        """Add `by` to what is free in [start, end), or from `start` for ever when `end` is None."""
        if end is not None:
            self.shift(start, end, by)
            return
        i = bisect_left(self.times, start)
        if i == len(self.times) or self.times[i] != start:
            self.times.insert(i, start)
            self.free.insert(i, self.free[i - 1])
        for k in range(i, len(self.times)):
            self.free[k] += by
        if i and self.free[i] == self.free[i - 1]:
            del self.times[i], self.free[i]

    def at(self, instant: Millis) -> int:
        """Return what is free at `instant`."""
        return self.free[bisect_right(self.times, instant) - 1]

    def fits(self, start: Millis, end: Millis, demand: int, guard: int) -> bool:
        """Say whether `demand` is free throughout [start, end)."""
        times, free = self.times, self.free
        i = bisect_right(times, start) - 1
        count = len(times)
        while True:
            if (free[i] - demand) & guard != guard:
                return False
            i += 1
            if i == count or times[i] >= end:
                return True

    def first_fit(
        self, start: Millis, duration: Millis, demand: int, guard: int, latest: Millis = FOREVER
    ) -> Millis | None:
        """Return the earliest instant in [start, latest] from which `demand` fits, None if none."""
        times, free = self.times, self.free
        i = bisect_right(times, start) - 1
        count = len(times)
        end = start + duration
        while True:
            if (free[i] - demand) & guard == guard:
                i += 1
                if i == count or times[i] >= end:
                    return start
            else:
                i += 1
                if i == count:
                    return None
                start = times[i]
                if start > latest or start >= FOREVER:
                    return None
                end = start + duration

    def first_misfit(self, start: Millis, demand: int, guard: int) -> Millis:
        """Return the first change at or after `start` from which `demand` does not fit."""
        times, free = self.times, self.free
        for i in range(bisect_left(times, start), len(times)):
            if (free[i] - demand) & guard != guard:
                return times[i]
        return FOREVER

    def between(self, after: Millis, before: Millis) -> list[Millis]:
        """Return the instants after one and before another at which what is free changes."""
        times = self.times
        return times[bisect_right(times, after) : bisect_left(times, before)]

    def segments(self, start: Millis, end: Millis) -> list[tuple[Millis, int]]:
        """Return (from, free) for each segment that meets [start, end), the first cut to start."""
        i = bisect_right(self.times, start) - 1
        j = bisect_left(self.times, end, i + 1)
        found = list(zip(self.times[i:j], self.free[i:j], strict=True))
        found[0] = (start, found[0][1])
        return found

    def forget_before(self, instant: Millis) -> None:
        """Drop the change points that lie wholly before `instant`."""
        i = bisect_right(self.times, instant) - 1
        if i > 0:
            del self.times[:i], self.free[:i]
            self.times[0] = BEGINNING
