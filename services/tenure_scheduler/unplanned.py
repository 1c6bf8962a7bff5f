"""What changed in a pool since it was last planned, and what a plan must look at anyway.

Holds names only; the things themselves are the mirror's. Each note is O(log rows).
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import Final

from tenure_core.leases.lease import Advance
from tenure_core.leases.states import LeaseState
from tenure_core.planning.snapshot import ReservationKind, ReservationView
from tenure_core.timebase import FOREVER, Millis
from tenure_scheduler.entries import LeaseEntry

_PLAIN: Final = frozenset({ReservationKind.RUN, ReservationKind.MAINTENANCE})


class Unplanned:
    """Names of what changed, and of what is not as usual.

    `rows` and `leases` changed. `apart` are all leases but those booked for a time of their own:
    nothing is to be done about these until something changes. `changing` wait for a verdict on a
    change. `odd` are rows of which the planner makes something else than they say.
    """

    def __init__(self) -> None:
        self.rows: set[str] = set()
        self.leases: set[str] = set()
        self.apart: set[str] = set()
        self.changing: set[str] = set()
        self.odd: set[str] = set()
        self._ends: list[tuple[Millis, str]] = []

    def note_lease(self, entry: LeaseEntry) -> None:
        """Note a lease that is new or changed."""
        lease = entry.lease
        self.leases.add(lease.id)
        booked = lease.state is LeaseState.SCHEDULED and isinstance(lease.spec.terms, Advance)
        (self.apart.discard if booked else self.apart.add)(lease.id)
        (self.changing.discard if entry.change is None else self.changing.add)(lease.id)

    def note_end(self, lease: str) -> None:
        """Note a lease that ended."""
        self.leases.add(lease)
        self.apart.discard(lease)
        self.changing.discard(lease)

    def note_row(self, row: ReservationView) -> None:
        """Note a reservation that is new or changed."""
        self.rows.add(row.id)
        self.leases.add(row.lease)
        plain = row.kind in _PLAIN and not row.displaced
        (self.odd.discard if plain else self.odd.add)(row.id)
        if row.interval.end < FOREVER:
            heapq.heappush(self._ends, (row.interval.end, row.id))

    def note_drop(self, row: ReservationView) -> None:
        """Note a reservation that is gone."""
        self.rows.add(row.id)
        self.leases.add(row.lease)
        self.odd.discard(row.id)

    def overruns(self, rows: Mapping[str, ReservationView], now: Millis) -> bool:
        """Say whether a reservation is still there although its time is over."""
        while self._ends and self._ends[0][0] <= now:
            row = rows.get(self._ends[0][1])
            if row is not None and row.interval.end <= now:
                return True
            heapq.heappop(self._ends)
        return False

    def planned(self) -> None:
        """Begin anew: what changed so far was planned."""
        self.rows, self.leases = set(), set()
