"""Frees capacity for a lease by taking it from others, as the preemption policy allows.

Victims are added one by one, the least reluctant first, until the preemptor fits; then each victim
without whom it fits too is let off, so nobody is preempted for nothing. A lease that has not begun
loses its booking and waits again; one that runs is suspended in place. Only when that is not
enough do leases lose their progress: first suspended ones, then running ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tenure_core.errors import Exhausted
from tenure_core.leases.states import LeaseState
from tenure_core.planning.book import PlanningBook
from tenure_core.planning.plan import Preempt, PreemptHow
from tenure_core.planning.resuming import AHEAD
from tenure_core.planning.snapshot import LeaseView, ReservationKind, ReservationView
from tenure_core.slots.query import Fit
from tenure_core.timebase import FOREVER, Interval, Millis

_RUNNING = frozenset({LeaseState.STARTING, LeaseState.ACTIVE, LeaseState.RESUMING})


def fit_with_victims(
    book: PlanningBook, lease: LeaseView, interval: Interval, group: str
) -> tuple[Fit, list[Preempt]] | None:
    """Return where `lease` fits over `interval` once the victims named gave way, None if nowhere.

    Works inside the open group: the victims' operations are in it. With V possible victims it costs
    up to 2 V trials.
    """
    demand = book.demand(lease)
    selection = book.policies.host_selection
    chosen: list[_Victim] = []
    start = book.mark()
    fit = None
    for victim in _victims(book, lease, interval):
        if _evict(book, victim, lease, interval.start, group) is None:
            continue
        chosen.append(victim)
        fit = book.table.fit_at(demand, interval, selection)
        if fit is not None:
            break
    if fit is None:
        book.back_to(start)
        return None
    for spared in chosen[:-1]:
        rest = [victim for victim in chosen if victim is not spared]
        book.back_to(start)
        for victim in rest:
            _evict(book, victim, lease, interval.start, group)
        if book.table.fit_at(demand, interval, selection) is not None:
            chosen = rest
    book.back_to(start)
    decisions: dict[str, Preempt] = {}
    for victim in chosen:
        decision = _evict(book, victim, lease, interval.start, group)
        if decision is not None:
            decisions[decision.lease] = decision
    fit = book.table.fit_at(demand, interval, selection)
    assert fit is not None, "the victims that are left make room"
    return fit, list(decisions.values())


@dataclass(frozen=True, slots=True)
class _Victim:
    """A lease that may have to give way; `drops` when even what it keeps while suspended goes."""

    lease: LeaseView
    drops: bool = False


def note_victims(book: PlanningBook, preempted: list[Preempt]) -> None:
    """Remember, once the group is kept, which victims wait for a new placement from now on."""
    for decision in preempted:
        lease = book.leases[decision.lease]
        if decision.at <= book.now and decision.how is PreemptHow.REQUEUE:
            book.requeue(lease.id)
        elif lease.state is LeaseState.SUSPENDED:
            book.put(lease)


def _victims(book: PlanningBook, lease: LeaseView, interval: Interval) -> list[_Victim]:
    policy = book.policies.preemption
    found: list[tuple[tuple[int, ...], str, _Victim]] = []
    for name in book.table.leases():
        victim = book.leases.get(name)
        if victim is None or victim.id == lease.id or victim.id in book.settled:
            continue
        victim = _as_running(book, victim)
        rows = book.table.of_lease(name)
        overlapping = any(row.interval.overlaps(interval) and not row.displaced for row in rows)
        if overlapping and _reachable(book, victim, rows, interval.start):
            if not policy.may_preempt(lease, victim, interval.start):
                continue
            key = policy.reluctance(victim, interval.start)
            suspended = victim.state is LeaseState.SUSPENDED
            if not suspended or book.run_ahead(victim):
                found.append(((0, *key), name, _Victim(victim)))
            if book.has_begun(victim) and policy.may_drop(victim, interval.start):
                found.append(((1 if suspended else 2, *key), name, _Victim(victim, drops=True)))
    found.sort(key=lambda entry: entry[:2])
    return [victim for _, _, victim in found]


def _as_running(book: PlanningBook, victim: LeaseView) -> LeaseView:
    """Return the victim with the start of its run filled in from its reservation."""
    if victim.run_started is None and victim.state in _RUNNING:
        runs = book.runs(victim.id)
        if runs:
            return replace(victim, run_started=runs[0].interval.start)
    return victim


def _reachable(
    book: PlanningBook, victim: LeaseView, rows: tuple[ReservationView, ...], at: Millis
) -> bool:
    """Say whether the victim is in a state in which it can be told to give way at `at`."""
    if victim.state in (LeaseState.SCHEDULED, LeaseState.SUSPENDED):
        return True
    if victim.state not in _RUNNING:
        return False
    # Nobody is stopped while it shuts down. A run that was cut already does not end with that.
    is_cut = any(row.interval.end == FOREVER for row in rows)
    tail = 0 if is_cut else book.policies.overheads.shutdown_ms
    return any(
        row.kind is ReservationKind.RUN and row.interval.end - tail > max(at, book.now)
        for row in rows
    )


def _evict(
    book: PlanningBook, chosen: _Victim, by: LeaseView, at: Millis, group: str
) -> Preempt | None:
    """Take from the victim what it holds from `at` on; None when it cannot be done."""
    victim = chosen.lease
    rows = book.table.of_lease(victim.id)
    if victim.state not in _RUNNING:
        how = PreemptHow.REQUEUE
        if victim.state is LeaseState.SUSPENDED and not chosen.drops:
            how = PreemptHow.SUSPEND
            if not _stay_suspended(book, rows):
                return None
        else:
            for row in rows:
                book.release(row)
        return Preempt(victim.id, victim.attempt, by.id, how, book.now, book.now, group)
    policies = book.policies
    how = policies.preemption.how(victim, at)
    begins = at - policies.overheads.suspend_ms
    ran = begins - (victim.run_started if victim.run_started is not None else at)
    if chosen.drops:
        how = PreemptHow.REQUEUE
    if how is PreemptHow.SUSPEND:
        if begins < book.now or ran <= 0 or ran < policies.threshold_ms:
            how = PreemptHow.REQUEUE
        else:
            before = book.mark()
            try:
                _suspend(book, victim, rows, begins, at)
            except Exhausted:
                # Somebody booked what it would keep, for after its run was to end.
                book.back_to(before)
                how = PreemptHow.REQUEUE
            else:
                return Preempt(victim.id, victim.attempt, by.id, how, begins, at, group)
    for row in rows:
        book.end_at(row, at)
    return Preempt(victim.id, victim.attempt, by.id, how, at, at, group)


def _stay_suspended(book: PlanningBook, rows: tuple[ReservationView, ...]) -> bool:
    """Withdraw the booked resumption; False, with nothing changed, when its state cannot stay."""
    before = book.mark()
    try:
        for row in rows:
            if row.kind in AHEAD:
                book.release(row)
        for row in rows:
            if row.kind is ReservationKind.RESIDENT and row.interval.end < FOREVER:
                book.resize(row, FOREVER)
    except Exhausted:
        book.back_to(before)
        return False
    return True


def _suspend(
    book: PlanningBook,
    victim: LeaseView,
    rows: tuple[ReservationView, ...],
    begins: Millis,
    free_by: Millis,
) -> None:
    for row in rows:
        if row.kind is not ReservationKind.RUN:
            book.end_at(row, begins)
    for row in rows:
        if row.kind is not ReservationKind.RUN:
            continue
        book.end_at(row, begins)
        if begins < free_by:
            span = Interval(begins, free_by)
            book.book(victim, row.rank, row.node, span, kind=ReservationKind.SUSPEND)
        stay = Interval(free_by, FOREVER)
        resident = ReservationKind.RESIDENT
        book.book(victim, row.rank, row.node, stay, kind=resident, amounts=victim.kept)
