"""Finds other nodes for bookings whose node can no longer keep them.

A lease that has not begun keeps its interval when other nodes are free then; otherwise a
best-effort or deadline lease is planned anew, and an advance lease may preempt or is lost, and its
owner is told. A lease that has begun is stopped and waits for a new attempt.
"""

from __future__ import annotations

from tenure_core.errors import Exhausted
from tenure_core.leases.lease import Advance
from tenure_core.leases.states import LeaseState
from tenure_core.planning.book import PlanningBook, placements
from tenure_core.planning.newcomers import place_newcomer
from tenure_core.planning.plan import Preempt, PreemptHow, Schedule
from tenure_core.planning.resuming import has_homes
from tenure_core.planning.snapshot import LeaseView, ReservationKind, ReservationView
from tenure_core.slots.query import Demand, Window

_LEAVING = frozenset({LeaseState.STOPPING, LeaseState.CANCELLING})


def replace_displaced(book: PlanningBook) -> None:
    """Re-place every lease that has a displaced reservation, in the order of arrival."""
    for lease in book.sorted(book.queue):
        if lease.state is LeaseState.SUSPENDED and not has_homes(book, lease):
            # Nothing says where its state is kept: it cannot resume.
            _requeue(book, lease, book.table.of_lease(lease.id))
    for lease in book.sorted(book.table.displaced_leases() & book.leases.keys()):
        rows = book.table.of_lease(lease.id)
        if lease.state in _LEAVING:
            continue
        if book.has_begun(lease):
            _requeue(book, lease, rows)
        elif not _rebind(book, lease, rows):
            _requeue(book, lease, rows)
            if isinstance(lease.spec.terms, Advance):
                place_newcomer(book, lease)


def _rebind(book: PlanningBook, lease: LeaseView, rows: tuple[ReservationView, ...]) -> bool:
    """Put each displaced slot on another node for the same interval; False changes nothing."""
    if any(row.kind is not ReservationKind.RUN for row in rows):
        return False
    spec = lease.spec
    group = book.begin(lease.id)
    bound = [row for row in rows if not row.displaced]
    try:
        for row in (row for row in rows if row.displaced):
            taken = {other.node for other in bound} if spec.spread else set()
            nodes = frozenset(node.id for node in book.table.nodes()) - taken
            demand = Demand(spec.amounts, 1, spec.node_selector, nodes=nodes)
            window = Window(row.interval.duration_ms, row.interval.start)
            fit = book.table.fit_at(
                demand, window.at(row.interval.start), book.policies.host_selection
            )
            if fit is None:
                book.abandon()
                return False
            bound.append(book.rebind(row, fit.nodes[0]))
    except Exhausted:
        book.abandon()
        return False
    interval = rows[0].interval
    reason = "NODE_LOST"
    book.keep(Schedule(lease.id, lease.attempt, interval, placements(bound), group, reason))
    booked = lease.id in book.promises
    book.settle(lease.id, promised=booked)
    return True


def _requeue(book: PlanningBook, lease: LeaseView, rows: tuple[ReservationView, ...]) -> None:
    group = book.begin(lease.id)
    for row in rows:
        book.release(row)
    how = PreemptHow.REQUEUE
    book.keep(Preempt(lease.id, lease.attempt, "", how, book.now, book.now, group))
    book.requeue(lease.id)
