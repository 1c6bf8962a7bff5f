"""Time as the core sees it: integer milliseconds since the Unix epoch, and half-open spans.

The core never asks what time it is; callers pass it in. `Clock` is the port through which the
outside supplies it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Protocol

Millis = int
"""Milliseconds, either since 1970-01-01T00:00:00Z or as a length; the name says which."""

SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 86_400_000

FOREVER: Final[Millis] = 2**53
"""An instant later than any other, for spans without an end; fits a JSON number exactly."""


def in_words(at: Millis) -> str:
    """Return an instant as sentences for people have it: `2026-11-30 21:05:00 UTC`."""
    return datetime.fromtimestamp(at / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


class Clock(Protocol):
    """Where the time comes from: the system, a database, or a simulation."""

    def now_ms(self) -> Millis:
        """Return the present instant in milliseconds since the Unix epoch."""
        ...


@dataclass(frozen=True, slots=True, order=True)
class Interval:
    """The half-open span [start, end): touching spans do not overlap."""

    start: Millis
    end: Millis

    def __post_init__(self) -> None:
        if self.end <= self.start:
            raise ValueError(f"an interval ends after it starts, not [{self.start}, {self.end})")

    @property
    def duration_ms(self) -> Millis:
        """Return the length of the span."""
        return self.end - self.start

    def contains(self, instant: Millis) -> bool:
        """Say whether `instant` lies in [start, end)."""
        return self.start <= instant < self.end

    def overlaps(self, other: Interval) -> bool:
        """Say whether the two spans share an instant; spans that merely touch do not."""
        return self.start < other.end and other.start < self.end

    def covers(self, other: Interval) -> bool:
        """Say whether every instant of `other` lies in this span."""
        return self.start <= other.start and other.end <= self.end

    def intersection(self, other: Interval) -> Interval | None:
        """Return the span that both share, or None."""
        start, end = max(self.start, other.start), min(self.end, other.end)
        return Interval(start, end) if start < end else None
