"""A slot table that is too simple to be wrong: a list of rows, and sums over all of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tenure_core.planning.snapshot import NodeView, ReservationView
from tenure_core.slots.query import Demand


@dataclass
class NaiveSlots:
    """Nodes and rows; every question is answered by looking at every instant that matters."""

    nodes: dict[str, NodeView] = field(default_factory=dict)
    rows: dict[str, ReservationView] = field(default_factory=dict)

    def free(self, node: str, instant: int) -> dict[str, int]:
        free = dict(self.nodes[node].capacity_at(instant))
        for row in self.rows.values():
            if row.node == node and not row.displaced and row.interval.contains(instant):
                for kind, amount in row.amounts.items():
                    free[kind] = free.get(kind, 0) - amount
        return free

    def instants(self, node: str, start: int, end: int) -> list[int]:
        """Return every instant in [start, end) at which what is free may change, and start."""
        points = {start}
        for since, _ in self.nodes[node].capacity:
            points.add(since)
        for row in self.rows.values():
            if row.node == node:
                points |= {row.interval.start, row.interval.end}
        return sorted(point for point in points if start <= point < end)

    def slots(self, node: str, demand: Demand, start: int, end: int) -> int:
        most = 1 if demand.spread else demand.count
        for instant in self.instants(node, start, end):
            free = self.free(node, instant)
            for kind, amount in demand.amounts.items():
                most = min(most, max(0, free.get(kind, 0)) // amount)
        return most

    def candidates(self, demand: Demand) -> list[str]:
        displaced = {row.node for row in self.rows.values() if row.displaced}
        return [
            view.id
            for view in self.nodes.values()
            if view.schedulable
            and view.id not in displaced
            and demand.selector.items() <= view.attributes.items()
        ]

    def fits(self, demand: Demand, start: int, end: int) -> bool:
        nodes = self.candidates(demand)
        return sum(self.slots(node, demand, start, end) for node in nodes) >= demand.count

    def earliest(self, demand: Demand, duration: int, not_before: int, latest: int) -> int | None:
        points = {not_before}
        for node in self.nodes:
            points.update(self.instants(node, not_before, latest + 1))
        for start in sorted(points):
            if self.fits(demand, start, start + duration):
                return start
        return None

    def is_fit(self, demand: Demand, nodes: tuple[str, ...], start: int, end: int) -> bool:
        """Say whether exactly these nodes can take the slots."""
        return (
            len(nodes) == demand.count
            and set(nodes) <= set(self.candidates(demand))
            and all(
                count <= self.slots(node, demand, start, end)
                for node, count in Counter(nodes).items()
            )
        )

    def over_capacity(self) -> bool:
        return any(
            amount < 0
            for node in self.nodes
            for instant in self.instants(node, -1, 10**9)
            for amount in self.free(node, instant).values()
        )
