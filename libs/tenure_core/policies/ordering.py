"""In which order waiting leases are looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tenure_core.planning.snapshot import LeaseView
from tenure_core.timebase import Millis


class Ordering(Protocol):
    """Sorts the queue."""

    def key(self, lease: LeaseView, now: Millis) -> tuple[int, ...]:
        """Return the sort key of `lease`, lowest first; ties go by arrival."""
        ...


@dataclass(frozen=True, slots=True)
class FirstComeFirstServed:
    """By arrival; a suspended or requeued lease keeps its old place."""

    def key(self, lease: LeaseView, now: Millis) -> tuple[int, ...]:  # noqa: ARG002  # the port's
        """Return the arrival."""
        return (lease.arrival,)


@dataclass(frozen=True, slots=True)
class HighestPriorityFirst:
    """By priority, highest first, then by arrival."""

    def key(self, lease: LeaseView, now: Millis) -> tuple[int, ...]:  # noqa: ARG002  # the port's
        """Return the negated priority and the arrival."""
        return (-lease.spec.priority, lease.arrival)


@dataclass(frozen=True, slots=True)
class ShortestFirst:
    """By remaining run time, then by arrival."""

    def key(self, lease: LeaseView, now: Millis) -> tuple[int, ...]:  # noqa: ARG002  # the port's
        """Return the remaining time and the arrival."""
        return (lease.remaining_ms, lease.arrival)
