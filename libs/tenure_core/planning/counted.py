"""Plans rigid leases on interchangeable capacity by counts, without binding them to nodes.

Allowed only where "it fits by count" means "it can be bound": all slots alike, none booked to a
fixed node. Leases are numbers 0, 1, ... into lists of widths (slots) and requests (milliseconds).
The rules are those of `planning.waiting` and `planning.improving`, and a property test holds the
two to the same starts; this form exists because it costs a few microseconds a lease.

`CountedEasy` needs no profile: while nothing is booked ahead but the one promise, what is free
never shrinks before the promised start s nor after it, so a lease may pass the head exactly when it
fits now and either ends by s or leaves the head room (Mu'alem and Feitelson 2001). `CountedBook`
keeps a profile and allows any number of promises and advance bookings.

Between two ends of leases what is free only shrinks, so a lease that did not fit is not looked at
again before one ends or a promise is used up: an arrival costs one look at itself.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import Final

from tenure_core.slots.profile import NodeProfile
from tenure_core.timebase import FOREVER, Millis

_GUARD: Final = 1 << 54


class CountedEasy:
    """First come, first served, with at most one promise; no advance bookings.

    Costs: an arrival O(1); an end O(log r) plus a walk over the waiting and, up to the promised
    start, the running leases.
    """

    def __init__(
        self,
        capacity: int,
        widths: Sequence[int],
        requests: Sequence[Millis],
        *,
        passing: bool = True,
    ) -> None:
        self._free = capacity
        self._widths = widths
        self._requests = requests
        self._passing = passing
        self._running: list[tuple[Millis, int]] = []
        self._expected: dict[int, Millis] = {}
        self._queue: list[int] = []
        self._ended = False
        self._promised: Millis = FOREVER
        self._extra = 0

    def end(self, lease: int) -> None:
        """Take note that a running lease ended."""
        self._free += self._widths[lease]
        expected = (self._expected.pop(lease), lease)
        del self._running[bisect_left(self._running, expected)]
        self._ended = True

    def decide(self, now: Millis, arrived: Sequence[int]) -> list[int]:
        """Let the leases that arrived join, and return those that start now."""
        queue = self._queue
        if self._ended or not queue:
            self._ended = False
            queue.extend(arrived)
            started = self._start_heads(now)
            if queue:
                self._promise(queue[0])
                if self._passing and self._free:
                    started += self._pass(now, queue, 1)
            return started
        first = len(queue)
        queue.extend(arrived)
        return self._pass(now, queue, first) if self._passing and self._free else []

    def _start_heads(self, now: Millis) -> list[int]:
        queue, widths = self._queue, self._widths
        count = 0
        for lease in queue:
            if widths[lease] > self._free:
                break
            self._start(lease, now)
            count += 1
        started = queue[:count]
        del queue[:count]
        return started

    def _start(self, lease: int, now: Millis) -> None:
        self._free -= self._widths[lease]
        end = now + self._requests[lease]
        self._expected[lease] = end
        insort(self._running, (end, lease))

    def _promise(self, head: int) -> None:
        wanted, widths = self._widths[head], self._widths
        free = self._free
        self._promised = FOREVER
        for end, lease in self._running:
            if end > self._promised:
                break
            free += widths[lease]
            if free >= wanted:
                self._promised = end
        self._extra = free - wanted

    def _pass(self, now: Millis, queue: list[int], first: int) -> list[int]:
        """Start whoever behind the head fits now and leaves the promise alone."""
        widths, requests = self._widths, self._requests
        free, extra, slack = self._free, self._extra, self._promised - now
        started: list[int] = []
        for index in range(first, len(queue)):
            lease = queue[index]
            width = widths[lease]
            if width <= free:
                if requests[lease] > slack:
                    if width > extra:
                        continue
                    extra -= width
                started.append(lease)
                free -= width
                self._start(lease, now)
                if not free:
                    break
        if started:
            self._extra = extra
            gone = set(started)
            queue[first:] = [lease for lease in queue[first:] if lease not in gone]
        return started


class CountedBook:
    """Promises and advance bookings on one profile of free slots.

    `promises_max` None is conservative backfilling. Promises are lifted and booked anew, in the
    order of arrival, after an end that came before its time; with `sweep_always`, after every end
    until nothing moves any more. A sweep costs one search a promise, O(k) in the profile's change
    points; a search is skipped when nothing up to the promised start is wide enough.
    """

    def __init__(
        self,
        capacity: int,
        widths: Sequence[int],
        requests: Sequence[Millis],
        *,
        promises_max: int | None,
        passing: bool = True,
        sweep_always: bool = True,
    ) -> None:
        self._profile = NodeProfile(capacity | _GUARD)
        self._widths = widths
        self._requests = requests
        self._promises_max = promises_max
        self._passing = passing
        self._sweep_always = sweep_always
        self._expected: dict[int, Millis] = {}
        self._promises: dict[int, Millis] = {}
        self._bookings: list[tuple[Millis, int]] = []
        self._queue: list[int] = []
        self._ended = self._early = False
        self._settled = True

    def end(self, lease: int, now: Millis) -> None:
        """Take note that a running lease ended."""
        expected = self._expected.pop(lease)
        if now < expected:
            self._profile.shift(now, expected, self._widths[lease])
            self._early = True
        self._ended = True

    def book(self, lease: int, start: Millis) -> bool:
        """Book a lease at exactly `start`; False when it does not fit."""
        width, end = self._widths[lease], start + self._requests[lease]
        if not self._profile.fits(start, end, width, _GUARD):
            return False
        self._profile.shift(start, end, -width)
        self._expected[lease] = end
        insort(self._bookings, (start, lease))
        return True

    def reconsider(self, now: Millis) -> None:
        """Move promises forward after the ends of this instant, before its arrivals are booked."""
        self._profile.forget_before(now)
        if self._early or (self._ended and self._sweep_always and not self._settled):
            self._sweep(now)
        self._early = False

    def due(self, now: Millis) -> list[int]:
        """Return the promises and bookings that are due now; they run from here on."""
        started = [lease for lease, start in self._promises.items() if start == now]
        for lease in started:
            del self._promises[lease]
            self._expected[lease] = now + self._requests[lease]
        while self._bookings and self._bookings[0][0] <= now:
            started.append(self._bookings.pop(0)[1])
        self._ended = self._ended or bool(started)
        return started

    def decide(self, now: Millis, arrived: Sequence[int]) -> list[int]:
        """Let the leases that arrived join the queue, and return those that start now."""
        queue = self._queue
        first = 0 if self._ended else len(queue)
        self._ended = False
        queue.extend(arrived)
        if not self._passing and first:
            return []
        return self._walk(now, first)

    def next_start(self) -> Millis:
        """Return the earliest booked start, FOREVER when nothing is booked."""
        booked = self._bookings[0][0] if self._bookings else FOREVER
        return min(booked, min(self._promises.values(), default=FOREVER))

    def _walk(self, now: Millis, first: int) -> list[int]:
        queue, profile, most = self._queue, self._profile, self._promises_max
        started: list[int] = []
        waiting: list[int] = []
        for index in range(first, len(queue)):
            lease = queue[index]
            width, request = self._widths[lease], self._requests[lease]
            if profile.fits(now, now + request, width, _GUARD):
                profile.shift(now, now + request, -width)
                self._expected[lease] = now + request
                started.append(lease)
            elif most is None or len(self._promises) < most:
                start = profile.first_fit(now, request, width, _GUARD)
                assert start is not None, "no lease is wider than the machine"
                profile.shift(start, start + request, -width)
                self._promises[lease] = start
            else:
                waiting.append(lease)
                if not self._passing:
                    waiting.extend(queue[index + 1 :])
                    break
        queue[first:] = waiting
        return started

    def _sweep(self, now: Millis) -> None:
        """Lift each promise in the order of arrival and book it anew at its earliest start."""
        profile, promises = self._profile, self._promises
        moved = False
        for lease in sorted(promises):
            booked = promises[lease]
            width, request = self._widths[lease], self._requests[lease]
            if booked == now or not _wide_enough(profile, booked, width):
                continue
            profile.shift(booked, booked + request, width)
            start = profile.first_fit(now, request, width, _GUARD, booked)
            assert start is not None, "its own place is free"
            profile.shift(start, start + request, -width)
            if start != booked:
                promises[lease] = start
                moved = True
        self._settled = not moved


def _wide_enough(profile: NodeProfile, until: Millis, width: int) -> bool:
    wanted = width | _GUARD
    free = profile.free
    return any(free[i] >= wanted for i in range(bisect_left(profile.times, until)))
