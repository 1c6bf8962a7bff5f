"""What the leader knows of its neighbours' things, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tenure_core.agents.states import AgentState
from tenure_core.agents.work import Verb
from tenure_core.enactment.ranks import Report
from tenure_core.leases.lease import HistoryEntry, Lease, Placement
from tenure_core.leases.states import LeaseState
from tenure_core.planning.snapshot import ReservationView
from tenure_core.resources import ResourceVector
from tenure_core.slots.operations import Node, RowOperation
from tenure_core.timebase import Interval, Millis


@dataclass(frozen=True, slots=True)
class RequestedChange:
    """A change that a lease's owner asked for; None and 0 mean that it is to stay."""

    id: str
    duration_ms: Millis | None = None
    start: Millis | None = None
    node_count: int = 0
    priority: int | None = None


@dataclass(frozen=True, slots=True)
class CounterOffer:
    """A change near to the one refused."""

    start: Millis | None = None
    duration_ms: Millis | None = None
    node_count: int = 0


@dataclass(frozen=True, slots=True)
class ChangeVerdict:
    """What the leader says of a requested change."""

    change: RequestedChange
    granted: bool
    reason: str = ""
    message: str = ""
    offers: tuple[CounterOffer, ...] = ()


@dataclass(frozen=True, slots=True)
class LeaseEntry:
    """A lease as admission tells it. `change` is a requested change that is not decided."""

    lease: Lease
    trace_parent: str = ""
    change: RequestedChange | None = None

    def present_run(self) -> Millis | None:
        """Return when the present run became ACTIVE, None when the lease does not run."""
        lease = self.lease
        runs: HistoryEntry | None = None
        for entry in lease.history:
            if entry.attempt == lease.attempt and entry.state is LeaseState.ACTIVE:
                runs = entry
        return runs.at if runs is not None else lease.started


@dataclass(frozen=True, slots=True)
class LeaseChange:
    """One event of admission's feed; without a lease, a bookmark."""

    token: str
    lease: LeaseEntry | None = None


@dataclass(frozen=True, slots=True)
class Transition:
    """One thing to record. `version` is the lease's that the leader saw."""

    id: str
    lease: str
    version: int
    state: LeaseState
    attempt: int
    reason: str = ""
    message: str = ""
    charge: Interval | None = None
    placements: tuple[Placement, ...] = ()
    predicted_start: Millis | None = None
    started: Millis | None = None
    ended: Millis | None = None
    remaining_ms: Millis | None = None
    exit_code: int | None = None
    preempted: bool = False
    failed: bool = False
    change: ChangeVerdict | None = None


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the leader expects of one waiting lease."""

    lease: str
    start: Millis | None
    position: int
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class TransitionVerdict:
    """What became of a transition: `reason` is empty when it was recorded."""

    id: str
    reason: str
    message: str
    lease: LeaseEntry | None


@dataclass(frozen=True, slots=True)
class RowChange:
    """One event of slottable's feed: exactly one of row, released, node; none is a bookmark."""

    token: str
    at: Millis
    revision: int = 0
    row: ReservationView | None = None
    released: str = ""
    node: Node | None = None


@dataclass(frozen=True, slots=True)
class TableState:
    """All of a pool's rows and nodes, and the point from which to watch."""

    rows: tuple[ReservationView, ...]
    nodes: tuple[Node, ...]
    token: str
    revision: int
    at: Millis


@dataclass(frozen=True, slots=True)
class SubmitGroup:
    """Operations to commit together, with the trace of the lease that they are for."""

    id: str
    operations: tuple[RowOperation, ...]
    trace_parent: str = ""


@dataclass(frozen=True, slots=True)
class SubmitVerdict:
    """What became of a group: `reason` is empty when it took effect."""

    group: str
    reason: str
    message: str
    rows: tuple[ReservationView, ...]


@dataclass(frozen=True, slots=True)
class SubmitResult:
    """The verdicts in order, and how far the pool is."""

    verdicts: tuple[SubmitVerdict, ...]
    revision: int
    at: Millis


@dataclass(frozen=True, slots=True)
class CapacityResult:
    """Nodes and displaced rows after SetCapacity."""

    nodes: tuple[Node, ...]
    displaced: tuple[ReservationView, ...]
    revision: int


@dataclass(frozen=True, slots=True)
class AgentEntry:
    """An agent as the registry tells it."""

    id: str
    state: AgentState
    capacity: ResourceVector
    attributes: Mapping[str, str] = field(default_factory=dict)
    cordoned: bool = False
    draining: bool = False
    incarnation: str = ""
    suspended_keeps: tuple[str, ...] = ()
    sealing_key: bytes = b""


@dataclass(frozen=True, slots=True)
class AgentChange:
    """One event of the registry's agent feed; without an agent, a bookmark."""

    token: str
    agent: AgentEntry | None = None


@dataclass(frozen=True, slots=True)
class ReportChange:
    """One event of the registry's report feed; without a report, a bookmark."""

    token: str
    report: Report | None = None


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One command for an agent, with what its START needs."""

    id: str
    lease: LeaseEntry
    attempt: int
    rank: int
    node: str
    verb: Verb
    reason: str
    grace_ms: Millis
    nodes: tuple[str, ...] = ()
    sealed_secrets: bytes = b""


@dataclass(frozen=True, slots=True)
class DispatchVerdict:
    """What became of a command: `reason` is empty when it is stored for delivery."""

    id: str
    reason: str
    message: str
