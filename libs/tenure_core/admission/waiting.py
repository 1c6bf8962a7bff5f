"""A lease that waits, as the rules of one pass see it: who asks, for what, on which terms."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from tenure_core.admission.amounts import Amounts, added_up
from tenure_core.timebase import Millis


@dataclass(frozen=True, slots=True)
class Member:
    """What one member asks for; a kind that is named with zero says "without it"."""

    amounts: Amounts
    architecture: str = ""


class DependencyEnd(Enum):
    """How far the lease that another depends on has come."""

    UNDER_WAY = "UNDER_WAY"
    SUCCEEDED = "SUCCEEDED"
    OTHERWISE = "OTHERWISE"
    """Ended, and its result is not known to be a success: it can never succeed any more."""
    MISSING = "MISSING"


@dataclass(frozen=True, slots=True)
class DependencyState:
    """A lease that must have ended first; `any_end` is content with every way to end."""

    lease: str
    end: DependencyEnd
    any_end: bool = False

    @property
    def satisfied(self) -> bool:
        """Say whether the waiting lease may go."""
        return self.end is DependencyEnd.SUCCEEDED or (
            self.any_end and self.end is DependencyEnd.OTHERWISE
        )

    @property
    def hopeless(self) -> bool:
        """Say whether it can never be satisfied."""
        return not self.satisfied and self.end in (
            DependencyEnd.OTHERWISE,
            DependencyEnd.MISSING,
        )


class Direction(Enum):
    """Whether members of a group seek or avoid one another's nodes."""

    SPREAD = "SPREAD"
    PACK = "PACK"
    NONE = "NONE"


@dataclass(frozen=True, slots=True)
class GroupWish:
    """Where the lease wants to be in relation to others of its group (replicas, endpoints)."""

    group: str
    direction: Direction
    strict: bool = False


@dataclass(frozen=True)
class WaitingLease:
    """A lease in the queue. The order of arrival is the order in which callers list them.

    `many_nodes` allows every member a node of its own; otherwise all share one. `priority` orders
    the queue; `preemption_rank` alone decides who may take whose place. `private` leases (file
    transfer and the like) are counted apart. `not_before` is None where any time will do.
    """

    id: str
    owner: str
    project: str
    domain: str
    members: tuple[Member, ...]
    many_nodes: bool = False
    priority: int = 10
    preemption_rank: int = 0
    private: bool = False
    not_before: Millis | None = None
    dependencies: tuple[DependencyState, ...] = ()
    designated: tuple[str, ...] = ()
    designated_strict: bool = True
    wish: GroupWish | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def amounts(self) -> dict[str, int]:
        """Return the sum over the members."""
        if len(self.members) == 1:
            return dict(self.members[0].amounts)
        return added_up(member.amounts for member in self.members)

    @cached_property
    def shape(self) -> Hashable:
        """Return what alone decides whether the lease fits somewhere: equal shapes fit equally."""
        members = tuple(
            (tuple(sorted(member.amounts.items())), member.architecture) for member in self.members
        )
        designated = self.designated if self.designated_strict else ()
        return (members, self.many_nodes, designated, self.wish)
