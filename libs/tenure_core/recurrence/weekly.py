"""Spans that recur every week, by the clocks of a zone: nights, weekends, hours of a class."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import Final

from tenure_core.recurrence.readings import Doubled, Missing, read_clock, show_clock
from tenure_core.timebase import DAY_MS, Interval, Millis

WEEK_MS: Final[Millis] = 7 * DAY_MS
WEEKS_MAX: Final = 54
"""Further ahead than any lease lasts; nothing is looked for beyond."""


@dataclass(frozen=True, slots=True, order=True)
class WeeklySpan:
    """A span of every week: `day` is 0 for Monday, `start_ms` since midnight by the clock."""

    day: int
    start_ms: Millis
    duration_ms: Millis


def within(spans: Iterable[WeeklySpan], zone: tzinfo, window: Interval) -> list[Interval]:
    """Return where the spans of all weeks lie in the window, in order of their starts.

    A time that clocks leave out is read as the first that they show after it, one that they show
    twice as the first; a span lasts as long as it says, whatever clocks do meanwhile.
    """
    far = window.start + WEEKS_MAX * WEEK_MS
    window = Interval(window.start, min(window.end, far))
    monday = _monday(show_clock(max(0, window.start) - 15 * DAY_MS, zone))
    found: list[Interval] = []
    weeks = -(-window.duration_ms // WEEK_MS) + 4
    for week in range(weeks):
        for span in spans:
            day = monday + timedelta(weeks=week, days=span.day)
            local = day + timedelta(milliseconds=span.start_ms)
            for reading in read_clock(local, zone, Missing.LATER, Doubled.FIRST):
                if reading.at is None:
                    continue
                shared = Interval(reading.at, reading.at + span.duration_ms).intersection(window)
                if shared is not None:
                    found.append(shared)
    return sorted(found, key=lambda each: each.start)


def _monday(at: datetime) -> datetime:
    """Return midnight of the Monday before, without a zone."""
    day = datetime(at.year, at.month, at.day)  # a clock's reading
    return day - timedelta(days=day.weekday())
