"""Suspended leases resume where their state is kept, or move.

A suspended lease holds one open-ended RESIDENT reservation a slot. Resuming ends it where the
RESUME (if that takes time) and the RUN begin, for the full amounts. Where the policy lets state
move, a lease may resume on other nodes: each slot that moves is booked a TRANSFER on its new node,
and nothing of the lease resumes before all have moved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tenure_core.errors import Exhausted
from tenure_core.leases.lease import BestEffort
from tenure_core.planning.book import PlanningBook, placements
from tenure_core.planning.moving import rounds
from tenure_core.planning.plan import Resume
from tenure_core.planning.snapshot import LeaseView, ReservationKind, ReservationView
from tenure_core.policies.bundle import Migration
from tenure_core.slots.query import Window
from tenure_core.timebase import FOREVER, Interval, Millis

AHEAD: Final = frozenset({ReservationKind.TRANSFER, ReservationKind.RESUME, ReservationKind.RUN})
"""The kinds of reservations of which a booked resumption is made."""


@dataclass(frozen=True, slots=True)
class Resumption:
    """A lease can hold `nodes`, by rank, from `start`; after `moves_ms` it resumes."""

    start: Millis
    moves_ms: Millis
    nodes: tuple[str, ...]

    @property
    def resumes(self) -> Millis:
        """Return when everything is where it resumes."""
        return self.start + self.moves_ms


def has_homes(book: PlanningBook, lease: LeaseView) -> bool:
    """Say whether for each slot of the lease a reservation says where its state is kept."""
    return len(homes_of(book, lease)) == lease.spec.node_count


def find_resumption(
    book: PlanningBook, lease: LeaseView, latest: Millis = FOREVER
) -> Resumption | None:
    """Return how the lease resumes soonest with a start up to `latest`, where it is if equal.

    The present RESIDENT and booked RUN reservations of the lease are not counted. None when there
    is none, or when a node of it is displaced or gone. What moves is searched for as if each slot
    had to move after the other, so that resumption may not be the soonest by as much.
    """
    homes = homes_of(book, lease)
    if len(homes) != lease.spec.node_count or any(row.displaced for row in homes):
        return None
    book.table.begin()
    for row in book.table.of_lease(lease.id):
        if row.interval.end > book.now:
            book.table.remove(row.id)
    duration = book.policies.overheads.resume_ms + book.duration(lease)
    stay = book.table.earliest_on(
        Counter(row.node for row in homes),
        lease.spec.amounts,
        Window(duration, book.now, latest),
    )
    at_home = tuple(row.node for row in homes)
    found = None if stay is None else Resumption(stay, 0, at_home)
    if stay != book.now and book.policies.overheads.migration is not Migration.NO:
        moved = _moved(book, lease, at_home, Window(duration, book.now, latest))
        if moved is not None and (found is None or moved.resumes < found.resumes):
            found = moved
    book.table.undo()
    return found


def _moved(
    book: PlanningBook, lease: LeaseView, homes: Sequence[str], window: Window
) -> Resumption | None:
    """Return the earliest resumption on any nodes, with those slots left in place that can be."""
    takes = book.policies.overheads.move_ms(lease.spec.amounts)
    longest = Window(takes * len(homes) + window.duration_ms, window.not_before, window.latest)
    selection = book.policies.host_selection
    fit = book.table.earliest_start(book.demand(lease), longest, selection)
    if fit is None:
        return None
    left = Counter(fit.nodes)
    stays = []
    for home in homes:
        stays.append(left[home] > 0)
        left[home] -= stays[-1]
    others = left.elements()
    nodes = tuple(home if here else next(others) for home, here in zip(homes, stays, strict=True))
    moves = {
        rank: (home, node)
        for rank, (home, node) in enumerate(zip(homes, nodes, strict=True))
        if home != node
    }
    return Resumption(fit.start, takes * len(rounds(moves)), nodes)


def resume_at(book: PlanningBook, lease: LeaseView, found: Resumption) -> bool:
    """Book the lease to resume so; False, with nothing changed, when it does not fit."""
    homes = homes_of(book, lease)
    group = book.begin(lease.id)
    takes = book.policies.overheads.resume_ms
    resumes = found.resumes
    span = Interval(resumes + takes, resumes + takes + book.duration(lease))
    rows: list[ReservationView] = []
    try:
        leave_home(book, lease, resumes)
        for home, node in zip(homes, found.nodes, strict=True):
            if node != home.node and found.moves_ms:
                move = Interval(found.start, resumes)
                book.book(lease, home.rank, node, move, kind=ReservationKind.TRANSFER)
            if takes:
                before = Interval(resumes, resumes + takes)
                book.book(lease, home.rank, node, before, kind=ReservationKind.RESUME)
            rows.append(book.book(lease, home.rank, node, span))
    except Exhausted:
        book.abandon()
        return False
    interval = Interval(found.start, span.end)
    book.keep(Resume(lease.id, book.attempt_of(lease), interval, placements(rows), group))
    promised = found.start > book.now and isinstance(lease.spec.terms, BestEffort)
    book.settle(lease.id, promised=promised)
    return True


def leave_home(book: PlanningBook, lease: LeaseView, at: Millis) -> None:
    """Take back a booked resumption and let what is kept stay until an instant, no longer."""
    rows = book.table.of_lease(lease.id)
    for row in rows:
        if row.kind in AHEAD and row.interval.end > book.now:
            book.release(row)
    for row in rows:
        if row.kind is ReservationKind.RESIDENT:
            if row.interval.start < at and row.interval.end != at:
                book.resize(row, at)
            elif row.interval.start >= at:
                book.release(row)


def homes_of(book: PlanningBook, lease: LeaseView) -> tuple[ReservationView, ...]:
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
