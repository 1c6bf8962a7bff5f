"""What agents are told and what they answer: commands, reports, and the allocations they move.

Decides how a command and a report change an allocation (one slot of one attempt of one lease).
Their contents are opaque here: `body` is what travels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, NamedTuple

from tenure_core.leases.lease import OnLoss
from tenure_core.timebase import Millis


class Verb(Enum):
    """What a command asks for."""

    PREPARE = "PREPARE"
    START = "START"
    SUSPEND = "SUSPEND"
    RESUME = "RESUME"
    STOP = "STOP"


class ReportKind(Enum):
    """What an agent, or the registry in its place, says that happened."""

    PREPARED = "PREPARED"
    STARTED = "STARTED"
    SUSPENDED = "SUSPENDED"
    RESUMED = "RESUMED"
    ENDED = "ENDED"
    REFUSED = "REFUSED"
    """A command had no effect; terminal when it was the START."""
    LOST = "LOST"
    """The agent is out of contact for so long that its work has ended; terminal."""


class AllocationState(Enum):
    """How an allocation is, as commanded and reported."""

    STARTING = "STARTING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    ENDED = "ENDED"


class Slot(NamedTuple):
    """Which allocation: one slot of one attempt of one lease."""

    lease: str
    attempt: int
    rank: int


@dataclass(frozen=True, slots=True)
class Command:
    """One thing that an agent shall do.

    `digest` tells whether a repeat asks for the same; it leaves out what a new leader changes.
    `valid_ms` is a length from the dispatch on. A START says whose lease it is for.
    """

    command_id: str
    agent: str
    slot: Slot
    verb: Verb
    epoch: int
    valid_ms: Millis
    on_loss: OnLoss
    digest: bytes
    body: bytes
    owner: str = ""
    project: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """One thing that happened, as its agent (or, for LOST, the registry) says."""

    report_id: str
    agent: str
    command_id: str
    slot: Slot
    kind: ReportKind
    sequence: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Allocation:
    """What is known of one slot on its agent.

    `live` until it ended, was refused or lost; `started` once a START for it was stored; `last` is
    the report that says how it is. `abandoned`: its agent came back with a new disk and without it.
    `owner` and `project` are whose lease it is, "" while no START has said so.
    """

    slot: Slot
    agent: str
    pool: str
    state: AllocationState
    on_loss: OnLoss
    live: bool
    started: bool
    last: Report | None = None
    abandoned: bool = False
    owner: str = ""
    project: str = ""

    @property
    def wanted(self) -> bool:
        """Say whether it shall be on its agent."""
        return self.live and self.started and not self.abandoned


_STATE_AFTER: Final[dict[ReportKind, AllocationState]] = {
    ReportKind.PREPARED: AllocationState.STARTING,
    ReportKind.STARTED: AllocationState.RUNNING,
    ReportKind.SUSPENDED: AllocationState.SUSPENDED,
    ReportKind.RESUMED: AllocationState.RUNNING,
    ReportKind.ENDED: AllocationState.ENDED,
    ReportKind.LOST: AllocationState.ENDED,
}


def ends(kind: ReportKind, answered: Verb | None) -> bool:
    """Say whether a report ends its allocation: ENDED, LOST, or a START that was refused."""
    if kind is ReportKind.REFUSED:
        return answered is Verb.START
    return kind in (ReportKind.ENDED, ReportKind.LOST)


def outcome_of(report: Report, answered: Verb | None) -> str:
    """Return what became of a command: ANSWERED, or REFUSED where a leader may repeat it.

    A START that was refused stays so: whoever hears of it makes another attempt.
    """
    again = report.kind is ReportKind.REFUSED and answered is not Verb.START
    return "REFUSED" if again else "ANSWERED"


def after_report(before: Allocation, report: Report, answered: Verb | None) -> Allocation:
    """Return the allocation once a report about it is stored.

    The first end stays, whatever comes later; also that of a slot that was only ever told to stop,
    for a leader that takes over asks how it is. A refusal of anything but the START says nothing of
    how it is; a report that was overtaken (its sequence is not above that of the last one) changes
    nothing either, unless it is an end. `answered` is the verb of the command that it answers.
    """
    over = ends(report.kind, answered)
    if not before.live:
        if before.last is not None or not over:
            return before
        return replace(before, state=AllocationState.ENDED, last=report)
    if not over and report.kind is ReportKind.REFUSED:
        return before
    if not over and before.last is not None and report.sequence <= before.last.sequence:
        return before
    state = _STATE_AFTER.get(report.kind, before.state)
    if over:
        state = AllocationState.ENDED
    return replace(before, state=state, live=not over, last=report)


def after_command(before: Allocation | None, command: Command, pool: str) -> Allocation | str:
    """Return the allocation once a command for it is stored, or the reason why it may not be.

    A slot belongs to one agent from its first START on (ALLOCATION_ELSEWHERE), and what ended never
    starts again under the same attempt (ALLOCATION_ENDED); a START that was refused may be tried
    again.
    """
    starts = command.verb is Verb.START
    if before is None:
        return Allocation(
            command.slot,
            command.agent,
            pool,
            AllocationState.STARTING,
            command.on_loss,
            live=starts or command.verb is Verb.PREPARE,
            started=starts,
            owner=command.owner,
            project=command.project,
        )
    if before.agent != command.agent:
        if before.started and before.live:
            return "ALLOCATION_ELSEWHERE"
        return after_command(None, command, pool)
    if command.verb not in (Verb.START, Verb.PREPARE):
        return before
    over = not before.live and before.last and before.last.kind is not ReportKind.REFUSED
    if over or before.abandoned:
        return "ALLOCATION_ENDED"
    if not starts:
        return before
    return replace(
        before,
        on_loss=command.on_loss,
        live=True,
        started=True,
        owner=command.owner or before.owner,
        project=command.project or before.project,
    )
