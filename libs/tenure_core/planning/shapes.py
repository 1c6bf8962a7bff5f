"""What a walk through the queue has learnt about the shapes of demands, to skip what cannot fit.

While the queue is walked, capacity is only taken. So a shape that did not fit now does not fit
again, nor does a larger one: more slots, or for longer.
"""

from __future__ import annotations

from tenure_core.planning.book import PlanningBook
from tenure_core.planning.snapshot import LeaseView
from tenure_core.resources import ResourceVector
from tenure_core.timebase import Millis

_Shape = tuple[ResourceVector, tuple[tuple[str, str], ...], bool]


class Shapes:
    """Misfits by shape, as the smallest (slots, duration) pairs that did not fit."""

    def __init__(self, book: PlanningBook) -> None:
        self._book = book
        self._misfits: dict[_Shape, list[tuple[int, Millis]]] = {}
        self._ever: dict[tuple[_Shape, int], bool] = {}

    def hopeless(self, lease: LeaseView) -> bool:
        """Say whether a shape no larger than the lease's did not fit now."""
        known = self._misfits.get(_shape(lease))
        if not known:
            return False
        slots, duration = lease.spec.node_count, self._book.duration(lease)
        return any(slots >= count and duration >= length for count, length in known)

    def note_misfit(self, lease: LeaseView) -> None:
        """Remember that the lease does not fit now."""
        slots, duration = lease.spec.node_count, self._book.duration(lease)
        known = self._misfits.setdefault(_shape(lease), [])
        known[:] = [pair for pair in known if not (pair[0] >= slots and pair[1] >= duration)]
        known.append((slots, duration))

    def ever_fits(self, lease: LeaseView) -> bool:
        """Say whether the lease fits the pool when everything is free."""
        key = (_shape(lease), lease.spec.node_count)
        if key not in self._ever:
            self._ever[key] = self._book.table.could_ever_fit(self._book.demand(lease))
        return self._ever[key]


def _shape(lease: LeaseView) -> _Shape:
    spec = lease.spec
    return spec.amounts, tuple(sorted(spec.node_selector.items())), spec.spread
