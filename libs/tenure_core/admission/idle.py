"""Says whether a lease that runs is still used, and when it counts as idle for good.

Three ways to look, one rule each. All instants are in one unit of the caller's choice. No
measurement is no decision, never idleness.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import Enum


class IdlePhase(Enum):
    """What one look found."""

    ACTIVE = "ACTIVE"
    IDLE = "IDLE"
    IDLE_EXPIRED = "IDLE_EXPIRED"


@dataclass(frozen=True, slots=True)
class IdleVerdict:
    """The phase, and the instant at which idleness runs out."""

    phase: IdlePhase
    deadline: int


def network(
    now: int,
    limit: int,
    deadline: int | None,
    *,
    in_flight: bool,
    connections: int,
    last_used: int | None = None,
) -> IdleVerdict:
    """Judge by requests and open connections.

    While either lasts the deadline is `limit` away. Afterwards the stored deadline counts, or
    `limit` from now where none is stored. Given `last_used`, the deadline is never before that use
    plus `limit`: the ancestor overlooks use between two looks.
    """
    if in_flight or connections > 0:
        return IdleVerdict(IdlePhase.ACTIVE, now + limit)
    stored = now + limit if deadline is None else deadline
    if last_used is not None:
        stored = max(stored, last_used + limit)
    return _by_deadline(now, stored)


def lifetime(now: int, limit: int, started: int | None) -> IdleVerdict | None:
    """Judge by age: the deadline is recomputed from the start, so a new limit applies at once.

    None, no decision, for what has not started.
    """
    return None if started is None else _by_deadline(now, started + limit)


def utilization(
    now: int, limit: int, deadline: int | None, value: Decimal | None, threshold: Decimal
) -> IdleVerdict | None:
    """Judge by how much is used of what is held; a value equal to the threshold is active.

    A busy look revives what has run out but was not ended yet. None, no decision, without a value.
    """
    if value is None:
        return None
    if value >= threshold:
        return IdleVerdict(IdlePhase.ACTIVE, now + limit)
    return _by_deadline(now, now + limit if deadline is None else deadline)


def _by_deadline(now: int, deadline: int) -> IdleVerdict:
    expired = deadline <= now
    return IdleVerdict(IdlePhase.IDLE_EXPIRED if expired else IdlePhase.IDLE, deadline)
