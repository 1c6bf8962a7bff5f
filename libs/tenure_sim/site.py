"""Where it is simulated: the nodes of one pool."""

from __future__ import annotations

from dataclasses import dataclass

from tenure_core.planning.snapshot import NodeView
from tenure_core.resources import ResourceVector
from tenure_sim.workload import SLOT


@dataclass(frozen=True, slots=True)
class Site:
    """The nodes, and which kinds a suspended lease does not go on occupying."""

    nodes: tuple[NodeView, ...]
    freed_by_suspending: frozenset[str] = frozenset({"cpu"})

    @classmethod
    def of_processors(cls, count: int, slot: ResourceVector = SLOT) -> Site:
        """Return a site of `count` interchangeable slots, all of them on one node.

        For traces of machines whose nodes are not told apart.
        """
        return cls((NodeView("machine", ((0, slot * count),)),))

    @classmethod
    def of_nodes(cls, count: int, amounts: ResourceVector) -> Site:
        """Return a site of `count` equal nodes."""
        digits = len(str(count))
        return cls(
            tuple(NodeView(f"node-{i:0{digits}}", ((0, amounts),)) for i in range(1, count + 1))
        )

    def slots_of(self, slot: ResourceVector) -> int | None:
        """Return how many slots there are at every instant, None when that changes with time."""
        total = 0
        for node in self.nodes:
            if len(node.capacity) != 1 or node.capacity[0][0] > 0 or not node.schedulable:
                return None
            total += slot.times_in(node.capacity[0][1])
        return total
