"""The queue: who starts now, who is promised a start, and why the others wait.

One walk in the order of the policy. A lease that fits now starts. The first that do not fit are
promised their earliest start, as many as the backfilling policy allows; a promise is a booking like
any other, so whoever passes them later cannot delay them.
"""

from __future__ import annotations

from collections.abc import Collection

from tenure_core.leases.states import LeaseState
from tenure_core.planning.book import PlanningBook
from tenure_core.planning.newcomers import schedule
from tenure_core.planning.parting import may_part, resume_part, start_part
from tenure_core.planning.plan import Queue
from tenure_core.planning.resuming import find_resumption, resume_at
from tenure_core.planning.shapes import Shapes
from tenure_core.planning.snapshot import LeaseView
from tenure_core.policies.bundle import Migration
from tenure_core.slots.query import Fit, Window
from tenure_core.timebase import FOREVER


def queue_of(book: PlanningBook, only: Collection[str] | None = None) -> list[LeaseView]:
    """Return the leases that wait in the queue, in the order in which they are looked at."""
    names = book.queue if only is None else book.queue & set(only)
    return book.policies.ordering.arranged([book.leases[name] for name in names], book)


def walk_queue(book: PlanningBook, only: Collection[str] | None = None) -> None:
    """Place each waiting lease now or later, or say why it waits.

    With `only`, leases that joined while nothing was freed, those alone are looked at: the others
    did not fit before and do not fit now.
    """
    policies = book.policies
    if not policies.backfilling.passing or policies.depth_max is not None:
        only = None
    shapes = Shapes(book)
    stopped = False
    looked = 0
    for lease in queue_of(book, only):
        if lease.blocked is not None:
            book.wait(lease, lease.blocked.reason, lease.blocked.message)
        elif stopped:
            book.wait(lease, "BEHIND_ANOTHER", "leases before it in the queue wait")
        elif _start_now(book, lease, shapes):
            continue
        elif not shapes.ever_fits(lease):
            message = "No set of nodes of the pool is large enough, even empty."
            book.decide(Queue(lease.id, "NO_SUITABLE_NODES", message))
        elif not _promise(book, lease, shapes):
            book.wait(lease, "WAITING_FOR_CAPACITY", "the capacity is held by others")
            looked += 1
            beyond = policies.depth_max is not None and looked > policies.depth_max
            stopped = beyond or not policies.backfilling.passing


def _start_now(book: PlanningBook, lease: LeaseView, shapes: Shapes) -> bool:
    if lease.state is LeaseState.SUSPENDED and lease.id not in book.requeued:
        # To move now is worse than to stay where it can resume soon.
        stays = book.policies.overheads.migration is Migration.NO
        found = find_resumption(book, lease, book.now if stays else FOREVER)
        if found is None or found.start > book.now:
            return resume_part(book, lease)
        shapes.forget_starts()
        return resume_at(book, lease, found)
    if shapes.still_misfits(lease) or shapes.hopeless(lease):
        return _start_part(book, lease, shapes)
    window = Window(book.duration(lease), book.now)
    interval = window.at(book.now)
    fit = book.table.fit_or_slots(book.demand(lease), interval, book.policies.host_selection)
    if isinstance(fit, int):
        shapes.note_misfit(lease, fit)
        return _start_part(book, lease, shapes)
    _place(book, lease, fit)
    return True


def _start_part(book: PlanningBook, lease: LeaseView, shapes: Shapes) -> bool:
    if not may_part(book, lease) or shapes.has_no_part(lease):
        return False
    if start_part(book, lease):
        return True
    shapes.note_no_part(lease)
    return False


def _promise(book: PlanningBook, lease: LeaseView, shapes: Shapes) -> bool:
    """Book the earliest start of a lease that cannot start now, if a promise is left for it."""
    most = book.policies.backfilling.promises_max
    if most is not None and len(book.promises) >= most:
        return False
    if lease.state is LeaseState.SUSPENDED and lease.id not in book.requeued:
        found = find_resumption(book, lease)
        if found is None or not resume_at(book, lease, found):
            return False
        # What it kept for ever it now keeps only until its run ends.
        shapes.forget_starts()
    else:
        window = Window(book.duration(lease), shapes.not_before(lease))
        selection = book.policies.host_selection
        fit = book.table.earliest_start(book.demand(lease), window, selection)
        if fit is None:
            return False
        shapes.note_start(lease, fit.start)
        _place(book, lease, fit)
    return True


def _place(book: PlanningBook, lease: LeaseView, fit: Fit) -> None:
    group = book.begin(lease.id)
    book.keep(schedule(book, lease, fit, book.duration(lease), group))
    book.settle(lease.id, promised=fit.start > book.now)
