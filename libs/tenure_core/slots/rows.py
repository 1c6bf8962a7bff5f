"""The reservations of a slot table: added, removed and changed, never over capacity.

Keeps one promise always: at no instant do the reservations of a node that are not displaced exceed
its capacity, for any kind. Whoever asks for more is refused, and nothing has changed then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tenure_core.errors import Conflict, Exhausted, NotFound
from tenure_core.planning.snapshot import NodeView, ReservationView
from tenure_core.resources import ResourceVector
from tenure_core.slots.choice import Candidate
from tenure_core.slots.nodes import NodeEntry, NodeTable
from tenure_core.slots.profile import BEGINNING, NodeProfile
from tenure_core.timebase import Interval, Millis


class ReservationTable(NodeTable):
    """Reservations by id, on the nodes of the table."""

    def __init__(
        self, nodes: Iterable[NodeView] = (), reservations: Iterable[ReservationView] = ()
    ) -> None:
        """Build the table from rows; raises like `add` when the rows exceed a capacity."""
        super().__init__(nodes)
        self._undo: list[Callable[[], object]] | None = None
        self._horizon: Millis = BEGINNING
        self._freed: set[str] = set()
        self._freed_in_trial: set[str] = set()
        for reservation in sorted(reservations, key=lambda row: row.id):
            self.add(reservation)

    def __contains__(self, reservation: str) -> bool:
        return reservation in self._rows

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, reservation: str) -> ReservationView:
        """Return a reservation. Raises NotFound."""
        row = self._rows.get(reservation)
        if row is None:
            raise NotFound(
                "RESERVATION_NOT_FOUND",
                f"there is no reservation {reservation}",
                reservation=reservation,
            )
        return row

    def reservations(self, node: str | None = None) -> tuple[ReservationView, ...]:
        """Return the reservations of one node or of all, by id."""
        rows = self._rows if node is None else self._node(node).reservations
        return tuple(rows[key] for key in sorted(rows))

    def has_displaced(self, node: str) -> bool:
        """Say whether the node has reservations that it can no longer keep."""
        return bool(self._node(node).displaced)

    def leases(self) -> tuple[str, ...]:
        """Return the leases that have reservations, ascending; reservations of nobody not."""
        return tuple(sorted(lease for lease in self._by_lease if lease))

    def rows_of(self, lease: str) -> Iterable[ReservationView]:
        """Return the reservations of a lease in no order, for looks that need none."""
        return self._by_lease.get(lease, {}).values()

    def displaced_leases(self) -> set[str]:
        """Return the leases that have a displaced reservation."""
        return {
            entry.reservations[row].lease
            for entry in self._nodes.values()
            if entry.displaced
            for row in entry.displaced
        }

    def of_lease(self, lease: str) -> tuple[ReservationView, ...]:
        """Return the reservations of a lease, by rank, then start, then id."""
        rows = self._by_lease.get(lease, {}).values()
        return tuple(sorted(rows, key=lambda row: (row.rank, row.interval.start, row.id)))

    def add(self, row: ReservationView) -> None:
        """Add a reservation; a displaced one is kept but takes nothing.

        Raises Exhausted CAPACITY_EXCEEDED when it does not fit throughout its span, NotFound for
        an unknown node, Conflict for an id in use.
        """
        if row.id in self._rows:
            raise Conflict(
                "RESERVATION_EXISTS", f"reservation {row.id} exists already", reservation=row.id
            )
        entry = self._node(row.node)
        if not row.displaced:
            self._take(entry, row)
        self._insert(entry, row)
        if self._undo is not None:
            self._undo.append(lambda: self._drop(row.id, marks=False))

    def remove(self, reservation: str) -> ReservationView:
        """Remove a reservation and return it. Raises NotFound."""
        row = self._drop(reservation)
        if self._undo is not None:
            self._undo.append(lambda: self._restore(row))
        return row

    def change(self, row: ReservationView) -> ReservationView:
        """Put `row` in the place of the reservation with its id; return the one that was there.

        Raises like `add`, with the old one still in place.
        """
        before = self.remove(row.id)
        try:
            self.add(row)
        except (Exhausted, NotFound):
            self._restore(before)
            if self._undo is not None:
                self._undo.pop()
            raise
        return before

    def begin(self) -> None:
        """Start remembering changes of reservations, to be kept or undone; does not nest."""
        assert self._undo is None, "a trial is under way already"
        self._undo = []
        self._freed_in_trial = set()

    def mark(self) -> int:
        """Return a point in the trial to which `back_to` can return."""
        assert self._undo is not None, "no trial is under way"
        return len(self._undo)

    def back_to(self, mark: int) -> None:
        """Take back what changed since the mark; the trial goes on."""
        steps = self._undo
        assert steps is not None, "no trial is under way"
        self._undo = None
        while len(steps) > mark:
            steps.pop()()
        self._undo = steps

    def keep(self) -> None:
        """End the trial and keep what changed."""
        assert self._undo is not None, "no trial is under way"
        self._undo = None
        self._freed |= self._freed_in_trial

    def undo(self) -> None:
        """End the trial and take back what changed since it began."""
        steps, self._undo = self._undo, None
        assert steps is not None, "no trial is under way"
        for step in reversed(steps):
            step()

    def forget_before(self, instant: Millis) -> None:
        """Stop telling instants before `instant` apart; it must not lie after the present."""
        self._horizon = max(self._horizon, instant)
        for entry in self._nodes.values():
            entry.candidate.profile.forget_before(instant)

    def take_freed(self) -> set[str]:
        """Return the nodes on which reservations were removed since the last call."""
        freed, self._freed = self._freed, set()
        return freed

    def check(self) -> None:
        """Recompute every profile from the rows and assert that it is the one kept; for tests."""
        for entry in self._nodes.values():
            fresh = Candidate(entry.view.id, NodeProfile(self._packing.guard))
            self._spread_capacity(entry.view, fresh)
            for row in entry.reservations.values():
                if not row.displaced:
                    packed = self._packing.pack(row.amounts)
                    assert packed is not None
                    fresh.profile.shift(row.interval.start, row.interval.end, -packed)
            fresh.profile.forget_before(self._horizon)
            entry.candidate.profile.forget_before(self._horizon)
            assert all(f & self._packing.guard == self._packing.guard for f in fresh.profile.free)
            assert fresh.profile.times == entry.candidate.profile.times
            assert fresh.profile.free == entry.candidate.profile.free

    def occupy(self, node: str, interval: Interval, amounts: ResourceVector) -> None:
        """Take what is left of `amounts` over the interval, as far as there is any, for good.

        For the planner's own copy of the table only: work that overran its reservation occupies
        its node although no row says so, perhaps under a row that begins now.
        """
        packed = self._packing.pack(amounts)
        profile = self._node(node).candidate.profile
        if packed is None:
            return
        ends = [since for since, _ in profile.segments(interval.start, interval.end)][1:]
        since = interval.start
        for until in [*ends, interval.end]:
            part = self._packing.clamped(profile.at(since), packed)
            if part:
                profile.shift(since, until, -part)
            since = until

    def _take(self, entry: NodeEntry, row: ReservationView) -> None:
        packed = self._packing.pack(row.amounts)
        guard = self._packing.guard
        span = row.interval
        profile = entry.candidate.profile
        if packed is None or not profile.fits(span.start, span.end, packed, guard):
            raise Exhausted(
                "CAPACITY_EXCEEDED",
                f"{row.amounts} is not free on node {row.node} throughout the interval",
                node=row.node,
                start_ms=span.start,
                end_ms=span.end,
            )
        self._shift(entry, span, -packed)

    def _shift(self, entry: NodeEntry, span: Interval, by: int) -> None:
        """Change what is free over the span; what lies before the horizon counts as one instant."""
        if span.start >= self._horizon:
            entry.candidate.profile.shift(span.start, span.end, by)
        elif span.end > self._horizon:
            entry.candidate.profile.shift(BEGINNING, span.end, by)

    def _insert(self, entry: NodeEntry, row: ReservationView) -> None:
        self._rows[row.id] = row
        entry.reservations[row.id] = row
        self._by_lease.setdefault(row.lease, {})[row.id] = row
        self.version += 1
        if row.displaced:
            entry.displaced.add(row.id)
            self._pools.clear()

    def _restore(self, row: ReservationView) -> None:
        entry = self._nodes[row.node]
        if not row.displaced:
            self._take(entry, row)
        self._insert(entry, row)

    def _drop(self, reservation: str, *, marks: bool = True) -> ReservationView:
        row = self.get(reservation)
        entry = self._nodes[row.node]
        if row.displaced:
            entry.displaced.discard(row.id)
            self._pools.clear()
        else:
            packed = self._packing.pack(row.amounts)
            assert packed is not None, "what was taken has fields"
            self._shift(entry, row.interval, packed)
        if marks:
            (self._freed if self._undo is None else self._freed_in_trial).add(row.node)
        del self._rows[reservation], entry.reservations[reservation]
        of_lease = self._by_lease[row.lease]
        del of_lease[reservation]
        if not of_lease:
            del self._by_lease[row.lease]
        self.version += 1
        return row
