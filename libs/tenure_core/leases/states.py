"""The states of a lease and every allowed change between them, as one table.

Whatever is under way can fail or be cancelled, and an end absorbs: no event moves a lease out of
it. A lease *holds* while capacity is charged to it, from SCHEDULED until it ends.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class LeaseState(Enum):
    """Where a lease is in its life."""

    PENDING = "PENDING"
    """Created; the pool's leader has not decided yet."""
    QUEUED = "QUEUED"
    """Waits for capacity, a dependency or a quota; nothing is charged."""
    SCHEDULED = "SCHEDULED"
    """Charged and booked for an interval; its time has not come."""
    PREPARING = "PREPARING"
    """Images are on their way to its nodes."""
    STARTING = "STARTING"
    """Its agents were told to start it; not all have confirmed."""
    ACTIVE = "ACTIVE"
    """Runs on all its nodes."""
    SUSPENDING = "SUSPENDING"
    """Its agents were told to suspend it; not all have confirmed."""
    SUSPENDED = "SUSPENDED"
    """Stopped with its progress kept; waits to be resumed."""
    RESUMING = "RESUMING"
    """Its agents were told to resume it; not all have confirmed."""
    MIGRATING = "MIGRATING"
    """Its suspended state moves to other nodes."""
    STOPPING = "STOPPING"
    """Its time is over or it is to run again elsewhere; its agents were told to stop it."""
    CANCELLING = "CANCELLING"
    """Its owner gave it up; charged until its capacity is released and its agents report."""
    DONE = "DONE"
    """Ended as it should: its work succeeded, or its time was used up."""
    FAILED = "FAILED"
    """Ended otherwise, with a reason; no attempt is left."""
    CANCELLED = "CANCELLED"
    """Ended by its owner."""
    REJECTED = "REJECTED"
    """Refused before anything was booked, with a reason."""


S = LeaseState

TRANSITIONS: Final[dict[LeaseState, frozenset[LeaseState]]] = {
    S.PENDING: frozenset({S.QUEUED, S.SCHEDULED, S.REJECTED, S.CANCELLED, S.FAILED}),
    S.QUEUED: frozenset({S.SCHEDULED, S.REJECTED, S.CANCELLED, S.FAILED}),
    S.SCHEDULED: frozenset(
        {S.QUEUED, S.PREPARING, S.STARTING, S.CANCELLING, S.CANCELLED, S.FAILED}
    ),
    S.PREPARING: frozenset({S.QUEUED, S.STARTING, S.CANCELLING, S.FAILED}),
    S.STARTING: frozenset({S.QUEUED, S.ACTIVE, S.STOPPING, S.DONE, S.CANCELLING, S.FAILED}),
    S.ACTIVE: frozenset(
        {S.QUEUED, S.SUSPENDING, S.MIGRATING, S.STOPPING, S.DONE, S.CANCELLING, S.FAILED}
    ),
    S.SUSPENDING: frozenset(
        {S.QUEUED, S.ACTIVE, S.SUSPENDED, S.STOPPING, S.DONE, S.CANCELLING, S.FAILED}
    ),
    S.SUSPENDED: frozenset(
        {S.QUEUED, S.RESUMING, S.MIGRATING, S.STOPPING, S.DONE, S.CANCELLING, S.FAILED}
    ),
    S.RESUMING: frozenset(
        {S.QUEUED, S.ACTIVE, S.SUSPENDED, S.STOPPING, S.DONE, S.CANCELLING, S.FAILED}
    ),
    S.MIGRATING: frozenset(
        {S.QUEUED, S.ACTIVE, S.SUSPENDED, S.RESUMING, S.STOPPING, S.DONE, S.CANCELLING, S.FAILED}
    ),
    S.STOPPING: frozenset({S.QUEUED, S.DONE, S.CANCELLING, S.FAILED}),
    S.CANCELLING: frozenset({S.CANCELLED, S.DONE, S.FAILED}),
    S.DONE: frozenset(),
    S.FAILED: frozenset(),
    S.CANCELLED: frozenset(),
    S.REJECTED: frozenset(),
}
"""From each state, the states that may follow."""

WAITING: Final = frozenset({S.PENDING, S.QUEUED})
"""Nothing is charged and nothing is booked."""

ENDED: Final = frozenset(state for state, following in TRANSITIONS.items() if not following)
"""No event changes these."""

HOLDING: Final = frozenset(TRANSITIONS) - WAITING - ENDED
"""Capacity is charged to the lease."""

PLACED: Final = HOLDING - {S.SCHEDULED}
"""Agents may know of the lease: commands were or may have been sent for its present attempt."""


def may_follow(before: LeaseState, after: LeaseState) -> bool:
    """Say whether the table allows the change; staying in a state is not a change."""
    return after in TRANSITIONS[before]
