"""What may run on each node: slots whose START was sent and whose end nobody reported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tenure_core.resources import ResourceVector


class Slot(NamedTuple):
    """One slot of one attempt of a lease."""

    lease: str
    attempt: int
    rank: int


class Occupancy:
    """Slots by node and lease, with what each occupies. All is O(1) a slot but the sums."""

    def __init__(self) -> None:
        self._on_node: dict[str, dict[Slot, ResourceVector]] = {}
        self._node_of: dict[Slot, str] = {}
        self._of_lease: dict[str, set[Slot]] = {}

    def enter(self, slot: Slot, node: str, amounts: ResourceVector) -> None:
        """Note that a slot may run on a node from now on, or with other amounts."""
        self.leave(slot)
        self._node_of[slot] = node
        self._of_lease.setdefault(slot.lease, set()).add(slot)
        self._on_node.setdefault(node, {})[slot] = amounts

    def leave(self, slot: Slot) -> str | None:
        """Note that nothing of a slot runs any more; return the node on which it was."""
        node = self._node_of.pop(slot, None)
        if node is not None:
            del self._on_node[node][slot]
            held = self._of_lease[slot.lease]
            held.remove(slot)
            if not held:
                del self._of_lease[slot.lease]
        return node

    def leave_all(self, lease: str) -> list[str]:
        """Note that nothing of a lease runs any more; return the nodes on which it was."""
        slots = sorted(self._of_lease.get(lease, ()))
        return [node for slot in slots if (node := self.leave(slot)) is not None]

    def node_of(self, slot: Slot) -> str | None:
        """Return the node on which a slot may run."""
        return self._node_of.get(slot)

    def leases_on(self, node: str) -> Iterator[str]:
        """Return the leases that may run on a node."""
        return (slot.lease for slot in self._on_node.get(node, ()))

    def beside(self, node: str, lease: str, attempt: int) -> ResourceVector:
        """Return what all but one attempt of a lease occupy on a node."""
        total = ResourceVector()
        for slot, amounts in self._on_node.get(node, {}).items():
            if (slot.lease, slot.attempt) != (lease, attempt):
                total = total + amounts
        return total
