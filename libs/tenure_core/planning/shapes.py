"""What a walk through the queue has learnt about the shapes of demands, to skip what cannot fit.

While the queue is walked, capacity is only taken. So a shape that did not fit now does not fit
again, nor does a larger one: more slots, or for longer.
"""

from __future__ import annotations

from bisect import insort

from tenure_core.planning.book import PlanningBook
from tenure_core.planning.snapshot import LeaseView
from tenure_core.resources import ResourceVector
from tenure_core.timebase import Interval, Millis

_Shape = tuple[ResourceVector, tuple[tuple[str, str], ...], bool]


class Shapes:
    """Misfits by shape: the smallest (slots, duration), and how many of its slots did fit."""

    def __init__(self, book: PlanningBook) -> None:
        self._book = book
        self._misfits: dict[_Shape, list[tuple[int, Millis, int]]] = {}
        self._starts: dict[_Shape, list[tuple[Millis, int, Millis]]] = {}
        self._gained: dict[_Shape, tuple[str, ...]] = {}
        self._ever: dict[tuple[_Shape, int], bool] = {}
        self._no_part: dict[_Shape, int] = {}

    def hopeless(self, lease: LeaseView) -> bool:
        """Say whether a shape no larger than the lease's did not fit now."""
        known = self._misfits.get(_shape(lease))
        if not known:
            return False
        slots, duration = lease.spec.node_count, self._book.duration(lease)
        for count, length, found in known:
            if slots >= count and duration >= length:
                self._book.looked[lease.id] = found
                return True
        return False

    def still_misfits(self, lease: LeaseView) -> bool:
        """Say whether the lease, which did not fit when looked at, surely does not fit now.

        On all nodes but those in `book.freed`, what is free only shrank since; so no more slots
        fit than did then and those that fit on these. Which of these have room for one slot at
        this instant is found once a shape.
        """
        book = self._book
        if book.freed is None or lease.id not in book.looked:
            return False
        shape = _shape(lease)
        nodes = self._gained.get(shape)
        moment = Interval(book.now, book.now + 1)
        amounts, fits_any = lease.spec.amounts, book.table.fits_any
        if nodes is None:
            nodes = tuple(node for node in book.freed if fits_any((node,), moment, amounts))
            self._gained[shape] = nodes
        if not nodes:
            return True
        whole = Interval(book.now, book.now + book.duration(lease))
        slots = book.looked[lease.id] + book.table.slots_on(nodes, book.demand(lease), whole)
        if slots >= lease.spec.node_count:
            return False
        book.looked[lease.id] = slots
        return True

    def note_misfit(self, lease: LeaseView, found: int) -> None:
        """Remember that the lease does not fit now, and how many of its slots would."""
        self._book.looked[lease.id] = found
        slots, duration = lease.spec.node_count, self._book.duration(lease)
        known = self._misfits.setdefault(_shape(lease), [])
        known[:] = [entry for entry in known if entry[0] < slots or entry[1] < duration]
        known.append((slots, duration, found))

    def has_no_part(self, lease: LeaseView) -> bool:
        """Say whether no more slots of the lease's shape could run now for as long as a part."""
        most = self._no_part.get(_shape(lease))
        return most is not None and lease.spec.node_count >= most

    def note_no_part(self, lease: LeaseView) -> None:
        """Remember that so many slots cannot run now, not for the shortest part."""
        known = self._no_part.get(_shape(lease), lease.spec.node_count)
        self._no_part[_shape(lease)] = min(known, lease.spec.node_count)

    def not_before(self, lease: LeaseView) -> Millis:
        """Return an instant before which the lease cannot start: a smaller one found no place."""
        slots, duration = lease.spec.node_count, self._book.duration(lease)
        for start, count, length in self._starts.get(_shape(lease), ()):
            if slots >= count and duration >= length:
                return start
        return self._book.now

    def note_start(self, lease: LeaseView, start: Millis) -> None:
        """Remember the earliest start that was found for the lease; latest starts come first."""
        entry = (start, lease.spec.node_count, self._book.duration(lease))
        insort(self._starts.setdefault(_shape(lease), []), entry, key=lambda known: -known[0])

    def forget_starts(self) -> None:
        """Forget the starts found, and what parts fit: something was given back for later."""
        self._starts.clear()
        self._no_part.clear()

    def ever_fits(self, lease: LeaseView) -> bool:
        """Say whether the lease fits the pool when everything is free."""
        key = (_shape(lease), lease.spec.node_count)
        if key not in self._ever:
            self._ever[key] = self._book.table.could_ever_fit(self._book.demand(lease))
        return self._ever[key]


def _shape(lease: LeaseView) -> _Shape:
    spec = lease.spec
    return spec.amounts, tuple(sorted(spec.node_selector.items())), spec.spread
