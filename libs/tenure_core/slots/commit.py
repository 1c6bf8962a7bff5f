"""One pool's nodes and reservations, changed by groups of operations: all of a group or nothing.

Decides whether an operation may take effect: capacity, the version that its planner saw, that no
other attempt of the lease holds anything, and that the node takes bookings. Who may ask (epochs),
and where the rows are kept, is left to slottable.

Costs: an operation is one change of the slot table, O(k) with k change points on its node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from tenure_core.errors import Conflict, DomainError, WrongState
from tenure_core.planning.snapshot import ReservationKind, ReservationView
from tenure_core.slots.operations import (
    BookRow,
    GroupVerdict,
    Node,
    ReleaseRow,
    RowChanges,
    RowGroup,
    RowOperation,
    changed,
)
from tenure_core.slots.table import SlotTable
from tenure_core.timebase import Interval, Millis

_STAYING: Final = frozenset(
    {ReservationKind.RESIDENT, ReservationKind.SUSPEND, ReservationKind.RESUME, ReservationKind.RUN}
)
"""Kinds that a lease which is on a closed node already may still book there."""


class PoolTable:
    """The slot table of one pool, and what changed in it since `take_changes` was last called."""

    def __init__(self, nodes: Iterable[Node] = (), rows: Iterable[ReservationView] = ()) -> None:
        """Build the table from stored rows. Raises Exhausted when they exceed a capacity."""
        self._nodes = {node.id: node for node in nodes}
        self.slots = SlotTable((node.view() for node in self._nodes.values()), rows)
        self._of_lease: dict[str, set[str]] = {}
        for row in self.slots.reservations():
            self._index(row)
        self._written: dict[str, ReservationView] = {}
        self._released: set[str] = set()
        self._changed_nodes: dict[str, Node] = {}

    def node(self, node: str) -> Node | None:
        """Return a node, None when there is none of that id."""
        return self._nodes.get(node)

    def nodes(self) -> tuple[Node, ...]:
        """Return the nodes by id."""
        return tuple(self._nodes[node] for node in sorted(self._nodes))

    def take_changes(self) -> RowChanges:
        """Return what changed since this was last called."""
        changes = RowChanges(
            dict(self._written), frozenset(self._released), dict(self._changed_nodes)
        )
        self._written, self._released, self._changed_nodes = {}, set(), {}
        return changes

    def apply(self, groups: Sequence[RowGroup]) -> tuple[GroupVerdict, ...]:
        """Apply each group as a whole, in order; a refused one leaves nothing."""
        return tuple(self._apply_group(group) for group in groups)

    def _apply_group(self, group: RowGroup) -> GroupVerdict:
        written, released = dict[str, ReservationView](), set[str]()
        self.slots.begin()
        try:
            for operation in group.operations:
                self._apply_one(operation, written, released)
        except DomainError as error:
            self.slots.undo()
            self._reindex(group, written)
            return GroupVerdict(group.id, error)
        self.slots.keep()
        for row in written.values():
            self._released.discard(row.id)
            self._written[row.id] = row
        for reservation in released:
            self._written.pop(reservation, None)
            self._released.add(reservation)
        return GroupVerdict(group.id, None, tuple(written[key] for key in sorted(written)))

    def _apply_one(
        self, operation: RowOperation, written: dict[str, ReservationView], released: set[str]
    ) -> None:
        match operation:
            case BookRow(row):
                self._check_booking(row)
                self.slots.add(row)
                self._index(row)
                released.discard(row.id)
                written[row.id] = row
            case ReleaseRow(reservation, version):
                if reservation not in self.slots:
                    return
                if version:
                    self._seen(reservation, version)
                before = self.slots.get(reservation)
                self.slots.remove(reservation)
                self._of_lease[before.lease].discard(reservation)
                written.pop(reservation, None)
                released.add(reservation)
            case _:
                before = self._seen(operation.reservation, operation.version)
                after = replace(changed(before, operation), version=before.version + 1)
                if after.node != before.node:
                    self._check_open(after)
                self.slots.change(after)
                written[after.id] = after

    def _seen(self, reservation: str, version: int) -> ReservationView:
        row = self.slots.get(reservation)
        if row.version != version:
            raise Conflict(
                "VERSION_MISMATCH",
                f"reservation {reservation} is at version {row.version}, not {version}",
                reservation=reservation,
                version=row.version,
            )
        return row

    def _check_booking(self, row: ReservationView) -> None:
        for other in self._of_lease.get(row.lease, ()) if row.lease else ():
            attempt = self.slots.get(other).attempt
            if attempt != row.attempt:
                raise Conflict(
                    "ATTEMPT_MISMATCH",
                    f"attempt {attempt} of lease {row.lease} still holds {other}",
                    lease=row.lease,
                    attempt=attempt,
                )
        self._check_open(row)

    def _check_open(self, row: ReservationView) -> None:
        node = self.slots.node(row.node)
        if node.schedulable and not self.slots.has_displaced(row.node):
            return
        if row.kind in _STAYING and any(
            self.slots.get(other).node == row.node for other in self._of_lease.get(row.lease, ())
        ):
            return
        raise WrongState(
            "NODE_CLOSED", f"node {row.node} takes nothing new at present", node=row.node
        )

    def set_node(self, node: Node) -> tuple[ReservationView, ...]:
        """Create or replace a node; return what no longer fits, now displaced.

        Setting what is there already changes nothing. The version given is ignored.
        """
        before = self._nodes.get(node.id)
        if before is None:
            self._store_node(replace(node, version=1))
            self.slots.add_node(node.view())
            return ()
        after = replace(node, version=before.version)
        if after == before:
            return ()
        self._store_node(replace(node, version=before.version + 1))
        displaced = self.slots.set_node(node.view())
        for row in displaced:
            self._written[row.id] = row
        return displaced

    def displace(self, reservation: str) -> ReservationView:
        """Take a reservation out of the sum of its node. Raises NotFound."""
        before = self.slots.get(reservation)
        after = replace(before, displaced=True, version=before.version + 1)
        self.slots.change(after)
        self._written[after.id] = after
        return after

    def close(self, node: str, span: Interval, name: str) -> None:
        """Book everything that is free on the node over the span, as maintenance called `name`.

        One reservation for each piece of the span in which the free amounts do not change.
        """
        free = self.slots.free_over(node, span)
        ends = [since for since, _ in free[1:]] + [span.end]
        for number, ((since, amounts), end) in enumerate(zip(free, ends, strict=True)):
            if not amounts:
                continue
            row = ReservationView(
                id=f"{name}.{node}.{number}",
                lease=name,
                attempt=0,
                rank=0,
                node=node,
                interval=Interval(max(since, span.start), end),
                amounts=amounts,
                kind=ReservationKind.MAINTENANCE,
            )
            self.slots.add(row)
            self._index(row)
            self._released.discard(row.id)
            self._written[row.id] = row

    def release_of(self, lease: str, most: int | None = None) -> bool:
        """Give back the reservations of a lease (or of a maintenance window's name).

        At most so many of them; say whether none is left.
        """
        held = self._of_lease.get(lease, set())
        for reservation in sorted(held)[:most]:
            self.slots.remove(reservation)
            self._written.pop(reservation, None)
            self._released.add(reservation)
            held.discard(reservation)
        if not held:
            self._of_lease.pop(lease, None)
        return not held

    def is_booked(self, node: str, now: Millis) -> bool:
        """Say whether anything is booked on the node from `now` on."""
        return any(row.interval.end > now for row in self.slots.reservations(node))

    def follow(
        self, nodes: Iterable[Node], written: Iterable[ReservationView], released: Iterable[str]
    ) -> None:
        """Take over what another replica committed, in whatever order it comes.

        What is replaced or gone is dropped first, so that the capacity is there for the rest.
        """
        rows = list(written)
        for reservation in [*released, *(row.id for row in rows)]:
            if reservation in self.slots:
                before = self.slots.remove(reservation)
                self._of_lease[before.lease].discard(reservation)
        for node in nodes:
            if node.id in self._nodes:
                displaced = self.slots.set_node(node.view())
                assert not displaced, "what no longer fits was dropped before"
            else:
                self.slots.add_node(node.view())
            self._nodes[node.id] = node
        for row in rows:
            self.slots.add(row)
            self._index(row)

    def _store_node(self, node: Node) -> None:
        self._nodes[node.id] = node
        self._changed_nodes[node.id] = node

    def _index(self, row: ReservationView) -> None:
        self._of_lease.setdefault(row.lease, set()).add(row.id)

    def _reindex(self, group: RowGroup, written: Mapping[str, ReservationView]) -> None:
        named = {
            operation.row.id if isinstance(operation, BookRow) else operation.reservation
            for operation in group.operations
        }
        for reservation in named:
            if reservation in self.slots:
                self._index(self.slots.get(reservation))
            elif reservation in written:
                self._of_lease[written[reservation].lease].discard(reservation)
