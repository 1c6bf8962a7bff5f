"""What the planner sees: one pool at one instant, frozen.

Decides nothing. Whoever takes the snapshot (the live scheduler from its change feeds, the simulator
from its own state) decides what a lease may do at all (dependencies, quotas) and says so in
`LeaseView.blocked`; leases and reservations that have ended are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum

from tenure_core.leases.lease import Lease, LeaseSpec
from tenure_core.leases.states import LeaseState
from tenure_core.resources import ResourceVector
from tenure_core.timebase import Interval, Millis


class ReservationKind(Enum):
    """What a reservation is for."""

    RUN = "RUN"
    """The lease's work runs."""
    PREPARE = "PREPARE"
    """Images arrive and the slot is made ready."""
    TRANSFER = "TRANSFER"
    """Data moves between nodes."""
    SUSPEND = "SUSPEND"
    """The work is being suspended."""
    RESUME = "RESUME"
    """The work is being resumed."""
    RESIDENT = "RESIDENT"
    """What a suspended lease still occupies on its node; open-ended until it resumes."""
    HOLD = "HOLD"
    """Kept for somebody, and expires unless confirmed."""
    MAINTENANCE = "MAINTENANCE"
    """Taken out of service by an operator; belongs to no lease."""


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node: what it has, from when, and whether new work may be placed on it.

    `capacity` lists (from, amounts) in ascending time; before the first point there is nothing,
    after the last it stays. A node that is not `schedulable` (cordoned, draining, lost) keeps what
    is booked on it and gets nothing new.
    """

    id: str
    capacity: tuple[tuple[Millis, ResourceVector], ...]
    attributes: Mapping[str, str] = field(default_factory=dict)
    schedulable: bool = True

    def capacity_at(self, instant: Millis) -> ResourceVector:
        """Return what the node has at `instant`, reservations not regarded."""
        amounts = ResourceVector()
        for since, vector in self.capacity:
            if since > instant:
                break
            amounts = vector
        return amounts


@dataclass(frozen=True, slots=True)
class ReservationView:
    """One row of the slot table: one slot of one lease (or nobody's) on one node for a span.

    `lease` is empty for MAINTENANCE and for holds without a lease. An open end is
    `timebase.FOREVER`. A `displaced` reservation no longer counts in the sum of its node and waits
    to be re-placed; nothing new goes to that node meanwhile. A RUN whose interval has ended and
    that is still listed is an *overrun*: it occupies its node until it is released.
    """

    id: str
    lease: str
    attempt: int
    rank: int
    node: str
    interval: Interval
    amounts: ResourceVector
    kind: ReservationKind
    displaced: bool = False
    version: int = 1


@dataclass(frozen=True, slots=True)
class Blocked:
    """Why a lease may not be placed at present, although capacity may be there.

    `reason` is a stable UPPER_SNAKE code (`DEPENDENCY_PENDING`, `QUOTA_EXCEEDED`), `message` a
    sentence for its owner.
    """

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class LeaseView:
    """What the planner needs to know of one lease that has not ended.

    `arrival` orders leases that came one after the other; it is unique and never changes.
    `remaining_ms` is the run time still owed as of the start of the present run, or as of now when
    the lease is not running: a lease that never ran owes its whole duration. `kept` is what one
    slot of it goes on occupying on its node while suspended, as its driver declares (SIGSTOP: all
    but cpu). `blocked` is decided by the caller. `run_started` is when the present run began,
    None when the lease is not running. `preemptions` counts how often it was preempted so far.
    `suspendable` says whether its driver can suspend it at all.
    """

    id: str
    spec: LeaseSpec
    state: LeaseState
    attempt: int
    arrival: int
    created: Millis
    remaining_ms: Millis
    kept: ResourceVector = field(default_factory=ResourceVector)
    blocked: Blocked | None = None
    run_started: Millis | None = None
    preemptions: int = 0
    suspendable: bool = True

    @classmethod
    def of(
        cls,
        lease: Lease,
        *,
        arrival: int,
        kept: ResourceVector | None = None,
        blocked: Blocked | None = None,
        run_started: Millis | None = None,
        suspendable: bool = True,
    ) -> LeaseView:
        """Return the view of a lease as the lease book holds it.

        `kept` defaults to everything but cpu, which is what a stopped process goes on occupying.
        """
        if kept is None:
            kept = ResourceVector({k: n for k, n in lease.spec.amounts.items() if k != "cpu"})
        return cls(
            id=lease.id,
            spec=lease.spec,
            state=lease.state,
            attempt=lease.attempt,
            arrival=arrival,
            created=lease.created,
            remaining_ms=lease.remaining_ms or lease.spec.duration_ms,
            kept=kept,
            blocked=blocked,
            run_started=run_started,
            preemptions=lease.preemptions,
            suspendable=suspendable,
        )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One pool at `now`. The order of the tuples means nothing: the planner sorts by id.

    `revision` is slottable's revision that the reservations were read at, passed through to the
    plan untouched. `factors` are the fair-share factors of `owner`s and `project`s by name; who is
    not named used nothing.
    """

    now: Millis
    nodes: tuple[NodeView, ...]
    reservations: tuple[ReservationView, ...]
    leases: tuple[LeaseView, ...]
    revision: int = 0
    factors: Mapping[str, Mapping[str, Decimal]] = field(default_factory=dict)
