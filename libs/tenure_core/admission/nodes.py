"""The nodes of one pool as one pass sees them, and what the pass has given away on them so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from tenure_core.admission.amounts import Amounts, minus


@dataclass(frozen=True)
class Node:
    """A node at the start of a pass. `taken` is everything held on it, of whatever kind of hold.

    `members` counts the members of leases that run on it; `failed_leases` are those that failed to
    start here; `group_members` says how many members of which group it has.
    """

    id: str
    capacity: Amounts
    taken: Amounts = field(default_factory=dict)
    architecture: str = ""
    members: int = 0
    failed_leases: frozenset[str] = frozenset()
    group_members: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def free_at_start(self) -> dict[str, int]:
        """Return what was left when the pass began; negative where it is overcommitted."""
        return minus(self.capacity, self.taken)


class Room:
    """What is left on each node, as the pass goes on. Taking is undone in reverse (`undo_to`)."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.nodes = list(nodes)
        self._free = {node.id: dict(node.free_at_start) for node in self.nodes}
        self._members = {node.id: node.members for node in self.nodes}
        self._groups = {node.id: dict(node.group_members) for node in self.nodes}
        self._taken: list[tuple[str, Amounts, int, str | None]] = []

    def largest_capacity(self) -> dict[str, int]:
        """Return the most of each kind that one node has, taken or not."""
        largest: dict[str, int] = {}
        for node in self.nodes:
            for kind, amount in node.capacity.items():
                largest[kind] = max(largest.get(kind, 0), amount)
        return largest

    def free(self, node: str) -> Amounts:
        """Return what is left on the node."""
        return self._free[node]

    def members(self, node: str) -> int:
        """Return how many members the node has."""
        return self._members[node]

    def in_group(self, node: str, group: str) -> int:
        """Return how many members of the group the node has."""
        return self._groups[node].get(group, 0)

    def take(self, node: str, amounts: Amounts, members: int, group: str | None) -> None:
        """Give the amounts to something on the node."""
        self._taken.append((node, amounts, members, group))
        self._apply(node, amounts, members, group, 1)

    def mark(self) -> int:
        """Return a mark that `undo_to` goes back to."""
        return len(self._taken)

    def undo_to(self, mark: int) -> None:
        """Take back everything that was given since the mark."""
        while len(self._taken) > mark:
            self._apply(*self._taken.pop(), -1)

    def _apply(self, node: str, amounts: Amounts, members: int, group: str | None, by: int) -> None:
        free = self._free[node]
        for kind, amount in amounts.items():
            free[kind] = free.get(kind, 0) - by * amount
        self._members[node] += by * members
        if group is not None:
            groups = self._groups[node]
            groups[group] = groups.get(group, 0) + by
