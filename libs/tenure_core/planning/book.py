"""The planner's own copy of a pool while it plans: the slot table, the leases, and what was done.

Every change of the table goes through here and leaves an operation behind, in the group that is
open. A group is kept or abandoned as a whole; abandoning takes its changes back. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tenure_core.errors import Exhausted
from tenure_core.leases.lease import Advance, BestEffort, Placement
from tenure_core.leases.states import LeaseState
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
from tenure_core.planning.snapshot import (
    LeaseView,
    ReservationKind,
    ReservationView,
    Snapshot,
)
from tenure_core.policies.bundle import Policies
from tenure_core.resources import ResourceVector
from tenure_core.slots.query import Demand
from tenure_core.slots.table import SlotTable
from tenure_core.timebase import Interval, Millis

_WAITING = frozenset({LeaseState.PENDING, LeaseState.QUEUED})
_UNBEGUN = _WAITING | {LeaseState.SCHEDULED}


class PlanningBook:
    """A slot table that remembers what the planner does to it.

    Leases are filed by what is to be done about them: `queue` and `newcomers` wait to be placed,
    `ahead` have a booking that may move and has not begun, `promises` are the best-effort ones of
    these,
    `cut` run until a preemption that is booked. `requeued` lost their placement in this plan and
    wait for a new attempt; `settled` were placed or refused in this plan. `looked` did not fit
    when looked at (the number is how many of their slots did), and cannot since unless on a node
    in `freed`; None when that is not known.
    `carried` are nodes that gained from what moved in the last pass.
    """

    def __init__(
        self, now: Millis, policies: Policies, revision: int = 0, *, explains: bool = True
    ) -> None:
        """Return an empty book; with `explains` off, nobody is told why a lease waits."""
        self.now = now
        self.policies = policies
        self.revision = revision
        self.explains = explains
        self.table = SlotTable()
        self.leases: dict[str, LeaseView] = {}
        self.requeued: set[str] = set()
        self.settled: set[str] = set()
        self.promises: set[str] = set()
        self.queue: set[str] = set()
        self.newcomers: set[str] = set()
        self.ahead: set[str] = set()
        self.cut: set[str] = set()
        self.looked: dict[str, int] = {}
        self.freed: set[str] | None = None
        self.carried: set[str] = set()
        self._groups: list[OperationGroup] = []
        self._decisions: list[Decision] = []
        self._open: tuple[str, str] | None = None
        self._operations: list[Operation] = []
        self._names: dict[str, int] = {}
        self._booked = 0

    @classmethod
    def of(cls, snapshot: Snapshot, policies: Policies) -> PlanningBook:
        """Return the book of a snapshot.

        Work that overran its reservation is taken to stay `policies.overrun_ms` longer. A row that
        does not fit (the snapshot was read while it changed) takes what there is.
        """
        book = cls(snapshot.now, policies, snapshot.revision)
        for node in sorted(snapshot.nodes, key=lambda view: view.id):
            book.table.add_node(node)
        known = {node.id for node in snapshot.nodes}
        overruns: list[ReservationView] = []
        for row in sorted(snapshot.reservations, key=lambda view: view.id):
            if row.node not in known:
                continue
            if row.interval.end <= snapshot.now and not row.displaced:
                overruns.append(row)
            try:
                book.table.add(row)
            except Exhausted:
                book.table.occupy(row.node, row.interval, row.amounts)
                book.table.add(replace(row, amounts=ResourceVector()))
        for row in overruns:
            stay = Interval(snapshot.now, snapshot.now + policies.overrun_ms)
            book.table.occupy(row.node, stay, row.amounts)
        for lease in sorted(snapshot.leases, key=lambda view: view.arrival):
            book.put(lease)
        return book

    def put(self, lease: LeaseView) -> None:
        """Add a lease or give it its new view, and file it under what is to be done about it."""
        self.leases[lease.id] = lease
        self._forget(lease.id)
        if lease.state in _WAITING:
            self._file(lease)
        elif lease.state in (LeaseState.SCHEDULED, LeaseState.SUSPENDED):
            if self.run_ahead(lease):
                if not isinstance(lease.spec.terms, Advance):
                    self.ahead.add(lease.id)
                if isinstance(lease.spec.terms, BestEffort) and self.is_promised(lease):
                    self.promises.add(lease.id)
            else:
                self._file(lease)
        elif lease.state is LeaseState.ACTIVE and any(
            row.kind is ReservationKind.RESIDENT for row in self.table.rows_of(lease.id)
        ):
            self.cut.add(lease.id)

    def drop(self, lease: str) -> None:
        """Forget a lease that ended; its reservations are removed by the caller."""
        self._forget(lease)
        del self.leases[lease]

    def requeue(self, lease: str) -> None:
        """File a lease that just lost its placement; it waits for a new attempt."""
        self._forget(lease)
        self.requeued.add(lease)
        self._file(self.leases[lease])

    def settle(self, lease: str, *, promised: bool = False) -> None:
        """Take a lease out of what waits: it was placed or refused."""
        self._forget(lease)
        self.settled.add(lease)
        if promised:
            self.promises.add(lease)

    def sorted(self, names: Iterable[str]) -> list[LeaseView]:
        """Return the leases with these names in the order of arrival."""
        return sorted((self.leases[name] for name in names), key=lambda lease: lease.arrival)

    def _forget(self, lease: str) -> None:
        for names in (self.queue, self.newcomers, self.ahead, self.cut, self.promises):
            names.discard(lease)
        self.looked.pop(lease, None)
        self.requeued.discard(lease)

    def _file(self, lease: LeaseView) -> None:
        queued = isinstance(lease.spec.terms, BestEffort) or lease.state is LeaseState.SUSPENDED
        (self.queue if queued else self.newcomers).add(lease.id)

    # Facts

    def runs(self, lease: str) -> tuple[ReservationView, ...]:
        """Return the RUN reservations of a lease, by rank and start."""
        rows = self.table.of_lease(lease)
        return tuple(row for row in rows if row.kind is ReservationKind.RUN)

    def run_ahead(self, lease: LeaseView) -> tuple[ReservationView, ...]:
        """Return the RUN reservations of a lease that is booked but has not begun to run.

        A lease that is under way has none, even when its reservations begin this instant.
        """
        if lease.state is LeaseState.SCHEDULED:
            return self.runs(lease.id)
        if lease.state is LeaseState.SUSPENDED:
            return tuple(row for row in self.runs(lease.id) if row.interval.end > self.now)
        return ()

    def is_promised(self, lease: LeaseView) -> bool:
        """Say whether the lease has a booked start that lies in the future."""
        rows = self.run_ahead(lease)
        return bool(rows) and min(row.interval.start for row in rows) > self.now

    def attempt_of(self, lease: LeaseView) -> int:
        """Return the attempt that a placement made now belongs to."""
        if lease.id in self.requeued:
            return lease.attempt + 1
        going = lease.state not in _WAITING
        return lease.attempt if going else lease.attempt + 1

    def has_begun(self, lease: LeaseView) -> bool:
        """Say whether agents may know of the lease's present attempt."""
        return lease.state not in _UNBEGUN

    def demand(self, lease: LeaseView) -> Demand:
        """Return what the lease asks of the table."""
        spec = lease.spec
        return Demand(spec.amounts, spec.node_count, spec.node_selector, spec.spread)

    def duration(self, lease: LeaseView) -> Millis:
        """Return how long the lease is still to run once placed anew."""
        return lease.spec.duration_ms if lease.id in self.requeued else lease.remaining_ms

    # Groups

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


def placements(rows: list[ReservationView]) -> tuple[Placement, ...]:
    """Return the placements that RUN reservations stand for, by rank."""
    return tuple(
        Placement(row.rank, row.node, row.interval) for row in sorted(rows, key=lambda r: r.rank)
    )
