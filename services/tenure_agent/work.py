"""What the agent is told and what it answers, as plain values.

Decides the words: an allocation is one slot of one attempt of one lease; a command asks for one
thing to be done with it; a report says one thing that happened. How they travel is left to
`convert`, how they are kept to `ledger`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

# An id becomes a part of a folder's name and of lines in the trail.
_LEASE_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def is_lease_id(text: str) -> bool:
    """Say whether `text` may be a bare lease id: letters, digits, `.`, `_` and `-`, at most 128."""
    return _LEASE_ID.fullmatch(text) is not None


class Key(NamedTuple):
    """Names an allocation. `lease` is the bare id."""

    lease: str
    attempt: int
    rank: int

    @property
    def folder(self) -> str:
        """Return the name of its folder."""
        return f"{self.lease}.{self.attempt}.{self.rank}"


class State(StrEnum):
    """How an allocation is on this agent."""

    STARTING = "starting"
    RUNNING = "running"
    SUSPENDED = "suspended"
    ENDED = "ended"


class Verb(StrEnum):
    """What a command asks for."""

    PREPARE = "prepare"
    START = "start"
    SUSPEND = "suspend"
    RESUME = "resume"
    STOP = "stop"


class Kind(StrEnum):
    """What a report says."""

    PREPARED = "prepared"
    STARTED = "started"
    SUSPENDED = "suspended"
    RESUMED = "resumed"
    ENDED = "ended"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Launch:
    """What to run and how it ends. Without a command, capacity is all that is wanted.

    `secrets` are names of variables; their values are sealed until the work starts.
    """

    command: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    keep_on_loss: bool = False
    grace_ms: int = 5_000
    node_count: int = 1
    nodes: tuple[str, ...] = ()
    amounts: dict[str, int] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    sealed_secrets: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class Command:
    """One thing to do. `valid_ms` counts from its receipt, on the boot clock."""

    id: str
    verb: Verb
    scope: str
    epoch: int
    session: str
    key: Key
    valid_ms: int = 60_000
    trace_parent: str = ""
    launch: Launch | None = None
    grace_ms: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """One thing that happened. `sequence` is its number in the journal, from 1."""

    sequence: int
    id: str
    kind: Kind
    key: Key
    command_id: str = ""
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    wall_ms: int = 0
    run_ms: int = 0


@dataclass(frozen=True, slots=True)
class Observed:
    """One allocation as the agent tells it in its hello, or the registry in its wanted set."""

    key: Key
    state: State
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """What a driver saw: the state an allocation is now in, and how it ended if it did.

    `reason` and `message` are those of an end; `exit_code` is None for work that never began.
    """

    key: Key
    state: State
    run_ms: int = 0
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
