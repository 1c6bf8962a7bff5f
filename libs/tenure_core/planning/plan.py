"""What the planner answers: operations on the slot table, in groups, and a decision a lease.

Decides nothing. The leader charges and commits each group (all of it or nothing, groups are
independent of each other) and then records and enacts the decisions that name the group.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum

from tenure_core.leases.lease import Placement
from tenure_core.planning.preempt_how import PreemptHow as PreemptHow  # told in a decision
from tenure_core.planning.snapshot import ReservationKind, ReservationView
from tenure_core.resources import ResourceVector
from tenure_core.timebase import Interval, Millis


@dataclass(frozen=True, slots=True)
class Book:
    """Book a new reservation under the id `reservation`, which the planner chose.

    The id is new in the snapshot and in the plan. `attempt` is the attempt that the booking belongs
    to: the one after the lease's present attempt when a waiting lease is placed, the present one
    when a suspended lease resumes.
    """

    reservation: str
    lease: str
    attempt: int
    rank: int
    node: str
    interval: Interval
    amounts: ResourceVector
    kind: ReservationKind = ReservationKind.RUN

    def row(self) -> ReservationView:
        """Return the reservation as it is once booked."""
        return ReservationView(
            self.reservation,
            self.lease,
            self.attempt,
            self.rank,
            self.node,
            self.interval,
            self.amounts,
            self.kind,
        )


@dataclass(frozen=True, slots=True)
class Move:
    """Give a reservation that has not begun another interval on the same node."""

    reservation: str
    version: int
    lease: str
    attempt: int
    interval: Interval


@dataclass(frozen=True, slots=True)
class Resize:
    """Give a reservation another end; its start, node and amounts stay."""

    reservation: str
    version: int
    lease: str
    attempt: int
    end: Millis


@dataclass(frozen=True, slots=True)
class Release:
    """Remove a reservation."""

    reservation: str
    version: int
    lease: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Rebind:
    """Give a reservation whose preparation has not begun another node, displaced no longer."""

    reservation: str
    version: int
    lease: str
    attempt: int
    node: str


@dataclass(frozen=True, slots=True)
class Displace:
    """Mark a reservation as displaced: it leaves the sum of its node and waits to be re-placed."""

    reservation: str
    version: int
    lease: str
    attempt: int


Operation = Book | Move | Resize | Release | Rebind | Displace
"""One change of the slot table.

Its preconditions are its own fields: a reservation named must still have `version`, and its lease
must still be in `attempt` (for a Book of a new attempt: in the attempt before it).
"""


@dataclass(frozen=True, slots=True)
class OperationGroup:
    """Operations that are committed together or not at all: a lease and those it preempts.

    `lease` is the one that the group is for. `id` is unique in the plan: the lease's id, with a
    number behind it when the plan has several groups for it. `leases` lists every lease that an
    operation of it touches, ascending. The operations are applied in their order; each counts the
    version of its reservation up by one, and a later operation on it expects that version.
    """

    id: str
    lease: str
    leases: tuple[str, ...]
    operations: tuple[Operation, ...]


@dataclass(frozen=True, slots=True)
class Schedule:
    """The lease holds `placements` for `interval`, from the operations of `group`.

    For a waiting lease this is its next attempt; for one that is SCHEDULED already (same attempt)
    its booking moved, never to a later start unless `reason` says why.
    """

    lease: str
    attempt: int
    interval: Interval
    placements: tuple[Placement, ...]
    group: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Resume:
    """The suspended lease resumes at `interval.start`, in its present attempt."""

    lease: str
    attempt: int
    interval: Interval
    placements: tuple[Placement, ...]
    group: str


@dataclass(frozen=True, slots=True)
class Queue:
    """The lease waits. `reason` is a stable code, `message` a sentence for its owner.

    `predicted_start` is when it would start if everything ran as long as was asked for; None when
    the planner did not look that far.
    """

    lease: str
    reason: str
    message: str
    predicted_start: Millis | None = None


@dataclass(frozen=True, slots=True)
class Reject:
    """The lease that was never placed is refused for good."""

    lease: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Preempt:
    """The lease gives up its capacity for lease `by`, beginning at `at`, all free by `free_by`.

    When `at` lies in the future the victim runs until then: its reservations are cut in the
    operations of `group`, and nothing is sent to its agents before its time comes. An empty `by`
    means that its node can no longer carry it.
    """

    lease: str
    attempt: int
    by: str
    how: PreemptHow
    at: Millis
    free_by: Millis
    group: str


@dataclass(frozen=True, slots=True)
class Lose:
    """The lease holds a booking that its node can no longer keep, and none fits instead.

    Only for leases that hold and have not begun: its remaining reservations are released in
    `group`, and its owner is told.
    """

    lease: str
    attempt: int
    reason: str
    message: str
    group: str


Decision = Schedule | Resume | Queue | Reject | Preempt | Lose
"""What becomes of one lease. A lease about which nothing changed has no decision, except that
every lease that waits has one (Queue) that says why."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer to one snapshot, in an order that depends on nothing but the snapshot.

    `groups` stand in the order in which they were planned and are committed in that order: a later
    group may use what an earlier one frees. `decisions` stand in that order too.
    """

    as_of: Millis
    revision: int
    groups: tuple[OperationGroup, ...]
    decisions: tuple[Decision, ...]

    def decision_of(self, lease: str) -> Decision | None:
        """Return the last decision on `lease`, None when nothing changed for it."""
        for decision in reversed(self.decisions):
            if decision.lease == lease:
                return decision
        return None

    def group_of(self, decision: Decision) -> OperationGroup | None:
        """Return the group that carries the decision out, None for one that books nothing."""
        name = None if isinstance(decision, Queue | Reject) else decision.group
        return next((group for group in self.groups if group.id == name), None)

    def to_json(self) -> str:
        """Return the plan as JSON text, equal byte for byte for equal plans."""
        return json.dumps(_as_json(self), sort_keys=True, separators=(",", ":"))


def _as_json(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        named: dict[str, object] = {"type": type(value).__name__}
        named.update({f.name: _as_json(getattr(value, f.name)) for f in fields(value)})
        return named
    if isinstance(value, Mapping):
        return {str(key): _as_json(inner) for key, inner in value.items()}
    if isinstance(value, tuple):
        return [_as_json(inner) for inner in value]
    return value
