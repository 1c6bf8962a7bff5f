"""What a leader may ask of one pool's table: nodes, operations on rows, and groups of them.

Decides nothing; `slots.commit` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from tenure_core.errors import DomainError, WrongState
from tenure_core.planning.snapshot import NodeView, ReservationView
from tenure_core.resources import ResourceVector
from tenure_core.timebase import Interval, Millis


class NodeState(Enum):
    """Whether a node takes bookings."""

    OPEN = "OPEN"
    """Takes bookings."""
    CORDONED = "CORDONED"
    """Keeps what is booked and takes nothing new."""
    RETIRED = "RETIRED"
    """Has no capacity any more."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node as slottable keeps it. `capacity` is what it has while it is not retired."""

    id: str
    pool: str
    capacity: tuple[tuple[Millis, ResourceVector], ...]
    state: NodeState = NodeState.OPEN
    node_type: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)
    agent: str = ""
    agent_incarnation: str = ""
    suspended_keeps: tuple[str, ...] = ()
    version: int = 1

    def view(self) -> NodeView:
        """Return what the planner and the slot table see of it."""
        capacity = () if self.state is NodeState.RETIRED else self.capacity
        return NodeView(self.id, capacity, self.attributes, self.state is NodeState.OPEN)


@dataclass(frozen=True, slots=True)
class BookRow:
    """Book a reservation under the id that its leader chose."""

    row: ReservationView


@dataclass(frozen=True, slots=True)
class MoveRow:
    """Move a reservation in time."""

    reservation: str
    version: int
    interval: Interval


@dataclass(frozen=True, slots=True)
class ResizeRow:
    """Give a reservation another end, other amounts, or both; None keeps what it has."""

    reservation: str
    version: int
    end: Millis | None = None
    amounts: ResourceVector | None = None


@dataclass(frozen=True, slots=True)
class ReleaseRow:
    """Give a reservation back; version 0 means whatever it is, and one that is gone is no error."""

    reservation: str
    version: int = 0


@dataclass(frozen=True, slots=True)
class RebindRow:
    """Put a reservation on another node, and at another time where one is given."""

    reservation: str
    version: int
    node: str
    interval: Interval | None = None


@dataclass(frozen=True, slots=True)
class DisplaceRow:
    """Take a reservation out of the sum of its node, to be placed anew."""

    reservation: str
    version: int


RowOperation = BookRow | MoveRow | ResizeRow | ReleaseRow | RebindRow | DisplaceRow


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Operations that take effect together or not at all."""

    id: str
    operations: tuple[RowOperation, ...]


@dataclass(frozen=True, slots=True)
class GroupVerdict:
    """What became of a group: `error` is None when it took effect, `rows` is what it left."""

    group: str
    error: DomainError | None
    rows: tuple[ReservationView, ...] = ()


@dataclass(frozen=True, slots=True)
class RowChanges:
    """What a transaction changed: the last state of each row, or its absence."""

    written: Mapping[str, ReservationView]
    released: frozenset[str]
    nodes: Mapping[str, Node]

    def __bool__(self) -> bool:
        return bool(self.written or self.released or self.nodes)


def changed(
    row: ReservationView, operation: MoveRow | ResizeRow | RebindRow | DisplaceRow
) -> ReservationView:
    """Return the row after the operation, its version not counted yet. Raises WrongState."""
    match operation:
        case MoveRow(interval=interval):
            return replace(row, interval=interval)
        case ResizeRow(end=end, amounts=amounts):
            if end is not None and end <= row.interval.start:
                raise WrongState(
                    "INTERVAL_EMPTY", f"reservation {row.id} would end before it starts"
                )
            span = row.interval if end is None else Interval(row.interval.start, end)
            return replace(row, interval=span, amounts=row.amounts if amounts is None else amounts)
        case RebindRow(node=node, interval=interval):
            return replace(row, node=node, interval=interval or row.interval, displaced=False)
        case DisplaceRow():
            return replace(row, displaced=True)
