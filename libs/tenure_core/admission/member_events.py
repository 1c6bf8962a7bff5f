"""What an event does to one member of a lease, and what must be done besides.

Events arrive late, twice and in any order. An end absorbs; STOPPING is left only by an end;
progress never goes backwards; what was reserved is released exactly once, on the way out; and
whatever has not ended can be stopped. The ancestor's first version broke each of these.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from tenure_core.admission.lifecycle import ENDED, Stage


class MemberEvent(Enum):
    """What happened to, or is asked of, a member."""

    SCHEDULED = "SCHEDULED"
    PREPARING = "PREPARING"
    PULLING = "PULLING"
    CREATING = "CREATING"
    STARTED = "STARTED"
    """The agent says that it runs; whoever sent the start records it."""
    START_CONFIRMED = "START_CONFIRMED"
    START_FAILED = "START_FAILED"
    ENDED = "ENDED"
    STOP = "STOP"
    FORCE_STOP = "FORCE_STOP"
    STOP_FAILED = "STOP_FAILED"


class Effect(Enum):
    """What must be done in the same transaction, or sent after it."""

    RESERVE = "RESERVE"
    NOTE_SCHEDULED = "NOTE_SCHEDULED"
    NOTE_START_FAILED = "NOTE_START_FAILED"
    RECORD_PLACE = "RECORD_PLACE"
    RELEASE_REQUESTED = "RELEASE_REQUESTED"
    RELEASE_HELD = "RELEASE_HELD"
    UNCOUNT = "UNCOUNT"
    RECOUNT = "RECOUNT"
    RECOUNT_ALL = "RECOUNT_ALL"
    ANNOUNCE_CANCELLED = "ANNOUNCE_CANCELLED"
    ANNOUNCE_STOPPING = "ANNOUNCE_STOPPING"
    ANNOUNCE_ENDED = "ANNOUNCE_ENDED"
    SEND_STOP = "SEND_STOP"
    NO_COMMAND = "NO_COMMAND"


@dataclass(frozen=True, slots=True)
class Reaction:
    """The stage that follows and what must be done; unchanged and nothing for a late event."""

    stage: Stage
    effects: tuple[Effect, ...] = ()


OCCUPIES_NODE: Final = frozenset(
    {
        Stage.PREPARING, Stage.BUILDING, Stage.PULLING, Stage.ACTIVE, Stage.RESTARTING,
        Stage.RESIZING, Stage.SUSPENDED, Stage.STOPPING, Stage.FAILED,
    }
)  # fmt: skip
"""A member in these takes room on its node; one that failed does until it is cleaned up."""

OCCUPIES_OWNER: Final = OCCUPIES_NODE - {Stage.STOPPING}
"""A member in these counts for its owner."""

GONE: Final = frozenset({Stage.DONE, Stage.CANCELLED})
"""A member in these is over."""

_COMING_UP: Final = frozenset({Stage.PREPARING, Stage.BUILDING, Stage.PULLING})
_UNDO_START: Final = (
    Effect.RELEASE_REQUESTED,
    Effect.UNCOUNT,
    Effect.NOTE_START_FAILED,
    Effect.ANNOUNCE_CANCELLED,
)
_PROGRESS: Final = {
    MemberEvent.PREPARING: Stage.PREPARING,
    MemberEvent.CREATING: Stage.PREPARING,
    MemberEvent.PULLING: Stage.PULLING,
}


def react(stage: Stage, event: MemberEvent) -> Reaction:
    """Return what the event does to a member in this stage.

    Stages are those that members of the ancestor's first version had; FAILED is no end there,
    since the member still holds its room.
    """
    if stage in GONE:
        return Reaction(stage)
    if event is MemberEvent.ENDED:
        return _ended(stage)
    if event is MemberEvent.FORCE_STOP:
        return _forced(stage)
    if stage is Stage.STOPPING:
        return Reaction(Stage.FAILED if event is MemberEvent.STOP_FAILED else stage)
    if event is MemberEvent.STOP:
        return _asked_to_stop(stage)
    return _brought_up(stage, event)


def _ended(stage: Stage) -> Reaction:
    if stage is Stage.RESTARTING:
        return Reaction(stage)
    return Reaction(Stage.DONE, (Effect.RECOUNT, Effect.RELEASE_HELD))


def _forced(stage: Stage) -> Reaction:
    if stage is Stage.WAITING:
        return Reaction(Stage.CANCELLED, (Effect.ANNOUNCE_CANCELLED,))
    return Reaction(Stage.DONE, (Effect.NO_COMMAND, Effect.ANNOUNCE_ENDED, Effect.RECOUNT_ALL))


def _asked_to_stop(stage: Stage) -> Reaction:
    if stage is Stage.WAITING:
        return Reaction(Stage.CANCELLED, (Effect.ANNOUNCE_CANCELLED,))
    return Reaction(Stage.STOPPING, (Effect.UNCOUNT, Effect.ANNOUNCE_STOPPING, Effect.SEND_STOP))


def _brought_up(stage: Stage, event: MemberEvent) -> Reaction:
    if event is MemberEvent.SCHEDULED and stage is Stage.WAITING:
        return Reaction(Stage.PREPARING, (Effect.RESERVE, Effect.NOTE_SCHEDULED))
    if stage not in _COMING_UP:
        return Reaction(stage)
    if event in _PROGRESS:
        return Reaction(_PROGRESS[event])
    if event is MemberEvent.START_CONFIRMED:
        return Reaction(Stage.ACTIVE, (Effect.RECORD_PLACE,))
    if event is MemberEvent.START_FAILED:
        return Reaction(Stage.CANCELLED, _UNDO_START)
    return Reaction(stage)


assert ENDED >= GONE
