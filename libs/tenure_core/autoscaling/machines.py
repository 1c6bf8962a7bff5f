"""The words of an elastic group: roles, states, commands, listed machines and their records.

A *listed machine* is what the provider says this tick. A *record* is what the controller stores of
a machine: its last command and the timers that must survive a restart.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tenure_core.timebase import Millis


class MachineRole(StrEnum):
    """What a machine of an elastic group is for."""

    MASTER = "MASTER"
    WORKER = "WORKER"


class MachineState(StrEnum):
    """What the provider says of a machine. ACTIVE covers boot, running, migration and saving."""

    INIT = "INIT"
    PENDING = "PENDING"
    HOLD = "HOLD"
    ACTIVE = "ACTIVE"
    STOPPED = "STOPPED"
    SUSPENDED = "SUSPENDED"
    DONE = "DONE"
    FAILED = "FAILED"
    UNKNOWN = "UNKNOWN"

    @classmethod
    def of_word(cls, word: str) -> MachineState:
        """Return the state that a provider's word means; a word not listed here is UNKNOWN."""
        return cls._value2member_map_.get(word.upper(), cls.UNKNOWN)  # type: ignore[return-value]


class ApplicationState(StrEnum):
    """What the agent on a machine says of its application."""

    INIT = "INIT"
    READY = "READY"
    RUNNING = "RUNNING"
    SHUTTING_DOWN = "SHUTTING_DOWN"
    ERROR = "ERROR"


class CommandKind(StrEnum):
    """What the controller can ask for. VM_* go to the provider, the rest to agents or services."""

    VM_CREATE = "VM_CREATE"
    VM_SUSPEND = "VM_SUSPEND"
    VM_RESUME = "VM_RESUME"
    VM_DELETE = "VM_DELETE"
    APP_INIT = "APP_INIT"
    APP_SHUTDOWN = "APP_SHUTDOWN"
    PROBE = "PROBE"
    FENCE_MASTER = "FENCE_MASTER"
    REQUEUE_WORK = "REQUEUE_WORK"
    LOOK_UP = "LOOK_UP"


LOGGED = frozenset(
    {
        CommandKind.VM_CREATE,
        CommandKind.VM_SUSPEND,
        CommandKind.VM_RESUME,
        CommandKind.VM_DELETE,
        CommandKind.APP_INIT,
        CommandKind.APP_SHUTDOWN,
    }
)
"""The commands that a record remembers; the others change nothing on the machine."""

DESTRUCTIVE = frozenset({CommandKind.VM_SUSPEND, CommandKind.VM_DELETE, CommandKind.APP_SHUTDOWN})
"""The commands that take capacity away; these stop when the observer is in doubt (P06)."""


class SuspendReason(StrEnum):
    """Why a machine sleeps: only OUTAGE is undone when a master is back (P21)."""

    DRAINED = "DRAINED"
    OUTAGE = "OUTAGE"


class Probe(StrEnum):
    """What a second source (provider probe, registry) says of a silent machine (P05)."""

    UNKNOWN = "UNKNOWN"
    ALIVE = "ALIVE"
    DEAD = "DEAD"


@dataclass(frozen=True, slots=True)
class ListedMachine:
    """One machine as the provider lists it, with what neighbours know of it.

    `owned` says that it carries this group's ownership mark; without it no command is ever given.
    `fenced` says that the registry has passed the agent's fence: nothing of it runs any more.
    `next_booking_in_ms` is the time to the next booking on it, zero or less while one is active.
    """

    machine_id: str
    role: MachineRole
    state: MachineState
    owned: bool = True
    token: str = ""
    probe: Probe = Probe.UNKNOWN
    fenced: bool = False
    price_micros: int = 0
    next_booking_in_ms: Millis | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """The provider's answer; `complete` is false when a page or a zone is missing."""

    machines: tuple[ListedMachine, ...]
    complete: bool = True


@dataclass(frozen=True, slots=True)
class MachineRecord:
    """What must survive a restart about one machine.

    `last` is the last command, None for an adopted machine; `since_ms` is its first sending (or
    the adoption). `attempt` counts retries of one command, `sequence` distinct commands, so that
    `command_id` stays the same when a command is sent again. Heartbeats received before
    `deaf_until_ms` are of a life that has ended and count for nothing.
    """

    machine_id: str
    role: MachineRole
    last: CommandKind | None
    since_ms: Millis
    attempt: int = 1
    sequence: int = 0
    suspend_reason: SuspendReason | None = None
    state: MachineState | None = None
    state_since_ms: Millis | None = None
    running_since_ms: Millis | None = None
    deaf_until_ms: Millis | None = None
    master_epoch: int = 0

    @property
    def command_id(self) -> str:
        """Return the id that every sending of the last command carries."""
        return f"{self.machine_id}#{self.sequence}"

    @property
    def tombstone(self) -> bool:
        """Say whether the machine is deleted and only waits to leave the listing."""
        return self.last is CommandKind.VM_DELETE


@dataclass(frozen=True, slots=True)
class CreateIntent:
    """A machine asked for and not yet listed; stored before the provider is asked (P17)."""

    token: str
    role: MachineRole
    asked_at_ms: Millis
    master_epoch: int = 0


@dataclass(frozen=True, slots=True)
class Command:
    """One thing to do. `machine_id` is empty for a creation, which `token` identifies instead.

    `epoch` is the acting leader's fencing token, `master_epoch` that of the master concerned;
    `resent` tells a repetition (same id, same first time) from a new command.
    """

    kind: CommandKind
    role: MachineRole
    machine_id: str = ""
    command_id: str = ""
    token: str = ""
    epoch: int = 0
    master_epoch: int = 0
    first_sent_at_ms: Millis = 0
    resent: bool = False
    reason: str = ""
