"""Suspended leases resume where they are: on the nodes that keep their state.

A suspended lease holds one open-ended RESIDENT reservation a slot. Resuming ends it where the
RESUME (if that takes time) and the RUN begin, for the full amounts.
"""

from __future__ import annotations

from collections import Counter

from tenure_core.errors import Exhausted
from tenure_core.leases.lease import BestEffort
from tenure_core.planning.book import PlanningBook, placements
from tenure_core.planning.plan import Resume
from tenure_core.planning.snapshot import LeaseView, ReservationKind, ReservationView
from tenure_core.slots.query import Window
from tenure_core.timebase import FOREVER, Interval, Millis


def has_homes(book: PlanningBook, lease: LeaseView) -> bool:
    """Say whether for each slot of the lease a reservation says where its state is kept."""
    return len(_homes(book, lease)) == lease.spec.node_count


def resume_start(book: PlanningBook, lease: LeaseView, latest: Millis = FOREVER) -> Millis | None:
    """Return the earliest start up to `latest` at which all nodes of the lease have room for it.

    The present RESIDENT and booked RUN reservations of the lease are not counted. None when there
    is none, or when a node of it is displaced or gone.
    """
    homes = _homes(book, lease)
    if len(homes) != lease.spec.node_count or any(row.displaced for row in homes):
        return None
    book.table.begin()
    for row in book.table.of_lease(lease.id):
        if row.interval.end > book.now:
            book.table.remove(row.id)
    duration = book.policies.overheads.resume_ms + book.duration(lease)
    start = book.table.earliest_on(
        Counter(row.node for row in homes),
        lease.spec.amounts,
        Window(duration, book.now, latest),
    )
    book.table.undo()
    return start


def resume_at(book: PlanningBook, lease: LeaseView, start: Millis) -> bool:
    """Book the lease to resume at `start`; False, with nothing changed, when it does not fit."""
    homes = _homes(book, lease)
    group = book.begin(lease.id)
    takes = book.policies.overheads.resume_ms
    span = Interval(start + takes, start + takes + book.duration(lease))
    rows: list[ReservationView] = []
    try:
        for row in book.table.of_lease(lease.id):
            if row.kind in (ReservationKind.RUN, ReservationKind.RESUME):
                if row.interval.end > book.now:
                    book.release(row)
            elif row.kind is ReservationKind.RESIDENT:
                book.end_at(row, start)
        for home in homes:
            if takes:
                before = Interval(start, start + takes)
                book.book(lease, home.rank, home.node, before, kind=ReservationKind.RESUME)
            rows.append(book.book(lease, home.rank, home.node, span))
    except Exhausted:
        book.abandon()
        return False
    interval = Interval(start, span.end)
    book.keep(Resume(lease.id, book.attempt_of(lease), interval, placements(rows), group))
    promised = start > book.now and isinstance(lease.spec.terms, BestEffort)
    book.settle(lease.id, promised=promised)
    return True


def _homes(book: PlanningBook, lease: LeaseView) -> tuple[ReservationView, ...]:
    """Return one reservation a slot that says on which node its state is kept, by rank."""
    by_rank: dict[int, ReservationView] = {}
    for row in book.table.of_lease(lease.id):
        if row.kind is ReservationKind.RESIDENT or (
            row.kind is ReservationKind.RUN and row.interval.end > book.now
        ):
            kept = by_rank.get(row.rank)
            if kept is None or kept.kind is not ReservationKind.RESIDENT:
                by_rank[row.rank] = row
    return tuple(by_rank[rank] for rank in sorted(by_rank))
