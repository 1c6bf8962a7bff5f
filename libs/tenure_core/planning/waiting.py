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
from tenure_core.planning.plan import Queue
from tenure_core.planning.resuming import resume_at, resume_start
from tenure_core.planning.shapes import Shapes
from tenure_core.planning.snapshot import LeaseView
from tenure_core.slots.query import Fit, Window


def queue_of(book: PlanningBook, only: Collection[str] | None = None) -> list[LeaseView]:
    """Return the leases that wait in the queue, in the order in which they are looked at."""
    ordering, now = book.policies.ordering, book.now
    names = book.queue if only is None else book.queue & set(only)
    return sorted(
        (book.leases[name] for name in names),
        key=lambda lease: (ordering.key(lease, now), lease.arrival),
    )


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
            message = "no set of nodes of the pool is large enough, even empty"
            book.decide(Queue(lease.id, "NO_SUITABLE_NODES", message))
        elif not _promise(book, lease):
            book.wait(lease, "WAITING_FOR_CAPACITY", "the capacity is held by others")
            looked += 1
            beyond = policies.depth_max is not None and looked > policies.depth_max
            stopped = beyond or not policies.backfilling.passing


def _start_now(book: PlanningBook, lease: LeaseView, shapes: Shapes) -> bool:
    if lease.state is LeaseState.SUSPENDED and lease.id not in book.requeued:
        return resume_start(book, lease, latest=book.now) == book.now and resume_at(
            book, lease, book.now
        )
    duration = book.duration(lease)
    window = Window(duration, book.now)
    if lease.id in book.looked and book.freed is not None:
        # What is free on all other nodes only shrank since.
        interval = window.at(book.now)
        if not book.table.fits_any(book.freed, interval, lease.spec.amounts):
            return False
    if shapes.hopeless(lease):
        return False
    fit = book.table.fit_at(book.demand(lease), window.at(book.now), book.policies.host_selection)
    if fit is None:
        shapes.note_misfit(lease)
        book.looked.add(lease.id)
        return False
    _place(book, lease, fit)
    return True


def _promise(book: PlanningBook, lease: LeaseView) -> bool:
    """Book the earliest start of a lease that cannot start now, if a promise is left for it."""
    most = book.policies.backfilling.promises_max
    if most is not None and len(book.promises) >= most:
        return False
    if lease.state is LeaseState.SUSPENDED and lease.id not in book.requeued:
        start = resume_start(book, lease)
        if start is None or not resume_at(book, lease, start):
            return False
    else:
        window = Window(book.duration(lease), book.now)
        selection = book.policies.host_selection
        fit = book.table.earliest_start(book.demand(lease), window, selection)
        if fit is None:
            return False
        _place(book, lease, fit)
    return True


def _place(book: PlanningBook, lease: LeaseView, fit: Fit) -> None:
    group = book.begin(lease.id)
    book.keep(schedule(book, lease, fit, book.duration(lease), group))
    book.settle(lease.id, promised=fit.start > book.now)
