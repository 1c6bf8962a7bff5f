"""Leases and slot-table entries as the ancestor's rules see them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from tenure_core.planning.haizea.amounts import Amounts


class EntryKind(Enum):
    """What an entry of the slot table is for."""

    RUN = "run"
    SUSPEND = "suspend"
    RESUME = "resume"
    SHUTDOWN = "shutdown"
    MIGRATE_MEMORY = "migrate-mem"
    MIGRATE_DISK = "migrate-disk"
    TRANSFER = "transfer"


class EntryState(Enum):
    """Where an entry is in its life."""

    SCHEDULED = "scheduled"
    ACTIVE = "active"
    DONE = "done"


@dataclass(slots=True, eq=False)
class Entry:
    """One reservation on one or several nodes; `vnodes` are those that it is about.

    A RUN knows what comes `before` it (resumptions) and `after` it (suspensions or a shutdown),
    and on which node each vnode is; these know their `run`.
    """

    lease: HaizeaLease
    kind: EntryKind
    start: int
    end: int
    nodes: dict[int, Amounts]
    vnodes: tuple[int, ...] = ()
    state: EntryState = EntryState.SCHEDULED
    mapping: dict[int, int] = field(default_factory=dict)
    before: list[Entry] = field(default_factory=list)
    after: list[Entry] = field(default_factory=list)
    run: Entry | None = None
    moves: dict[int, tuple[int, int]] = field(default_factory=dict)
    image: tuple[str, int] = ("", 0)
    targets: dict[int, list[tuple[int, int]]] = field(default_factory=dict)


class Kind(Enum):
    """The kinds of leases."""

    BEST_EFFORT = "Best-effort"
    ADVANCE = "AR"
    IMMEDIATE = "Immediate"
    DEADLINE = "Deadline"


class State(Enum):
    """The ancestor's states."""

    PENDING = "Pending"
    REJECTED = "Rejected"
    REJECTED_BY_USER = "Rejected by user"
    SCHEDULED = "Scheduled"
    QUEUED = "Queued"
    PREPARING = "Preparing"
    READY = "Ready"
    ACTIVE = "Active"
    SUSPENDING = "Suspending"
    SUSPENDED_PENDING = "Suspended-Pending"
    SUSPENDED_QUEUED = "Suspended-Queued"
    SUSPENDED_SCHEDULED = "Suspended-Scheduled"
    RESUMING = "Resuming"
    RESUMED_READY = "Resumed-Ready"
    DONE = "Done"


@dataclass(slots=True, eq=False)
class HaizeaLease:
    """A request and what became of it.

    `demands[v - 1]` is what vnode v asks for, `memory[v - 1]` its memory in MB. `known_duration`
    is how long it really runs, None when as long as asked for. `homes` says on which node the
    memory file of each suspended vnode lies, `disks` where its disk image does.
    """

    id: int
    kind: Kind
    arrival: int
    start: int | None
    duration: int
    demands: tuple[Amounts, ...]
    memory: tuple[int, ...]
    known_duration: int | None = None
    image: tuple[str, int] | None = None
    deadline: int | None = None
    user: int | None = None
    user_rate: float | None = None
    price: float | None = None
    state: State = State.PENDING
    ran: int = 0
    first_start: int | None = None
    end: int | None = None
    runs: list[Entry] = field(default_factory=list)
    transfers: list[Entry] = field(default_factory=list)
    homes: dict[int, int] = field(default_factory=dict)
    disks: dict[int, int] = field(default_factory=dict)
    segments: list[tuple[int, int | None, tuple[int, ...], bool]] = field(default_factory=list)
    events: list[tuple[object, ...]] = field(default_factory=list)
    suspensions: int = 0
    resumptions: int = 0

    @property
    def count(self) -> int:
        """Return the number of vnodes."""
        return len(self.demands)

    @property
    def remaining(self) -> int:
        """Return the run time that is still owed."""
        return self.duration - self.ran

    @property
    def active_run(self) -> Entry | None:
        """Return the RUN that is under way, None when there is none."""
        return next((run for run in self.runs if run.state is EntryState.ACTIVE), None)

    @property
    def last_run(self) -> Entry:
        """Return the newest RUN entry."""
        return self.runs[-1]
