"""One planning pass: a frozen snapshot in, a plan out; the same input gives the same bytes.

The order within the pass decides who wins at one instant:

1. bookings whose node can no longer keep them are re-placed (`planning.displaced`);
2. runs that were cut for a preemptor that is gone are restored, and booked starts move forward
   into what became free, in the order of arrival (`planning.improving`);
3. leases that join are refused where the admission policy says so (`planning.admitting`);
4. leases whose terms name a time are booked or refused, in the order of arrival, preempting where
   the policy allows (`planning.newcomers`);
5. the queue is walked: start, promise, or wait (`planning.waiting`).
"""

from __future__ import annotations

from collections.abc import Collection

from tenure_core.planning.admitting import refuse_unwanted
from tenure_core.planning.book import PlanningBook
from tenure_core.planning.displaced import replace_displaced
from tenure_core.planning.improving import improve_bookings, restore_cut_runs
from tenure_core.planning.newcomers import place_newcomer
from tenure_core.planning.plan import Plan
from tenure_core.planning.snapshot import Snapshot
from tenure_core.planning.waiting import walk_queue
from tenure_core.policies.bundle import Policies


def plan(snapshot: Snapshot, policies: Policies) -> Plan:
    """Return what to book, move and release now, and what becomes of each lease.

    Pure: it reads nothing but its arguments and changes neither.
    """
    book = PlanningBook.of(snapshot, policies)
    run_pass(book)
    return book.plan()


def run_pass(
    book: PlanningBook, arrived: Collection[str] | None = None, *, continued: bool = False
) -> None:
    """Plan everything that is to be planned at the instant of the book.

    With `arrived`, the caller vouches that since the last pass nothing ended, began or was freed
    and that only these leases joined: then steps 1 and 2 have nothing to do, and of the queue only
    the new leases are looked at. With `continued`, it vouches that the book went through the last
    pass and that no node gained capacity since other than by reservations removed.
    """
    freed = book.table.take_freed()
    if arrived is None:
        replace_displaced(book)
        restore_cut_runs(book)
        # A booking may have missed what a later one left behind in the last pass.
        gained = improve_bookings(book, freed | book.carried if continued else None)
        book.carried = gained
        freed |= gained
    refuse_unwanted(book)
    for lease in book.sorted(book.newcomers):
        place_newcomer(book, lease)
    freed |= book.table.take_freed()
    book.freed = freed if continued else None
    walk_queue(book, arrived)
