"""The stages between asking and ending, for a lease and for each of its members.

A *member* is one slot of a lease on one node (rank r of n). Stages refine
`tenure_core.leases.states`: `LEASE_STATE` says which state of the lease book each one belongs to.
The tables say which stages each step of the scheduler takes, what it may write, and which condition
over the members moves the lease on. Writes compare the stage that they were decided on
(`may_write`); an end absorbs, and after STOPPING only an end follows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tenure_core.leases.states import LeaseState


class Stage(Enum):
    """Where a lease or one of its members is."""

    WAITING = "WAITING"
    DEMOTED = "DEMOTED"
    """Failed too often in its place: goes back to the queue with a lower priority."""
    HELD = "HELD"
    """Holds capacity that those preempted for it still use."""
    SCHEDULED = "SCHEDULED"
    PREPARING = "PREPARING"
    BUILDING = "BUILDING"
    PULLING = "PULLING"
    PREPARED = "PREPARED"
    STARTING = "STARTING"
    ACTIVE = "ACTIVE"
    DEGRADED = "DEGRADED"
    """Runs with some members lost."""
    RESTARTING = "RESTARTING"
    RESIZING = "RESIZING"
    SUSPENDED = "SUSPENDED"
    PREEMPTED = "PREEMPTED"
    """Must make room; is stopped or queued anew next."""
    REQUEUING = "REQUEUING"
    """Waits until all members have ended, then waits in the queue again."""
    STOPPING = "STOPPING"
    DONE = "DONE"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


_S = Stage

LEASE_STATE: Final[Mapping[Stage, LeaseState]] = {
    _S.WAITING: LeaseState.QUEUED,
    _S.DEMOTED: LeaseState.QUEUED,
    _S.HELD: LeaseState.SCHEDULED,
    _S.SCHEDULED: LeaseState.SCHEDULED,
    _S.PREPARING: LeaseState.PREPARING,
    _S.BUILDING: LeaseState.PREPARING,
    _S.PULLING: LeaseState.PREPARING,
    _S.PREPARED: LeaseState.PREPARING,
    _S.STARTING: LeaseState.STARTING,
    _S.ACTIVE: LeaseState.ACTIVE,
    _S.DEGRADED: LeaseState.ACTIVE,
    _S.RESTARTING: LeaseState.ACTIVE,
    _S.RESIZING: LeaseState.ACTIVE,
    _S.SUSPENDED: LeaseState.SUSPENDED,
    _S.PREEMPTED: LeaseState.STOPPING,
    _S.REQUEUING: LeaseState.STOPPING,
    _S.STOPPING: LeaseState.STOPPING,
    _S.DONE: LeaseState.DONE,
    _S.FAILED: LeaseState.FAILED,
    _S.CANCELLED: LeaseState.CANCELLED,
}
"""The state of the lease book that each stage belongs to."""

ENDED: Final = frozenset({_S.DONE, _S.FAILED, _S.CANCELLED})
"""Terminal, for leases and members alike."""

LEASE_HOLDS: Final = frozenset(
    {
        _S.HELD, _S.SCHEDULED, _S.PREPARING, _S.PULLING, _S.PREPARED, _S.STARTING, _S.ACTIVE,
        _S.RESTARTING, _S.DEGRADED, _S.STOPPING,
    }
)  # fmt: skip
"""A lease in these holds capacity."""

LEASE_PREEMPTIBLE: Final = LEASE_HOLDS - {_S.HELD, _S.STOPPING}
"""A lease in these can make room for another."""

LEASE_FORCIBLE: Final = LEASE_HOLDS | {_S.WAITING, _S.DEMOTED, _S.PREEMPTED, _S.REQUEUING}
"""A lease in these can be ended by force: every stage that is no end."""

LEASE_STOPPABLE: Final = LEASE_FORCIBLE - {_S.STOPPING}
"""A lease in these can be asked to stop."""

LEASE_AWAITS_MEMBERS: Final = frozenset({_S.STARTING, _S.PREPARING, _S.PULLING, _S.STOPPING})
"""A lease in these moves on when its members report."""

MEMBER_USES: Final = frozenset({_S.ACTIVE, _S.STOPPING})
"""A member in these counts with what its agent reported."""

MEMBER_RESERVES: Final = frozenset(
    {_S.HELD, _S.SCHEDULED, _S.PREPARING, _S.PULLING, _S.PREPARED, _S.STARTING}
)
"""A member in these counts with what was requested."""

MEMBER_UNPREPARED: Final = frozenset(
    {_S.WAITING, _S.HELD, _S.SCHEDULED, _S.PREPARING, _S.BUILDING, _S.PULLING}
)
"""A member in these is not ready to be started."""

MEMBER_UNSTARTED: Final = MEMBER_UNPREPARED | {_S.PREPARED, _S.STARTING}
"""A member in these does not run yet."""

MEMBER_STOPPABLE: Final = (MEMBER_UNSTARTED - {_S.WAITING}) | {
    _S.ACTIVE, _S.RESTARTING, _S.RESIZING, _S.SUSPENDED,
}  # fmt: skip
"""A member in these has something on a node that can be stopped."""


class Outcome(Enum):
    """What became of one try of one step for one lease."""

    SUCCESS = "SUCCESS"
    NEED_RETRY = "NEED_RETRY"
    EXPIRED = "EXPIRED"
    GIVE_UP = "GIVE_UP"
    FAILURE = "FAILURE"
    """Of steps that look at members only and do not retry."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a step writes: a stage for the lease, for its members, or both."""

    lease: Stage | None = None
    members: Stage | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the scheduler: the stages it takes, and what it writes per outcome."""

    leases: tuple[Stage, ...] | None
    members: tuple[Stage, ...] | None
    writes: Mapping[Outcome, Change]

    def written(self, outcome: Outcome) -> Change | None:
        """Return what the outcome writes, or None when everything stays as it is."""
        return self.writes.get(outcome)


_BACK_TO_QUEUE: Final = Change(_S.WAITING, _S.WAITING)
_STOP: Final = Change(_S.STOPPING, _S.STOPPING)
_END: Final = Change(_S.DONE, _S.DONE)

STEPS: Final[Mapping[str, Step]] = {
    "schedule": Step(
        (_S.WAITING,),
        None,
        {
            Outcome.SUCCESS: Change(_S.SCHEDULED, _S.SCHEDULED),
            Outcome.EXPIRED: _STOP,
            Outcome.GIVE_UP: Change(_S.DEMOTED),
        },
    ),
    "demote": Step(
        (_S.DEMOTED,),
        None,
        {Outcome.SUCCESS: Change(_S.WAITING), Outcome.GIVE_UP: Change(_S.WAITING)},
    ),
    "prepare": Step(
        (_S.SCHEDULED, _S.PREPARING),
        (_S.SCHEDULED, _S.PREPARING, _S.PULLING),
        {
            Outcome.SUCCESS: Change(_S.PREPARING, _S.PREPARING),
            Outcome.EXPIRED: _BACK_TO_QUEUE,
            Outcome.GIVE_UP: _STOP,
        },
    ),
    "start": Step(
        (_S.PREPARED,),
        (_S.PREPARED,),
        {
            Outcome.SUCCESS: Change(_S.STARTING, _S.STARTING),
            Outcome.EXPIRED: _BACK_TO_QUEUE,
            Outcome.GIVE_UP: _STOP,
        },
    ),
    "stop": Step((_S.STOPPING,), None, {Outcome.EXPIRED: _END, Outcome.GIVE_UP: _END}),
    "end overdue waits": Step((_S.WAITING,), None, {Outcome.EXPIRED: _STOP}),
    "admit held": Step(
        (_S.HELD,),
        (_S.HELD,),
        {Outcome.EXPIRED: _BACK_TO_QUEUE, Outcome.GIVE_UP: _BACK_TO_QUEUE},
    ),
    "preempt": Step((_S.PREEMPTED,), None, {}),
    "requeue": Step((_S.REQUEUING,), None, {}),
    "end stale members": Step(None, (_S.ACTIVE,), {Outcome.FAILURE: Change(members=_S.DONE)}),
}
"""Every step of the scheduler by name."""

PRIORITY_DEMOTION: Final = 10
"""By how much a demoted lease's priority sinks; never below zero."""


def demoted(priority: int) -> int:
    """Return the priority after a demotion."""
    return max(0, priority - PRIORITY_DEMOTION)


class Promotion(Enum):
    """Which condition over its members moves a lease on."""

    SCHEDULED = "SCHEDULED"
    PREPARED = "PREPARED"
    ACTIVE = "ACTIVE"
    ENDED = "ENDED"
    MEMBER_DIED = "MEMBER_DIED"
    """A member ended although nobody asked: the lease stops, abnormally."""


_DIED: Final = frozenset({_S.DONE, _S.CANCELLED})
_MAY_LOSE_MEMBERS: Final = frozenset(
    {
        _S.WAITING, _S.DEMOTED, _S.SCHEDULED, _S.PREPARING, _S.PULLING, _S.PREPARED, _S.STARTING,
        _S.ACTIVE,
    }
)  # fmt: skip
_NONE_LEFT_IN: Final[Mapping[Stage, tuple[frozenset[Stage], Promotion]]] = {
    _S.HELD: (frozenset({_S.HELD}), Promotion.SCHEDULED),
    _S.SCHEDULED: (MEMBER_UNPREPARED, Promotion.PREPARED),
    _S.PREPARING: (MEMBER_UNPREPARED, Promotion.PREPARED),
    _S.PULLING: (MEMBER_UNPREPARED, Promotion.PREPARED),
    _S.STARTING: (MEMBER_UNSTARTED, Promotion.ACTIVE),
}


def promotion(lease: Stage, members: Sequence[Stage]) -> Promotion | None:
    """Return the one condition that holds, or None: a member's death goes before all others.

    The ancestor runs the conditions as independent tasks, so two may match a lease that is being
    prepared with a dead member, and whichever task runs first wins.
    """
    if lease in _MAY_LOSE_MEMBERS and any(member in _DIED for member in members):
        return Promotion.MEMBER_DIED
    if lease is _S.STOPPING and all(member in ENDED for member in members):
        return Promotion.ENDED
    if lease in _NONE_LEFT_IN:
        behind, found = _NONE_LEFT_IN[lease]
        if not any(member in behind for member in members):
            return found
    return None


def may_write(found: Stage, decided_on: Stage, target: Stage) -> bool:
    """Say whether a write that was decided on one stage may replace the stage found.

    The stages must agree, an end never changes, and STOPPING is followed by an end only.
    """
    if found is not decided_on or found in ENDED:
        return False
    return found is not _S.STOPPING or target in ENDED
