"""The leases of a pool while it is planned, filed by what is to be done about them.

Says what is known of a lease from its state and its reservations. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from tenure_core.leases.lease import Advance, BestEffort
from tenure_core.leases.states import LeaseState
from tenure_core.planning.snapshot import LeaseView, ReservationKind, ReservationView
from tenure_core.slots.query import Demand
from tenure_core.slots.table import SlotTable
from tenure_core.timebase import FOREVER, Millis

_WAITING = frozenset({LeaseState.PENDING, LeaseState.QUEUED})
_UNBEGUN = _WAITING | {LeaseState.SCHEDULED}


class FiledLeases:
    """The leases of a pool beside its slot table.

    `queue` and `newcomers` wait to be placed, `ahead` have a booking that may move and has not
    begun, `promises` are the best-effort ones of these, `cut` run until a preemption that is
    booked. `requeued` lost their placement in this plan and wait for a new attempt; `settled` were
    placed or refused in this plan. `looked` did not fit when looked at (the number is how many of
    their slots did), and cannot since unless on a node in `freed`; None when that is not known.
    `carried` are nodes that gained from what moved in the last pass. `joined` are those that nobody
    has planned yet: the admission policy has not been asked about them.
    """

    def __init__(self, now: Millis) -> None:
        self.now = now
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
        self.joined: set[str] = set()

    def put(self, lease: LeaseView) -> None:
        """Add a lease or give it its new view, and file it under what is to be done about it."""
        self.leases[lease.id] = lease
        self._forget(lease.id)
        if lease.state in _WAITING:
            self._file(lease)
            if lease.state is LeaseState.PENDING:
                self.joined.add(lease.id)
        elif lease.state in (LeaseState.SCHEDULED, LeaseState.SUSPENDED):
            if self.run_ahead(lease):
                if not isinstance(lease.spec.terms, Advance):
                    self.ahead.add(lease.id)
                if isinstance(lease.spec.terms, BestEffort) and self.is_promised(lease):
                    self.promises.add(lease.id)
            else:
                self._file(lease)
        elif lease.state is LeaseState.ACTIVE and any(
            row.kind is ReservationKind.RESIDENT and row.interval.end == FOREVER
            for row in self.table.rows_of(lease.id)
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
        for names in (
            self.queue, self.newcomers, self.ahead, self.cut, self.promises, self.joined,
        ):  # fmt: skip
            names.discard(lease)
        self.looked.pop(lease, None)
        self.requeued.discard(lease)

    def _file(self, lease: LeaseView) -> None:
        queued = isinstance(lease.spec.terms, BestEffort) or lease.state is LeaseState.SUSPENDED
        (self.queue if queued else self.newcomers).add(lease.id)

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
        return Demand(
            spec.amounts, spec.node_count, spec.node_selector, spec.spread, turn=lease.arrival
        )
