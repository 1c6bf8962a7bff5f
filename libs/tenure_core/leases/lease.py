"""A lease: what its owner asked for, and what became of it so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from tenure_core.leases.states import LeaseState
from tenure_core.resources import ResourceVector
from tenure_core.timebase import Interval, Millis


@dataclass(frozen=True, slots=True)
class Immediate:
    """Now or not at all: rejected when it cannot start at once."""


@dataclass(frozen=True, slots=True)
class BestEffort:
    """As soon as the queue allows."""


@dataclass(frozen=True, slots=True)
class Advance:
    """At `start` exactly: accepted with a booking, or rejected."""

    start: Millis


@dataclass(frozen=True, slots=True)
class Deadline:
    """Any time that ends by `deadline`, not before `earliest_start` where one is given."""

    deadline: Millis
    earliest_start: Millis | None = None


Terms = Immediate | BestEffort | Advance | Deadline
"""The four kinds of terms."""


class OnFailure(Enum):
    """What follows when the work ends with a non-zero exit code."""

    FAIL = "FAIL"
    RESTART = "RESTART"


class OnLoss(Enum):
    """What an agent does with the lease's work when it loses contact past its fence time."""

    STOP = "STOP"
    KEEP = "KEEP"


class DependencyCondition(Enum):
    """How the lease depended on must have ended."""

    SUCCEEDED = "SUCCEEDED"
    ENDED = "ENDED"


@dataclass(frozen=True, slots=True)
class Dependency:
    """The lease waits until `lease` has ended as `condition` says."""

    lease: str
    condition: DependencyCondition = DependencyCondition.SUCCEEDED


@dataclass(frozen=True, slots=True)
class Work:
    """What to run on each node; an empty command means that the owner only wants the capacity.

    `secrets` are the names of variables whose values admission keeps to itself.
    """

    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    image: str = ""
    secrets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LeaseSpec:
    """What an owner asks for: `node_count` slots of `amounts` each, for `duration_ms`.

    Several slots of one lease may share a node unless `spread` is set. `real_duration_ms` is known
    in simulation only.
    """

    owner: str
    project: str
    pool: str
    terms: Terms
    node_count: int
    amounts: ResourceVector
    duration_ms: Millis
    priority: int = 0
    preemptible: bool = True
    work: Work = field(default_factory=Work)
    on_failure: OnFailure = OnFailure.FAIL
    max_attempts: int = 1
    on_loss: OnLoss = OnLoss.STOP
    dependencies: tuple[Dependency, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    spread: bool = False
    stop_grace_ms: Millis = 5_000


@dataclass(frozen=True, slots=True)
class Placement:
    """One slot of a lease on one node; `rank` counts from 0 within the attempt."""

    rank: int
    node: str
    interval: Interval


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One recorded transition."""

    at: Millis
    state: LeaseState
    reason: str
    message: str
    attempt: int
    transition_id: str


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease as the lease book holds it.

    Three numbers, never mixed: `version` grows with every write, `attempt` with every placement;
    a transition's id makes recording it idempotent. `failures` counts the attempts that failed in
    a way that counts against `max_attempts`. `remaining_ms` is the duration less what was
    already run in the present attempt (kept over suspensions). `hold_expires` is when a lease that
    its owner has not confirmed is given up, None when there is nothing to confirm.
    """

    id: str
    spec: LeaseSpec
    state: LeaseState
    created: Millis
    version: int = 1
    attempt: int = 0
    reason: str = ""
    message: str = ""
    predicted_start: Millis | None = None
    started: Millis | None = None
    ended: Millis | None = None
    remaining_ms: Millis = 0
    placements: tuple[Placement, ...] = ()
    exit_code: int | None = None
    preemptions: int = 0
    history: tuple[HistoryEntry, ...] = ()
    failures: int = 0
    hold_expires: Millis | None = None
