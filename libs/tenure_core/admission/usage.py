"""Cuts the time that something was held into slices, and adds slices up by day.

Slices are aligned to the clock (five minutes by default) and partial only where the work starts and
ends. Work that still runs is charged up to the last boundary that has passed. Everything is exact:
usage is amount x milliseconds, an integer; days are the sums of their slices. (The ancestor drops
fractions of a second in the sums by day but not in the slices.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tenure_core.admission.amounts import Amounts, plus
from tenure_core.timebase import DAY_MS, MINUTE_MS, Interval, Millis

SLICE_MS: Final = 5 * MINUTE_MS
"""The length of a whole slice; it divides a day, so no slice crosses midnight."""


@dataclass(frozen=True, slots=True)
class UsageSlice:
    """What was used in one span: amount x milliseconds by kind."""

    span: Interval
    usage: Amounts


@dataclass(frozen=True, slots=True)
class Metered:
    """The slices that are new, and the instant up to which everything has been charged now."""

    slices: tuple[UsageSlice, ...]
    observed_until: Millis


def meter(
    held: Amounts,
    started: Millis,
    now: Millis,
    *,
    ended: Millis | None = None,
    observed_until: Millis | None = None,
    slice_ms: Millis = SLICE_MS,
) -> Metered:
    """Charge what has not been charged yet of work that holds `held`.

    Work that has ended is charged to its end, other work to the last boundary at or before `now`.
    A clock that went back charges nothing and never takes back what was charged.
    """
    begin = started if observed_until is None else observed_until
    until = now - now % slice_ms if ended is None else ended
    if until <= begin:
        return Metered((), begin)
    slices = tuple(
        UsageSlice(span, {kind: amount * span.duration_ms for kind, amount in held.items()})
        for span in _cut(begin, until, slice_ms)
    )
    return Metered(slices, until)


def by_day(slices: Sequence[UsageSlice]) -> dict[int, dict[str, int]]:
    """Return the sums by day, counted in days since 1970 (UTC), without loss."""
    days: dict[int, dict[str, int]] = {}
    for piece in slices:
        day = piece.span.start // DAY_MS
        days[day] = plus(days.get(day, {}), piece.usage)
    return days


def _cut(begin: Millis, until: Millis, slice_ms: Millis) -> Iterator[Interval]:
    while begin < until:
        boundary = begin - begin % slice_ms + slice_ms
        yield Interval(begin, min(boundary, until))
        begin = boundary
