"""The planner's book of a pool, kept from pass to pass while what it knows stays true.

Equivalent to: make the book anew from a snapshot for each pass (which is what happens whenever
anything is out of the ordinary: work that overran, displaced or suspended reservations, nodes that
changed, a plan that did not take effect as a whole). Differs in cost: a pass then takes as long as
what changed, not as long as all that is booked.
"""

from __future__ import annotations

from tenure_core.errors import Exhausted
from tenure_core.planning.book import PlanningBook
from tenure_core.policies.bundle import Policies
from tenure_core.slots.operations import Node
from tenure_core.timebase import Millis
from tenure_scheduler.mirror import PoolMirror
from tenure_scheduler.snapshots import Snapshots


class KeptBook:
    """Gives the book for a pass; whoever planned with it hands it back if all took effect."""

    def __init__(self, mirror: PoolMirror, snapshots: Snapshots) -> None:
        self._mirror = mirror
        self._snapshots = snapshots
        self._book: PlanningBook | None = None
        self._nodes: list[tuple[Node, bool]] = []

    def take(self, now: Millis, policies: Policies) -> PlanningBook:
        """Return the pool's book at `now`; it is kept no longer unless it is handed back."""
        book, self._book = self._book, None
        nodes = [(node, self._snapshots.takes_work(node)) for node in self._mirror.nodes.values()]
        if book is None or nodes != self._nodes or not self._follow(book, now, policies):
            book = PlanningBook.of(self._snapshots.take(now), policies)
        self._nodes = nodes
        self._mirror.unplanned.planned()
        return book

    def hand_back(self, book: PlanningBook) -> None:
        """Keep a book whose plan took effect as a whole."""
        self._book = book if book.is_exact else None

    def _follow(self, book: PlanningBook, now: Millis, policies: Policies) -> bool:
        """Bring the book up to now; False leaves it useless."""
        unplanned = self._mirror.unplanned
        if unplanned.odd or unplanned.overruns(self._mirror.rows, now):
            return False
        if not self._follow_rows(book):
            return False
        book.begin_pass(now, policies, self._mirror.revision, self._snapshots.factors())
        due = unplanned.leases | unplanned.apart | book.newcomers | book.queue
        for name in due:
            entry = self._mirror.leases.get(name)
            if entry is not None:
                book.put(self._snapshots.view(entry, now))
            elif name in book.leases:
                book.drop(name)
        return True

    def _follow_rows(self, book: PlanningBook) -> bool:
        new = []
        for name in self._mirror.unplanned.rows:
            row = self._mirror.rows.get(name)
            if name in book.table:
                if row == book.table.get(name):
                    continue
                book.table.remove(name)
            if row is not None:
                new.append(row)
        try:
            for row in new:
                if row.node in self._mirror.nodes:
                    book.table.add(row)
        except Exhausted:
            # What was read while the table changed does not fit together yet.
            return False
        return True
