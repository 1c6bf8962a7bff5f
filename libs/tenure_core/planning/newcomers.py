"""Leases whose terms name a time: immediate, advance and deadline, booked or refused at once."""

from __future__ import annotations

from tenure_core.leases.lease import Advance, Deadline, Immediate
from tenure_core.leases.states import LeaseState
from tenure_core.planning.book import PlanningBook, placements
from tenure_core.planning.plan import Lose, Preempt, Reject, Schedule
from tenure_core.planning.preempting import fit_with_victims, note_victims
from tenure_core.planning.quoting import REFUSED, REFUSED_TEXT
from tenure_core.planning.snapshot import LeaseView
from tenure_core.slots.query import Fit, Window
from tenure_core.timebase import Interval, Millis, in_words


def place_newcomer(book: PlanningBook, lease: LeaseView) -> None:
    """Book the lease at its time or refuse it; one that is blocked waits while its time allows."""
    terms = lease.spec.terms
    duration = book.duration(lease)
    match terms:
        case Immediate():
            wanted, refusal = book.now, "NOT_AVAILABLE_NOW"
        case Advance(start=start):
            wanted, refusal = start, "NOT_AVAILABLE_AT_START"
        case Deadline(deadline=deadline):
            wanted, refusal = deadline - duration, "DEADLINE_CANNOT_BE_MET"
        case _:
            raise AssertionError(f"{lease.id} waits in the queue")
    if wanted < book.now:
        _refuse(book, lease, "START_PASSED", "The last instant at which it could start has passed.")
    elif lease.blocked is not None and isinstance(terms, Immediate):
        _refuse(book, lease, lease.blocked.reason, lease.blocked.message)
    elif lease.blocked is not None:
        book.wait(lease, lease.blocked.reason, lease.blocked.message)
    elif isinstance(terms, Deadline):
        _place_by(book, lease, terms, wanted, refusal)
    else:
        _place_at(book, lease, Interval(wanted, wanted + duration), refusal)


def schedule(
    book: PlanningBook, lease: LeaseView, fit: Fit, duration: Millis, group: str, reason: str = ""
) -> Schedule:
    """Book the slots of a lease where it fits, in the open group, and return the decision."""
    interval = Interval(fit.start, fit.start + duration)
    rows = [book.book(lease, rank, node, interval) for rank, node in enumerate(fit.nodes)]
    attempt = book.attempt_of(lease)
    return Schedule(lease.id, attempt, interval, placements(rows), group, reason)


def _place_at(book: PlanningBook, lease: LeaseView, interval: Interval, refusal: str) -> None:
    group = book.begin(lease.id)
    fit = book.table.fit_at(book.demand(lease), interval, book.policies.host_selection)
    preempted: list[Preempt] = []
    if fit is None:
        found = fit_with_victims(book, lease, interval, group)
        if found is None:
            book.abandon()
            _refuse(book, lease, refusal, _why_not(book, lease, interval.start))
            return
        fit, preempted = found
    if not book.quotes.agrees(lease, preempted, book.leases):
        book.abandon()
        _refuse(book, lease, REFUSED, REFUSED_TEXT)
        return
    decision = schedule(book, lease, fit, interval.duration_ms, group)
    book.keep(*preempted, decision)
    note_victims(book, preempted)
    book.settle(lease.id)


def _place_by(
    book: PlanningBook, lease: LeaseView, terms: Deadline, latest: Millis, refusal: str
) -> None:
    earliest = book.now if terms.earliest_start is None else max(book.now, terms.earliest_start)
    fit = None
    duration = book.duration(lease)
    if earliest <= latest:
        window = Window(duration, earliest, latest)
        selection = book.policies.host_selection
        fit = book.table.earliest_start(book.demand(lease), window, selection)
    if fit is None:
        _refuse(book, lease, refusal, _why_not(book, lease, max(earliest, latest)))
        return
    if not book.quotes.agrees(lease):
        _refuse(book, lease, REFUSED, REFUSED_TEXT)
        return
    group = book.begin(lease.id)
    book.keep(schedule(book, lease, fit, duration, group))
    book.settle(lease.id)


def _refuse(book: PlanningBook, lease: LeaseView, reason: str, message: str) -> None:
    book.settle(lease.id)
    if lease.state in (LeaseState.PENDING, LeaseState.QUEUED):
        book.decide(Reject(lease.id, reason, message))
    else:
        group = book.begin(lease.id)
        for row in book.table.of_lease(lease.id):
            book.release(row)
        text = f"Its node can no longer keep it. {message}"
        book.keep(Lose(lease.id, lease.attempt, reason, text, group))


def _why_not(book: PlanningBook, lease: LeaseView, asked: Millis) -> str:
    """Say why it does not fit, and from when on it would, at or after the start asked for.

    Nobody's preemption is counted in: what is said is what anybody could have.
    """
    demand = book.demand(lease)
    if not book.table.could_ever_fit(demand):
        return "No set of nodes of the pool is large enough, even empty."
    later = Window(book.duration(lease), asked)
    fit = book.table.earliest_start(demand, later, book.policies.host_selection)
    if fit is None:
        return "It does not fit at that time, nor later, by what is booked today."
    return f"It does not fit at that time; it would from {in_words(fit.start)}."
