"""What the autoscaler's rooms hand one another: groups, machines, decisions, observations."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from tenure_core.autoscaling.machines import ApplicationState
from tenure_core.autoscaling.queue_packing import WaitingLease
from tenure_core.resources import ResourceVector
from tenure_core.timebase import MINUTE_MS, Interval, Millis

BOOT_MS_DEFAULT: Final[Millis] = 2 * MINUTE_MS
IDLE_MS_DEFAULT: Final[Millis] = 10 * MINUTE_MS
OBSERVE: Final = "observe"
"""The provider that makes nothing."""

GROUP_ATTRIBUTE: Final = "group"
"""An agent with this attribute is a machine of the group that it names."""


class GroupKind(Enum):
    """What drives a group's size."""

    POOL = "POOL"
    ELASTIC = "ELASTIC"


@dataclass(frozen=True, slots=True)
class ElasticPolicy:
    """How a master with workers is kept: its program, its drain-time band, its deadlines."""

    application: str
    lower_ms: Millis = 10_000
    upper_ms: Millis = 30_000
    startup_ms: Millis = 5 * MINUTE_MS
    transition_ms: Millis = MINUTE_MS
    shutdown_ms: Millis = 2 * MINUTE_MS
    interval_ms: Millis = 10_000
    in_window_ms: Millis = 5 * MINUTE_MS
    in_cooldown_ms: Millis = 5 * MINUTE_MS


@dataclass(frozen=True, slots=True)
class Group:
    """Machines of one kind that grow and shrink together. `version` changes with every write."""

    group: str
    kind: GroupKind
    pool: str
    size_min: int
    size_max: int
    provider: str
    amounts: ResourceVector
    boot_ms: Millis
    paused: bool
    dry_run: bool
    version: int
    created_ms: Millis
    idle_ms: Millis = IDLE_MS_DEFAULT
    elastic: ElasticPolicy | None = None

    @property
    def acts(self) -> bool:
        """Say whether machines are made and removed for it."""
        told = self.kind is GroupKind.POOL or self.elastic is not None
        return told and self.provider != OBSERVE


@dataclass(frozen=True, slots=True)
class GroupChange:
    """New values of a group; None leaves a value as it is."""

    size_min: int | None = None
    size_max: int | None = None
    amounts: ResourceVector | None = None
    boot_ms: Millis | None = None
    idle_ms: Millis | None = None
    dry_run: bool | None = None
    elastic: ElasticPolicy | None = None
    paused: bool | None = None


class MachineState(Enum):
    """How a machine is."""

    REQUESTED = "REQUESTED"
    BOOTING = "BOOTING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    DRAINING = "DRAINING"
    REMOVING = "REMOVING"
    REMOVED = "REMOVED"
    LOST = "LOST"


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine, known by the agent on it or by what was written when it was ordered."""

    machine: str
    group: str
    pool: str
    state: MachineState
    amounts: ResourceVector
    changed_ms: Millis
    version: int = 0
    provider_id: str = ""

    @property
    def serves(self) -> bool:
        """Say whether it counts as present."""
        gone = (MachineState.SUSPENDED, MachineState.REMOVED, MachineState.LOST)
        return self.state not in gone


@dataclass(frozen=True, slots=True)
class SeenAgent:
    """What the registry says of an agent, as far as a machine is concerned."""

    agent: str
    pool: str
    state: MachineState
    capacity: ResourceVector
    group: str
    changed_ms: Millis
    incarnation: str = ""
    running: int = 0
    """Slots of leases that have not ended on it."""


@dataclass(frozen=True, slots=True)
class SeenApplication:
    """What the registry says of the application on an agent; `age_ms`: since it was received."""

    agent: str
    incarnation: str
    sequence: int
    age_ms: Millis
    state: ApplicationState
    threads: int = 0
    mean_job_ms: Millis = 0
    in_flight: int | None = None
    queue_length: int = 0
    master_epoch: int = 0
    address: str = ""
    order_id: str = ""


@dataclass(frozen=True, slots=True)
class ApplicationOrder:
    """What the application on one incarnation of an agent shall be."""

    agent: str
    incarnation: str
    order_id: str
    start: bool
    machine: str
    is_master: bool
    master_epoch: int
    master_address: str = ""
    members: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Booking:
    """Capacity of a node that is held for a span."""

    node: str
    span: Interval
    amounts: ResourceVector


@dataclass(frozen=True, slots=True)
class PoolView:
    """What is known of a pool's demand. None means that nobody could be asked."""

    waiting: tuple[WaitingLease, ...] | None
    bookings: tuple[Booking, ...] | None


@dataclass(frozen=True, slots=True)
class Decision:
    """What the autoscaler would do, or did, and why."""

    subject: str
    decided_ms: Millis
    current: int
    target: int
    rule: str
    message: str
    inputs: tuple[tuple[str, str], ...]
    enacted: bool = False
    number: int = 0
    results: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class RequestMark:
    """How a repeat of a request is recognised."""

    caller: str
    request_id: str
    request: bytes


@dataclass(frozen=True, slots=True)
class MachineChange:
    """A machine after a change; None for a bookmark."""

    machine: Machine | None
    token: str
