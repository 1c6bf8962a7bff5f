"""The planner's own copy of a pool while it plans: the slot table, the leases, and what was done.

Every change of the table goes through here and leaves an operation behind, in the group that is
open. A group is kept or abandoned as a whole; abandoning takes its changes back. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal

from tenure_core.errors import Exhausted
from tenure_core.leases.lease import Placement
from tenure_core.leases.states import LeaseState
from tenure_core.planning.filing import FiledLeases
from tenure_core.planning.plan import (
    Book,
    Decision,
    Move,
    Operation,
    OperationGroup,
    Plan,
    Queue,
    Rebind,
    Release,
    Resize,
)
from tenure_core.planning.quoting import Quotes
from tenure_core.planning.snapshot import (
    LeaseView,
    ReservationKind,
    ReservationView,
    Snapshot,
)
from tenure_core.policies.bundle import Policies
from tenure_core.policies.ordering_words import Held
from tenure_core.resources import ResourceVector
from tenure_core.timebase import FOREVER, Interval, Millis


class PlanningBook(FiledLeases):
    """A slot table and its leases, with a record of what the planner does to them."""

    def __init__(
        self, now: Millis, policies: Policies, revision: int = 0, *, explains: bool = True
    ) -> None:
        """Return an empty book; with `explains` off, nobody is told why a lease waits."""
        super().__init__(now)
        self.policies = policies
        self.revision = revision
        self.explains = explains
        self.quotes = Quotes(policies)
        self.factors: Mapping[str, Mapping[str, Decimal]] = {}
        self._groups: list[OperationGroup] = []
        self._decisions: list[Decision] = []
        self._open: tuple[str, str] | None = None
        self._operations: list[Operation] = []
        self._names: dict[str, int] = {}
        self._booked = 0
        self.is_exact = True
        """Whether the table says just what the reservations do, at any instant."""

    @classmethod
    def of(cls, snapshot: Snapshot, policies: Policies) -> PlanningBook:
        """Return the book of a snapshot.

        Work that overran its reservation is taken to stay `policies.overrun_ms` longer. A row that
        does not fit (the snapshot was read while it changed) takes what there is.
        """
        book = cls(snapshot.now, policies, snapshot.revision)
        book.factors = snapshot.factors
        for node in sorted(snapshot.nodes, key=lambda view: view.id):
            book.table.add_node(node)
        known = {node.id for node in snapshot.nodes}
        overruns: list[ReservationView] = []
        suspended = {v.id for v in snapshot.leases if v.state is LeaseState.SUSPENDED}
        for row in sorted(snapshot.reservations, key=lambda view: view.id):
            if row.node not in known:
                continue
            if row.kind is ReservationKind.RESIDENT and row.lease in suspended:
                row = _kept_on(row, snapshot.now)
                book.is_exact = False
            if row.interval.end <= snapshot.now and not row.displaced:
                overruns.append(row)
            try:
                book.table.add(row)
            except Exhausted:
                book.table.occupy(row.node, row.interval, row.amounts)
                book.table.add(replace(row, amounts=ResourceVector()))
                book.is_exact = False
        book.is_exact = book.is_exact and not overruns
        for row in overruns:
            stay = Interval(snapshot.now, snapshot.now + policies.overrun_ms)
            book.table.occupy(row.node, stay, row.amounts)
        for lease in sorted(snapshot.leases, key=lambda view: view.arrival):
            book.put(lease)
        return book

    def begin_pass(
        self,
        now: Millis,
        policies: Policies,
        revision: int,
        factors: Mapping[str, Mapping[str, Decimal]],
    ) -> None:
        """Begin the next pass of a book that is kept; what changed meanwhile is put in after."""
        self.now, self.policies, self.revision = now, policies, revision
        self.factors = factors
        self.take_decisions()
        self._booked = 0

    def begin(self, lease: str) -> str:
        """Open a group for `lease` and return its id."""
        assert self._open is None, "groups do not nest"
        count = self._names.get(lease, 0)
        name = lease if not count else f"{lease}/{count + 1}"
        self._open = (name, lease)
        self._operations = []
        self.table.begin()
        return name

    def keep(self, *decisions: Decision) -> None:
        """Close the group, keep its operations and record the decisions that it carries."""
        assert self._open is not None, "a group is open"
        name, lease = self._open
        self._names[lease] = self._names.get(lease, 0) + 1
        self._open = None
        self.table.keep()
        touched = tuple(sorted({operation.lease for operation in self._operations}))
        self._groups.append(OperationGroup(name, lease, touched, tuple(self._operations)))
        self._decisions.extend(decisions)

    def abandon(self) -> None:
        """Close the group and take back what it did."""
        self._open = None
        self.table.undo()

    def mark(self) -> tuple[int, int]:
        """Return a point in the open group to which `back_to` can return."""
        return self.table.mark(), len(self._operations)

    def back_to(self, mark: tuple[int, int]) -> None:
        """Take back what the open group did since the mark."""
        self.table.back_to(mark[0])
        del self._operations[mark[1] :]

    def decide(self, decision: Decision) -> None:
        """Record a decision that books nothing."""
        self._decisions.append(decision)

    def wait(self, lease: LeaseView, reason: str, message: str) -> None:
        """Record that the lease waits, where explanations are wanted."""
        if self.explains:
            self._decisions.append(Queue(lease.id, reason, message))

    def take_decisions(self) -> list[Decision]:
        """Return the decisions since the last call and start over: the next pass is a new plan.

        For a caller that keeps the book from pass to pass and has no use for the operations.
        """
        decisions = self._decisions
        self._decisions = []
        self._groups = []
        self._names.clear()
        self.settled.clear()
        return decisions

    def plan(self) -> Plan:
        """Return all that was done as a plan; of several Queue decisions on a lease, the last."""
        last = {d.lease: index for index, d in enumerate(self._decisions)}
        kept = tuple(
            decision
            for index, decision in enumerate(self._decisions)
            if not isinstance(decision, Queue) or last[decision.lease] == index
        )
        return Plan(self.now, self.revision, tuple(self._groups), kept)

    def duration(self, lease: LeaseView) -> Millis:
        """Return how long the lease is still to hold its nodes once placed anew: shutdown too."""
        owed = lease.spec.duration_ms if lease.id in self.requeued else lease.remaining_ms
        return owed + self.policies.overheads.shutdown_ms

    def held(self) -> Held:
        """Return what runs now, what the pool has, and the factors of those who wait."""
        now = self.now
        running = [
            lease
            for name in self.table.leases()
            if (lease := self.leases.get(name)) is not None
            and any(row.interval.start <= now < row.interval.end for row in self.runs(name))
        ]
        capacity = ResourceVector()
        for node in self.table.nodes():
            if node.schedulable:
                capacity = capacity + node.capacity_at(now)
        return Held(running, capacity, self.factors)

    # Operations; each raises Exhausted when it does not fit

    def book(
        self,
        lease: LeaseView,
        rank: int,
        node: str,
        interval: Interval,
        *,
        kind: ReservationKind = ReservationKind.RUN,
        amounts: ResourceVector | None = None,
    ) -> ReservationView:
        """Book a reservation; `amounts` defaults to one slot of the lease."""
        attempt = self.attempt_of(lease)
        taken = lease.spec.amounts if amounts is None else amounts
        name = self._name(lease.id, attempt, rank)
        row = ReservationView(name, lease.id, attempt, rank, node, interval, taken, kind)
        self.table.add(row)
        self._operations.append(Book(name, lease.id, attempt, rank, node, interval, taken, kind))
        return row

    def move(self, row: ReservationView, interval: Interval) -> ReservationView:
        """Give a reservation another interval on its node."""
        moved = replace(row, interval=interval, version=row.version + 1)
        self.table.change(moved)
        self._operations.append(Move(row.id, row.version, row.lease, row.attempt, interval))
        return moved

    def resize(self, row: ReservationView, end: Millis) -> ReservationView:
        """Give a reservation another end."""
        span = Interval(row.interval.start, end)
        resized = replace(row, interval=span, version=row.version + 1)
        self.table.change(resized)
        self._operations.append(Resize(row.id, row.version, row.lease, row.attempt, end))
        return resized

    def release(self, row: ReservationView) -> None:
        """Remove a reservation."""
        self.table.remove(row.id)
        self._operations.append(Release(row.id, row.version, row.lease, row.attempt))

    def rebind(self, row: ReservationView, node: str) -> ReservationView:
        """Put a reservation on another node."""
        bound = replace(row, node=node, displaced=False, version=row.version + 1)
        self.table.change(bound)
        self._operations.append(Rebind(row.id, row.version, row.lease, row.attempt, node))
        return bound

    def end_at(self, row: ReservationView, end: Millis) -> None:
        """Cut a reservation to `end`, or release it when nothing of it would be left."""
        if row.interval.start < end:
            if end < row.interval.end:
                self.resize(row, end)
        else:
            self.release(row)

    def _name(self, lease: str, attempt: int, rank: int) -> str:
        while True:
            self._booked += 1
            name = f"{lease}.{attempt}.{rank}.{self.now}-{self._booked}"
            if name not in self.table:
                return name


def _kept_on(row: ReservationView, now: Millis) -> ReservationView:
    """Return what a suspended lease keeps; past the resume that it was to end with, it stays."""
    if row.interval.end > now:
        return row
    return replace(row, interval=Interval(row.interval.start, FOREVER))


def placements(rows: list[ReservationView]) -> tuple[Placement, ...]:
    """Return the placements that RUN reservations stand for, by rank."""
    return tuple(
        Placement(row.rank, row.node, row.interval) for row in sorted(rows, key=lambda r: r.rank)
    )
