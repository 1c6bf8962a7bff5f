"""Best-effort leases that run for a part of their time: until what is booked behind needs the room.

A lease that does not fit whole now begins all the same where it can run for long enough, is
suspended in time, and goes on later. Its end is booked as a preemption's is: RUN, SUSPEND, and a
RESIDENT without end; should what was in the way go, the run is restored
(`planning.improving.restore_cut_runs`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from tenure_core.leases.lease import BestEffort
from tenure_core.planning.book import PlanningBook, placements
from tenure_core.planning.plan import Resume, Schedule
from tenure_core.planning.resuming import homes_of, leave_home
from tenure_core.planning.snapshot import LeaseView, ReservationKind, ReservationView
from tenure_core.slots.query import Demand
from tenure_core.timebase import FOREVER, Interval, Millis


def may_part(book: PlanningBook, lease: LeaseView) -> bool:
    """Say whether the lease may run in parts: wanted, possible, and long enough for two."""
    if not book.policies.partial_starts or not isinstance(lease.spec.terms, BestEffort):
        return False
    owed = book.duration(lease) - book.policies.overheads.shutdown_ms
    return lease.suspendable and owed >= 2 * _least(book)


def start_part(book: PlanningBook, lease: LeaseView) -> bool:
    """Start a lease that may part now for as long as it can run.

    False, with nothing changed, when that is too short.
    """
    found = _longest(book, lease, book.demand(lease), None, 0)
    if found is None:
        return False
    end, nodes = found
    group = book.begin(lease.id)
    interval, rows = _book(book, lease, end, nodes, 0)
    book.keep(Schedule(lease.id, book.attempt_of(lease), interval, placements(rows), group))
    book.settle(lease.id)
    return True


def resume_part(book: PlanningBook, lease: LeaseView) -> bool:
    """Let a suspended lease go on now, where it is, for as long as it can; False as above."""
    homes = homes_of(book, lease)
    if not may_part(book, lease) or len(homes) != lease.spec.node_count:
        return False
    takes = book.policies.overheads.resume_ms
    group = book.begin(lease.id)
    leave_home(book, lease, book.now)
    nodes = [row.node for row in homes]
    demand = replace(book.demand(lease), nodes=frozenset(nodes))
    found = _longest(book, lease, demand, nodes, takes)
    if found is None:
        book.abandon()
        return False
    interval, rows = _book(book, lease, found[0], nodes, takes)
    book.keep(Resume(lease.id, book.attempt_of(lease), interval, placements(rows), group))
    book.settle(lease.id)
    return True


def _least(book: PlanningBook) -> Millis:
    overheads = book.policies.overheads
    return max(book.policies.threshold_ms, overheads.suspend_ms + overheads.resume_ms, 1)


def _longest(
    book: PlanningBook,
    lease: LeaseView,
    demand: Demand,
    homes: Sequence[str] | None,
    takes: Millis,
) -> tuple[Millis, Sequence[str]] | None:
    """Return the latest end of a part that begins now, and a node for each slot.

    The part and what is left of the lease each last at least as long as the threshold, and as
    suspending and resuming take. What fits until a later end fits until an earlier one, so the
    latest is found by halving.
    """
    overheads = book.policies.overheads
    least = _least(book)
    owed = book.duration(lease) - overheads.shutdown_ms
    begins = book.now + takes
    first, last = begins + least + overheads.suspend_ms, begins + owed - least
    last += overheads.suspend_ms
    kept = replace(demand, amounts=lease.kept)

    def fitting(end: Millis) -> Sequence[str] | None:
        slots = book.table.slots_then(demand, kept, Interval(book.now, end))
        if homes is not None:
            enough = all(slots.get(node, 0) >= n for node, n in Counter(homes).items())
            return homes if enough else None
        nodes = [node for node, count in slots.items() for _ in range(count)]
        return nodes[: demand.count] if len(nodes) >= demand.count else None

    found = fitting(first)
    if found is None:
        return None
    if last == first:
        return first, found
    ends = [first, *book.table.changes(demand, first, last), last]
    beyond = bisect_right(ends, False, lo=1, key=lambda end: fitting(end) is None)
    end = ends[beyond - 1]
    return end, fitting(end) or found


def _book(
    book: PlanningBook, lease: LeaseView, end: Millis, nodes: Sequence[str], takes: Millis
) -> tuple[Interval, list[ReservationView]]:
    """Book a part that ends at `end`, in the open group; return its run, and the rows of that."""
    overheads = book.policies.overheads
    begins, stops = book.now + takes, end - overheads.suspend_ms
    rows = []
    for rank, node in enumerate(nodes):
        if takes:
            before = Interval(book.now, begins)
            book.book(lease, rank, node, before, kind=ReservationKind.RESUME)
        rows.append(book.book(lease, rank, node, Interval(begins, stops)))
        if stops < end:
            book.book(lease, rank, node, Interval(stops, end), kind=ReservationKind.SUSPEND)
        stay = Interval(end, FOREVER)
        book.book(lease, rank, node, stay, kind=ReservationKind.RESIDENT, amounts=lease.kept)
    return Interval(book.now, stops), rows
