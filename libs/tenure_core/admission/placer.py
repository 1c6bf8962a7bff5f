"""Places one lease after another in one room, and remembers who was claimed for whom."""

from __future__ import annotations

from tenure_core.admission.filters import requirements
from tenure_core.admission.nodes import Room
from tenure_core.admission.outcomes import Obstacle, Placed, Unplaced
from tenure_core.admission.placement import Attempt, PlacementTerms
from tenure_core.admission.preemption import Preemptee, Preemption
from tenure_core.admission.strategies import Chooser
from tenure_core.admission.waiting import WaitingLease


class Placer:
    """Places leases in one room, one after another, and remembers who was claimed for whom."""

    def __init__(
        self,
        room: Room,
        chooser: Chooser,
        terms: PlacementTerms,
        preemption: Preemption | None = None,
    ) -> None:
        self.room = room
        self._chooser = chooser
        self._terms = terms
        self._preemption = preemption
        self._claimed: list[Preemptee] = []

    def place(self, lease: WaitingLease) -> Placed | Unplaced:
        """Place the lease and take its room, or change nothing."""
        if not self.room.nodes:
            return Unplaced(Obstacle.NO_NODES)
        wanted = requirements(lease)
        if wanted is None:
            return Unplaced(Obstacle.MIXED_ARCHITECTURES)
        attempt = Attempt(self.room, self._chooser, self._terms, lease, wanted)
        if self._terms.search_steps:
            found = attempt.in_turn() or attempt.searched(self._terms.search_steps)
            if found is not None or self._preemption is None:
                return attempt.outcome(found)
        if self._preemption is None:
            return attempt.outcome(attempt.in_turn())
        candidates = self._preemption.for_lease(lease, (entry.lease for entry in self._claimed))
        base = self._claimed if self._terms.share_claims else []
        found = attempt.in_turn(candidates, base, self._preemption.terms.order)
        self._claimed += attempt.makes_room
        return attempt.outcome(found)
