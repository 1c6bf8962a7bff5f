"""Moves booked starts forward when capacity became free, never back.

Best-effort promises and deadline bookings that have not begun are lifted one by one in the order of
arrival and booked again at their earliest start. A lease that was preempted for a later instant
keeps running to its end when the preemptor is gone.
"""

from __future__ import annotations

from tenure_core.errors import Exhausted
from tenure_core.leases.lease import Deadline
from tenure_core.leases.states import LeaseState
from tenure_core.planning.book import PlanningBook, placements
from tenure_core.planning.newcomers import schedule
from tenure_core.planning.plan import Schedule
from tenure_core.planning.resuming import AHEAD, find_resumption, resume_at
from tenure_core.planning.snapshot import LeaseView, ReservationKind, ReservationView
from tenure_core.slots.query import Window
from tenure_core.timebase import FOREVER, Interval, Millis


def improve_bookings(book: PlanningBook, freed: set[str] | None = None) -> set[str]:
    """Book every lease that may move at its earliest start, where that is earlier.

    `freed` are the nodes that gained anything since each lease was last looked at, None when that
    is not known: a lease that none of them could serve earlier is not looked at. Returns the nodes
    that gained by what moved.
    """
    gained: set[str] = set()
    for lease in book.sorted(book.ahead):
        rows = book.run_ahead(lease)
        if not rows or any(row.displaced for row in book.table.rows_of(lease.id)):
            continue
        booked = min(
            row.interval.start for row in book.table.rows_of(lease.id) if row.kind in AHEAD
        )
        if booked <= book.now:
            continue
        if lease.state is LeaseState.SUSPENDED:
            # What moves holds its nodes sooner than it resumes, so the runs are compared.
            resumes = rows[0].interval.start - book.policies.overheads.resume_ms
            found = find_resumption(book, lease, latest=resumes - 1)
            is_sooner = found is not None and found.resumes < resumes
            moved = found is not None and is_sooner and resume_at(book, lease, found)
            start = found.start if found is not None else None
        else:
            nodes = None if freed is None else freed | gained
            start = _move_forward(book, lease, rows, booked, nodes)
            moved = start is not None
        if moved:
            gained |= book.table.take_freed()
        if moved and start == book.now:
            book.promises.discard(lease.id)
    return gained | book.table.take_freed()


def restore_cut_runs(book: PlanningBook) -> None:
    """Let leases whose run was cut for a preemptor that is gone run on to their end."""
    for lease in book.sorted(book.cut):
        # One that was cut before it was seen to run may have no run left to go on with.
        if book.runs(lease.id):
            _restore(book, lease, book.table.of_lease(lease.id))


def _move_forward(
    book: PlanningBook,
    lease: LeaseView,
    rows: tuple[ReservationView, ...],
    booked: Millis,
    freed: set[str] | None,
) -> Millis | None:
    earliest = book.now
    terms = lease.spec.terms
    if isinstance(terms, Deadline) and terms.earliest_start is not None:
        earliest = max(earliest, terms.earliest_start)
    if earliest >= booked:
        return None
    duration = rows[0].interval.duration_ms
    window = Window(duration, earliest, booked - 1)
    amounts = lease.spec.amounts
    if freed is not None and freed.isdisjoint(row.node for row in rows):
        # Its own place is elsewhere, so these nodes can be asked before it is lifted.
        if book.table.first_fit_any(freed, amounts, window) is None:
            return None
        freed = None
    group = book.begin(lease.id)
    before = book.mark()
    for row in rows:
        book.release(row)
    if freed is not None and book.table.first_fit_any(freed, amounts, window) is None:
        book.abandon()
        return None
    fit = book.table.earliest_start(book.demand(lease), window, book.policies.host_selection)
    if fit is None:
        book.abandon()
        return None
    if sorted(fit.nodes) == sorted(row.node for row in rows):
        book.back_to(before)
        interval = Interval(fit.start, fit.start + duration)
        moved = [book.move(row, interval) for row in rows]
        book.keep(Schedule(lease.id, lease.attempt, interval, placements(moved), group))
    else:
        book.keep(schedule(book, lease, fit, duration, group))
    return fit.start


def _restore(book: PlanningBook, lease: LeaseView, rows: tuple[ReservationView, ...]) -> None:
    group = book.begin(lease.id)
    try:
        for row in rows:
            stays = row.kind is ReservationKind.RESIDENT and row.interval.end == FOREVER
            if stays or row.kind is ReservationKind.SUSPEND:
                book.release(row)
        runs = [row for row in rows if row.kind is ReservationKind.RUN]
        extended = [book.resize(row, row.interval.start + book.duration(lease)) for row in runs]
    except Exhausted:
        book.abandon()
        return
    interval = Interval(extended[0].interval.start, extended[0].interval.end)
    reason = "PREEMPTION_WITHDRAWN"
    book.keep(Schedule(lease.id, lease.attempt, interval, placements(extended), group, reason))
    book.settle(lease.id)
