"""What became of one lease in one pass: where it goes, or what stands in its way."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tenure_core.admission.amounts import Amounts
from tenure_core.admission.filters import Filter


class Obstacle(Enum):
    """Why a lease was not placed."""

    NO_NODES = "NO_NODES"
    MIXED_ARCHITECTURES = "MIXED_ARCHITECTURES"
    INCOMPATIBLE = "INCOMPATIBLE"
    """Some filter leaves no node, whatever ends."""
    IMPOSSIBLE = "IMPOSSIBLE"
    """More than the pool could give if nothing else ran."""
    EXHAUSTED = "EXHAUSTED"
    """Waits for something to end."""


@dataclass(frozen=True, slots=True)
class Lack:
    """What one requirement is short of, on the node that comes nearest."""

    index: int
    filter: Filter
    missing: Amounts
    missing_members: int = 0


@dataclass(frozen=True, slots=True)
class Unplaced:
    """Why a lease was not placed, and what it lacks."""

    obstacle: Obstacle
    filter: Filter | None = None
    lacks: tuple[Lack, ...] = ()


@dataclass(frozen=True, slots=True)
class Placed:
    """One node a member, in the members' order; `makes_room` are the leases that must go first.

    `held` says that the room is not free yet, only promised.
    """

    nodes: tuple[str, ...]
    makes_room: tuple[str, ...] = ()
    held: bool = False
