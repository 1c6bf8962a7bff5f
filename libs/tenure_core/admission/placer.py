"""Places one lease after another in one room, and remembers who was claimed for whom."""

from __future__ import annotations

from collections.abc import Hashable

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
        self._failed: dict[Hashable, tuple[int, Unplaced]] = {}

    def place(self, lease: WaitingLease) -> Placed | Unplaced:
        """Place the lease and take its room, or change nothing.

        Without preemption a lease of a shape that has just failed fails as it did, at no cost, as
        long as nothing was given away in between.
        """
        if self._preemption is not None:
            return self._placed(lease)
        mark, failed = self._failed.get(lease.shape, (-1, None))
        if failed is not None and mark == self.room.mark():
            return failed
        found = self._placed(lease)
        if isinstance(found, Unplaced):
            self._failed[lease.shape] = (self.room.mark(), found)
        return found

    def _placed(self, lease: WaitingLease) -> Placed | Unplaced:
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
