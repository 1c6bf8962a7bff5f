"""When a waiting lease would start if it asked for fewer slots or for less time.

What lies before it in the queue is planned once by the pool's policies (what may start now) and
once with a promise for everybody (what starts later); each question is then one search of the slot
table that is left. The lease keeps its place, so what is found holds also where a smaller lease
would go before it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tenure_core.leases.lease import Advance, BestEffort, Deadline
from tenure_core.leases.states import WAITING
from tenure_core.planning.book import PlanningBook
from tenure_core.planning.planner import run_pass
from tenure_core.planning.snapshot import LeaseView, Snapshot
from tenure_core.planning.waiting import queue_of
from tenure_core.policies.backfilling import Backfilling
from tenure_core.policies.bundle import Policies
from tenure_core.slots.query import Window
from tenure_core.timebase import FOREVER, Millis


@dataclass(frozen=True, slots=True)
class Prospects:
    """The pool as a waiting lease finds it once those before it have been served.

    `behind` counts the others in the queue that are not before it. `not_now` says that those before
    it may not be passed; `not_before` is when the last of them starts then.
    """

    lease: LeaseView
    before: tuple[LeaseView, ...]
    behind: int
    _now: PlanningBook
    _later: PlanningBook
    not_now: bool
    not_before: Millis

    @classmethod
    def of(cls, snapshot: Snapshot, policies: Policies, lease: str) -> Prospects | None:
        """Return the prospects of a lease that waits, or for a promised start; None for others."""
        present = PlanningBook.of(snapshot, policies)
        view = present.leases.get(lease)
        if view is None or (view.state not in WAITING and lease not in present.promises):
            return None
        queue = queue_of(present)
        before: tuple[LeaseView, ...] = ()
        if isinstance(view.spec.terms, BestEffort) and lease not in present.promises:
            place = next(index for index, each in enumerate(queue) if each.id == lease)
            before = tuple(queue[:place])
        gone = {lease, *(each.id for each in queue)} - {each.id for each in before}
        rest = replace(
            snapshot,
            leases=tuple(each for each in snapshot.leases if each.id not in gone),
            reservations=tuple(row for row in snapshot.reservations if row.lease != lease),
        )
        now = _planned(rest, policies)
        later = _planned(rest, replace(policies, backfilling=Backfilling.CONSERVATIVE))
        left = [
            each
            for each in map(now.leases.__getitem__, now.queue)
            if each.blocked is None and now.table.could_ever_fit(now.demand(each))
        ]
        depth = policies.depth_max
        strict = not policies.backfilling.passing
        not_now = bool(left) and (strict or (depth is not None and len(left) > depth))
        starts = [
            row.interval.start
            for each in (left if strict else ())
            for row in later.table.of_lease(each.id)
        ]
        return cls(
            view,
            before,
            len(gone) - 1,
            now,
            later,
            not_now=not_now,
            not_before=max(starts, default=snapshot.now),
        )

    def place(self) -> str:
        """Say why those before the lease are there."""
        return self._now.policies.ordering.place(self.lease, self.before, self._now)

    def start_of(self, node_count: int, duration_ms: Millis) -> Millis | None:
        """Return when the lease would start with so many slots for so long; None when never."""
        demand = replace(self._now.demand(self.lease), count=node_count)
        moment, latest = self._now.now, FOREVER
        match self.lease.spec.terms:
            case Advance(start=start):
                moment = latest = start
            case Deadline(deadline=deadline, earliest_start=earliest):
                moment, latest = max(moment, earliest or moment), deadline - duration_ms
        if moment > latest or moment < self._now.now:
            return None
        if not self.not_now:
            window = Window(duration_ms, moment)
            if self._now.table.fit_at(demand, window.at(moment)) is not None:
                return moment
        window = Window(duration_ms, max(moment, self.not_before), latest)
        fit = self._later.table.earliest_start(demand, window)
        return None if fit is None else fit.start


def _planned(snapshot: Snapshot, policies: Policies) -> PlanningBook:
    book = PlanningBook.of(snapshot, policies)
    run_pass(book)
    return book
