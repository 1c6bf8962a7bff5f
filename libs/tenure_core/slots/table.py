"""The slot table: which reservations nodes carry, and what fits beside them.

Answers questions about capacity; knows nothing of queues, quotas or fairness.

Costs, with N nodes and k change points a node: booking and removing O(k); earliest start O(N k)
plus the heap of `slots.search`; choosing nodes at an instant O(N (k + log N)).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tenure_core.policies.placement import HostRanking, HostSelection
from tenure_core.resources import ResourceVector
from tenure_core.slots.choice import choose
from tenure_core.slots.query import Demand, Fit, NodeAvailability, Window
from tenure_core.slots.rows import ReservationTable
from tenure_core.slots.search import (
    Gang,
    earliest_start,
    earliest_together,
    slots_over,
)
from tenure_core.timebase import FOREVER, Interval, Millis


class SlotTable(ReservationTable):
    """Nodes, their capacity over time and their reservations."""

    def fits(self, node: str, interval: Interval, amounts: ResourceVector) -> bool:
        """Say whether `amounts` are free on the node throughout the interval."""
        packed = self._packing.pack(amounts)
        return packed is not None and self._node(node).candidate.profile.fits(
            interval.start, interval.end, packed, self._packing.guard
        )

    def fits_any(self, nodes: Iterable[str], interval: Interval, amounts: ResourceVector) -> bool:
        """Say whether one of the nodes has `amounts` free throughout the interval."""
        packed = self._packing.pack(amounts)
        if packed is None:
            return False
        guard, start, end = self._packing.guard, interval.start, interval.end
        return any(
            self._nodes[node].candidate.profile.fits(start, end, packed, guard)
            for node in nodes
            if node in self._nodes
        )

    def first_fit_any(
        self, nodes: Iterable[str], amounts: ResourceVector, window: Window
    ) -> Millis | None:
        """Return the first instant in the window from which one of the nodes fits one slot."""
        packed = self._packing.pack(amounts)
        if packed is None:
            return None
        profiles = [self._nodes[node].candidate.profile for node in nodes if node in self._nodes]
        gang = Gang(packed, (), self._packing.guard, 1, 1, window.duration_ms)
        found = earliest_start(profiles, gang, not_before=window.not_before, latest=window.latest)
        return None if found is None else found[0]

    def free_over(self, node: str, interval: Interval) -> tuple[tuple[Millis, ResourceVector], ...]:
        """Return what is free on one node, schedulable or not: (from, amounts) ascending."""
        segments = self._node(node).candidate.profile.segments(interval.start, interval.end)
        return tuple((since, self._packing.unpack(free)) for since, free in segments)

    def availability(
        self, interval: Interval, selector: Mapping[str, str] | None = None
    ) -> tuple[NodeAvailability, ...]:
        """Return what is free over the interval on each node that matches, by node id.

        Nodes that are not schedulable are left out: what is free there cannot be had.
        """
        unpack = self._packing.unpack
        return tuple(
            NodeAvailability(
                candidate.node,
                tuple(
                    (since, unpack(free))
                    for since, free in candidate.profile.segments(interval.start, interval.end)
                ),
            )
            for candidate in self._pool(selector or {})
        )

    def earliest_start(
        self,
        demand: Demand,
        window: Window,
        selection: HostSelection | HostRanking = HostSelection.FIRST_FIT,
    ) -> Fit | None:
        """Return the earliest start in the window at which the demand fits, and on which nodes.

        None when it never does. Of the nodes that fit then, `selection` says which are taken.
        """
        packed = self._packing.pack(demand.amounts)
        if packed is None:
            return None
        pool = self._candidates(demand)
        gang = Gang(
            packed,
            self._packing.fields_of(packed),
            self._packing.guard,
            demand.count,
            1 if demand.spread else demand.count,
            window.duration_ms,
        )
        found = earliest_start(
            [candidate.profile for candidate in pool],
            gang,
            not_before=window.not_before,
            latest=window.latest,
        )
        if found is None:
            return None
        start, known = found
        nodes = choose(
            pool,
            self._packing,
            packed,
            window.at(start),
            count=demand.count,
            spread=demand.spread,
            turn=demand.turn,
            selection=selection,
            known=known,
        )
        assert not isinstance(nodes, int), "what was found to fit fits"
        return Fit(start, nodes)

    def fit_at(
        self,
        demand: Demand,
        interval: Interval,
        selection: HostSelection | HostRanking = HostSelection.FIRST_FIT,
    ) -> Fit | None:
        """Return the nodes that the demand takes over exactly this interval, None if none fit."""
        found = self.fit_or_slots(demand, interval, selection)
        return None if isinstance(found, int) else found

    def fit_or_slots(
        self,
        demand: Demand,
        interval: Interval,
        selection: HostSelection | HostRanking = HostSelection.FIRST_FIT,
    ) -> Fit | int:
        """Return the nodes that the demand takes, or how many of its slots fit if not all do."""
        packed = self._packing.pack(demand.amounts)
        if packed is None:
            return 0
        found = choose(
            self._candidates(demand),
            self._packing,
            packed,
            interval,
            count=demand.count,
            spread=demand.spread,
            turn=demand.turn,
            selection=selection,
        )
        return found if isinstance(found, int) else Fit(interval.start, found)

    def slots_on(self, nodes: Iterable[str], demand: Demand, interval: Interval) -> int:
        """Return how many slots of the demand the nodes named fit throughout the interval."""
        packed = self._packing.pack(demand.amounts)
        if packed is None:
            return 0
        most = 1 if demand.spread else demand.count
        guard, fields = self._packing.guard, self._packing.fields_of(packed)
        return sum(
            slots_over(
                self._nodes[node].candidate.profile,
                packed,
                guard,
                fields,
                interval.start,
                interval.end,
                most,
            )[0]
            for node in nodes
            if node in self._nodes
        )

    def slots_then(self, demand: Demand, then: Demand, interval: Interval) -> dict[str, int]:
        """Return for each node how many slots fit over the interval and, as `then`, ever after.

        In the order of the nodes' ids, without those that fit none.
        """
        found: dict[str, int] = {}
        packed, later = self._packing.pack(demand.amounts), self._packing.pack(then.amounts)
        if packed is None or later is None:
            return found
        guard = self._packing.guard
        most = 1 if demand.spread else demand.count
        parts = (
            (packed, self._packing.fields_of(packed), interval.start, interval.end),
            (later, self._packing.fields_of(later), interval.end, FOREVER),
        )
        for candidate in self._candidates(demand):
            slots = most
            for amounts, fields, start, end in parts:
                if slots:
                    profile = candidate.profile
                    slots, _ = slots_over(profile, amounts, guard, fields, start, end, slots)
            if slots:
                found[candidate.node] = slots
        return found

    def changes(self, demand: Demand, after: Millis, before: Millis) -> list[Millis]:
        """Return when, between two instants, what is free changes on a node that may be used."""
        return sorted(
            {
                at
                for candidate in self._candidates(demand)
                for at in candidate.profile.between(after, before)
            }
        )

    def earliest_on(
        self, slots: Mapping[str, int], amounts: ResourceVector, window: Window
    ) -> Millis | None:
        """Return the earliest start at which each node named fits its number of slots at once."""
        packed = self._packing.pack(amounts)
        if packed is None:
            return None
        return earliest_together(
            [(self._node(node).candidate.profile, packed * n) for node, n in sorted(slots.items())],
            self._packing.guard,
            duration=window.duration_ms,
            not_before=window.not_before,
            latest=window.latest,
        )

    def could_ever_fit(self, demand: Demand) -> bool:
        """Say whether the demand fits the largest capacities that its nodes have at any time."""
        packed = self._packing.pack(demand.amounts)
        if packed is None:
            return False
        most = 1 if demand.spread else demand.count
        slots = 0
        for candidate in self._candidates(demand, whole=True):
            slots += self._packing.times(candidate.capacity, packed, most)
            if slots >= demand.count:
                return True
        return False
