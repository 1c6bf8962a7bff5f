"""Which nodes can take one requirement of a lease at all, and which of those come first.

Exclusions are final for the pass: no end of other work makes an excluded node fit. Preferences
narrow to the best and never to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from tenure_core.admission.amounts import Amounts, added_up
from tenure_core.admission.nodes import Node, Room
from tenure_core.admission.waiting import Direction, WaitingLease


class Filter(Enum):
    """What a node must pass; the first three exclude, the last two depend on what it runs now."""

    ARCHITECTURE = "ARCHITECTURE"
    DESIGNATION = "DESIGNATION"
    GROUP = "GROUP"
    RESOURCES = "RESOURCES"
    MEMBER_LIMIT = "MEMBER_LIMIT"


@dataclass(frozen=True, slots=True)
class Requirement:
    """What must fit on one node together: amounts, architecture, and how many members it is."""

    amounts: Amounts
    architecture: str
    members: int


def requirements(lease: WaitingLease) -> list[Requirement] | None:
    """Return one requirement a member, or one for all when they share a node.

    None when members that share a node want different architectures.
    """
    if lease.many_nodes:
        return [Requirement(m.amounts, m.architecture, 1) for m in lease.members]
    architectures = {member.architecture for member in lease.members}
    if len(architectures) > 1:
        return None
    total = added_up(member.amounts for member in lease.members)
    return [Requirement(total, architectures.pop(), len(lease.members))]


def not_excluded(
    nodes: Sequence[Node], lease: WaitingLease, requirement: Requirement, room: Room
) -> tuple[list[Node], Filter | None]:
    """Return the nodes that pass the exclusions, and the filter that left none, if one did."""
    left = [node for node in nodes if node.architecture == requirement.architecture]
    if not left:
        return [], Filter.ARCHITECTURE
    if lease.designated and lease.designated_strict:
        left = [node for node in left if node.id in lease.designated]
        if not left:
            return [], Filter.DESIGNATION
    left = _strict_group(left, lease, room)
    return left, None if left else Filter.GROUP


def _strict_group(nodes: list[Node], lease: WaitingLease, room: Room) -> list[Node]:
    wish = lease.wish
    if wish is None or not wish.strict or wish.direction is Direction.NONE:
        return nodes
    having = [node for node in nodes if room.in_group(node.id, wish.group) > 0]
    if wish.direction is Direction.PACK:
        return having or nodes
    return [node for node in nodes if node not in having]


def preferred(nodes: Sequence[Node], lease: WaitingLease, room: Room) -> list[Node]:
    """Return the nodes that the lease's preferences leave, one after another.

    Designated ones first, then by the wish of its group, then those where it never failed to start.
    """
    left = list(nodes)
    if lease.designated and not lease.designated_strict:
        left = narrowed(left, lambda node: node.id not in lease.designated)
    wish = lease.wish
    if wish is not None and wish.direction is not Direction.NONE:
        sign = 1 if wish.direction is Direction.SPREAD else -1
        left = narrowed(left, lambda node: sign * room.in_group(node.id, wish.group))
    return [node for node in left if lease.id not in node.failed_leases] or left


def narrowed(nodes: list[Node], key: Callable[[Node], int]) -> list[Node]:
    """Return the nodes whose key is the smallest."""
    if not nodes:
        return nodes
    least = min(key(node) for node in nodes)
    return [node for node in nodes if key(node) == least]
