"""What clocks of a zone show, as instants: with the hours that are missing or come twice.

When clocks go forward, some local times never are; when they go back, some are twice. Which instant
such a time means is a question of policy, and the answer is shown to whoever asks.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from enum import Enum
from typing import Final, NamedTuple

from tenure_core.timebase import Millis

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Missing(Enum):
    """What a local time means that clocks jump over."""

    LATER = "later"
    """As much later as clocks jump: 02:30 is 03:30 (RFC 5545, 3.3.5)."""
    SKIP = "skip"
    """Nothing: that occurrence is left out."""


class Doubled(Enum):
    """What a local time means that clocks show twice."""

    FIRST = "first"
    """The first time (RFC 5545, 3.3.5)."""
    SECOND = "second"
    """The second time."""
    BOTH = "both"
    """Two occurrences."""


class Note(Enum):
    """What is remarkable about an occurrence."""

    PLAIN = ""
    MOVED = "MOVED"
    """Clocks jump over its time; it is later."""
    SKIPPED = "SKIPPED"
    """Clocks jump over its time; it is left out."""
    TWICE = "TWICE"
    """Clocks show its time twice."""


class Reading(NamedTuple):
    """One instant that a local time means; `at` is None when it is left out."""

    at: Millis | None
    note: Note


def read_clock(
    local: datetime, zone: tzinfo, missing: Missing, doubled: Doubled
) -> tuple[Reading, ...]:
    """Return the instants, in milliseconds, that a local time without a zone means in a zone."""
    first, second = (_instant(local, zone, fold) for fold in (0, 1))
    if first == second:
        return (Reading(_millis(first), Note.PLAIN),)
    if first > second:
        # In a gap the offset before it applies first, so the time lies after the gap.
        if missing is Missing.SKIP:
            return (Reading(None, Note.SKIPPED),)
        return (Reading(_millis(first), Note.MOVED),)
    chosen = {
        Doubled.FIRST: (first,),
        Doubled.SECOND: (second,),
        Doubled.BOTH: (first, second),
    }[doubled]
    return tuple(Reading(_millis(at), Note.TWICE) for at in chosen)


def show_clock(at: Millis, zone: tzinfo) -> datetime:
    """Return what clocks of a zone show at an instant, with the zone's offset."""
    return (_EPOCH + timedelta(milliseconds=at)).astimezone(zone)


def _instant(local: datetime, zone: tzinfo, fold: int) -> datetime:
    return local.replace(tzinfo=zone, fold=fold).astimezone(UTC)


def _millis(at: datetime) -> Millis:
    return (at - _EPOCH) // timedelta(milliseconds=1)
