"""The nodes of a slot table: their capacity over time, and who may be asked for what.

Decides which nodes are candidates for a demand; keeps their profiles. Which reservations there are
is `slots.rows`; what is asked is `slots.table`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from tenure_core.errors import Conflict, NotFound
from tenure_core.planning.snapshot import NodeView, ReservationView
from tenure_core.resources import ResourceVector
from tenure_core.slots.choice import Candidate
from tenure_core.slots.packing import Packing
from tenure_core.slots.profile import NodeProfile
from tenure_core.slots.query import Demand


class NodeEntry:
    """One node of the table: its view, its profile, and what it carries."""

    __slots__ = ("candidate", "displaced", "reservations", "view")

    def __init__(self, view: NodeView, candidate: Candidate) -> None:
        self.view = view
        self.candidate = candidate
        self.reservations = candidate.reservations
        self.displaced: set[str] = set()


class NodeTable:
    """Nodes by id, with what is free on each over time."""

    def __init__(self, nodes: Iterable[NodeView] = ()) -> None:
        self._packing = Packing()
        self._nodes: dict[str, NodeEntry] = {}
        self._rows: dict[str, ReservationView] = {}
        self._by_lease: dict[str, dict[str, ReservationView]] = {}
        self._pools: dict[tuple[tuple[str, str], ...], list[Candidate]] = {}
        self.version = 0
        for node in sorted(nodes, key=lambda view: view.id):
            self.add_node(node)

    def add_node(self, view: NodeView) -> None:
        """Add a node without reservations. Raises Conflict when the id is taken."""
        if view.id in self._nodes:
            raise Conflict("NODE_EXISTS", f"node {view.id} is in the table already", node=view.id)
        for _, vector in view.capacity:
            self._learn(vector)
        candidate = Candidate(view.id, NodeProfile(self._packing.guard))
        self._nodes[view.id] = NodeEntry(view, candidate)
        self._spread_capacity(view, candidate)
        candidate.capacity = self._largest(view)
        self._pools.clear()

    def set_node(self, view: NodeView) -> tuple[ReservationView, ...]:
        """Give a node another capacity timeline, attributes or schedulability, at once.

        Returns the reservations that no longer fit, now marked displaced with their version
        raised: the latest starts go first, then the highest ids, and none that fits goes.
        """
        entry = self._node(view.id)
        for _, vector in view.capacity:
            self._learn(vector)
        profile = NodeProfile(self._packing.guard)
        entry.view = view
        entry.candidate.profile = profile
        entry.candidate.capacity = self._largest(view)
        self._spread_capacity(view, entry.candidate)
        displaced: list[ReservationView] = []
        for row in sorted(entry.reservations.values(), key=lambda r: (r.interval.start, r.id)):
            if row.displaced:
                continue
            packed = self._packing.pack(row.amounts)
            span = row.interval
            if packed is not None and profile.fits(
                span.start, span.end, packed, self._packing.guard
            ):
                profile.shift(span.start, span.end, -packed)
                continue
            marked = replace(row, displaced=True, version=row.version + 1)
            entry.reservations[row.id] = self._rows[row.id] = marked
            self._by_lease[row.lease][row.id] = marked
            entry.displaced.add(row.id)
            displaced.append(marked)
        self._pools.clear()
        self.version += 1
        return tuple(displaced)

    def nodes(self) -> Iterator[NodeView]:
        """Return the nodes, by id."""
        return (self._nodes[node].view for node in sorted(self._nodes))

    def node(self, node: str) -> NodeView:
        """Return a node. Raises NotFound."""
        return self._node(node).view

    def _node(self, node: str) -> NodeEntry:
        entry = self._nodes.get(node)
        if entry is None:
            raise NotFound("NODE_NOT_FOUND", f"there is no node {node}", node=node)
        return entry

    def _learn(self, vector: ResourceVector) -> None:
        new = self._packing.learn(vector)
        if new:
            for entry in self._nodes.values():
                profile = entry.candidate.profile
                profile.free[:] = [free | new for free in profile.free]

    def _spread_capacity(self, view: NodeView, candidate: Candidate) -> None:
        points = view.capacity
        for index, (since, vector) in enumerate(points):
            until = points[index + 1][0] if index + 1 < len(points) else None
            packed = self._packing.pack(vector)
            assert packed is not None, "the kinds of a capacity were learnt"
            candidate.profile.raise_from(since, until, packed)

    def _largest(self, view: NodeView) -> int:
        largest: dict[str, int] = {}
        for _, vector in view.capacity:
            for kind, amount in vector.items():
                largest[kind] = max(amount, largest.get(kind, 0))
        packed = self._packing.pack(ResourceVector(largest))
        assert packed is not None, "the kinds of a capacity were learnt"
        return packed

    def _pool(self, selector: Mapping[str, str], *, whole: bool = False) -> list[Candidate]:
        key = (
            (("", "whole"), *sorted(selector.items())) if whole else tuple(sorted(selector.items()))
        )
        pool = self._pools.get(key)
        if pool is None:
            pool = [
                entry.candidate
                for _, entry in sorted(self._nodes.items())
                if (whole or (entry.view.schedulable and not entry.displaced))
                and all(entry.view.attributes.get(k) == v for k, v in selector.items())
            ]
            self._pools[key] = pool
        return pool

    def _candidates(self, demand: Demand, *, whole: bool = False) -> list[Candidate]:
        pool = self._pool(demand.selector, whole=whole)
        if demand.nodes is None:
            return pool
        return [candidate for candidate in pool if candidate.node in demand.nodes]
