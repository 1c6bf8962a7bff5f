"""Finds nodes for one lease, all of its members or none, and says what is missing where it cannot.

Requirements are placed one after another, each by the strategy among the nodes that can take it.
When that fails although the lease might fit, a bounded search tries other nodes, the largest
requirement first (`search_steps`; 0 leaves it at the first try, as the ancestor does).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from tenure_core.admission.amounts import Amounts, fits, plus, relative, shortage, units
from tenure_core.admission.filters import (
    Filter,
    Requirement,
    narrowed,
    not_excluded,
    preferred,
)
from tenure_core.admission.nodes import Node, Room
from tenure_core.admission.outcomes import Lack, Obstacle, Placed, Unplaced
from tenure_core.admission.preemption import (
    Preemptee,
    PreemptionOrder,
    collected,
    credit,
    without_spare,
)
from tenure_core.admission.strategies import Chooser
from tenure_core.admission.waiting import WaitingLease


@dataclass(frozen=True, slots=True)
class PlacementTerms:
    """How leases are placed. The defaults are ours; the ancestor's values are in `passes`.

    `members_max` limits the members on one node; `all_members_count` compares all members of a
    requirement with it, not only the first. `relative_shortage` compares shortages without
    dimension instead of adding cores to bytes. `share_claims` lets a later lease use what is left
    over of those who make room for an earlier one; `spare_needless` prunes them; `credit_members`
    counts the members that they free, not only the amounts.
    """

    members_max: int | None = None
    all_members_count: bool = True
    relative_shortage: bool = True
    search_steps: int = 2_000
    share_claims: bool = True
    spare_needless: bool = True
    credit_members: bool = True


class Attempt:
    """The tries to place one lease: after a success its room is taken, else nothing changed."""

    def __init__(
        self,
        room: Room,
        chooser: Chooser,
        terms: PlacementTerms,
        lease: WaitingLease,
        wanted: Sequence[Requirement],
    ) -> None:
        self._room = room
        self._chooser = chooser
        self._terms = terms
        self._lease = lease
        self._wanted = wanted
        self._group = None if lease.wish is None else lease.wish.group
        self.makes_room: list[Preemptee] = []
        self._lacks: list[Lack] = []
        self._incompatible: Filter | None = None
        self._promised = False

    def outcome(self, found: list[str] | None) -> Placed | Unplaced:
        """Return what the last try came to; `found` is one node a requirement, or None."""
        if found is not None:
            per_member = [
                node
                for node, requirement in zip(found, self._wanted, strict=True)
                for _ in range(requirement.members)
            ]
            names = tuple(entry.lease for entry in self.makes_room)
            return Placed(tuple(per_member), names, held=self._promised)
        if self._incompatible is not None:
            return Unplaced(Obstacle.INCOMPATIBLE, self._incompatible)
        return Unplaced(Obstacle.EXHAUSTED, lacks=tuple(self._lacks))

    def in_turn(
        self,
        candidates: Sequence[Preemptee] | None = None,
        claimed: Sequence[Preemptee] = (),
        order: PreemptionOrder = PreemptionOrder.OLDEST,
    ) -> list[str] | None:
        """Place one requirement after another; with candidates, let them make room."""
        mark, turn = self._room.mark(), self._chooser.turn
        self.makes_room, self._lacks, self._incompatible = [], [], None
        self._promised = False
        before: dict[str, dict[str, int]] = {}
        if candidates is not None:
            before = {node.id: dict(self._room.free(node.id)) for node in self._room.nodes}
        nodes: list[str] = []
        for index, requirement in enumerate(self._wanted):
            node = self._place_one(index, requirement, candidates, claimed, order)
            if self._incompatible is not None:
                break
            if node is not None:
                nodes.append(node.id)
                self._take(node, requirement)
        if len(nodes) == len(self._wanted):
            self._settle(before, nodes, claimed)
            return nodes
        self._room.undo_to(mark)
        self._chooser.turn = turn
        self.makes_room = []
        return None

    def _settle(
        self, before: dict[str, dict[str, int]], nodes: list[str], claimed: Sequence[Preemptee]
    ) -> None:
        if not (self.makes_room and self._terms.spare_needless):
            return
        taken: dict[str, Amounts] = {}
        for node, requirement in zip(nodes, self._wanted, strict=True):
            taken[node] = plus(taken.get(node, {}), requirement.amounts)

        def enough(others: Sequence[Preemptee]) -> bool:
            gone = [*claimed, *others]
            return all(
                fits(amounts, plus(before[node], credit(gone, node)))
                and self._members_over(node, 0, gone) <= 0
                for node, amounts in taken.items()
            )

        self.makes_room = without_spare(self.makes_room, enough)

    def searched(self, steps: int) -> list[str] | None:
        """Look for any assignment, the largest requirement first, for at most `steps` tries."""
        if len(self._wanted) < 2 or self._incompatible is not None or not self._each_fits():
            return None
        capacity = self._room.largest_capacity()
        order = sorted(
            range(len(self._wanted)),
            key=lambda index: -relative(self._wanted[index].amounts, capacity),
        )
        nodes: list[str] = [""] * len(self._wanted)
        self._steps = steps
        return nodes if self._assign(order, 0, nodes) else None

    def _each_fits(self) -> bool:
        """Say whether every requirement by itself fits somewhere; otherwise no search can help."""
        for requirement in self._wanted:
            nodes, _ = not_excluded(self._room.nodes, self._lease, requirement, self._room)
            if not any(self._able(node, requirement, self._free(node)) for node in nodes):
                return False
        return True

    def _assign(self, order: Sequence[int], depth: int, nodes: list[str]) -> bool:
        if depth == len(order):
            return True
        requirement = self._wanted[order[depth]]
        left, _ = not_excluded(self._room.nodes, self._lease, requirement, self._room)
        able = [node for node in left if self._able(node, requirement, self._free(node))]
        if not able:
            return False
        for node in self._chooser.ranked(able, requirement.amounts, self._free):
            if self._steps <= 0:
                return False
            self._steps -= 1
            mark = self._room.mark()
            self._take(node, requirement)
            nodes[order[depth]] = node.id
            if self._assign(order, depth + 1, nodes):
                return True
            self._room.undo_to(mark)
        return False

    def _take(self, node: Node, requirement: Requirement) -> None:
        self._room.take(node.id, requirement.amounts, requirement.members, self._group)

    def _free(self, node: Node) -> Amounts:
        """Return what is free for this lease, with what was freed for its earlier members."""
        free = self._room.free(node.id)
        return plus(free, credit(self.makes_room, node.id)) if self.makes_room else free

    def _place_one(
        self,
        index: int,
        requirement: Requirement,
        candidates: Sequence[Preemptee] | None,
        claimed: Sequence[Preemptee],
        order: PreemptionOrder,
    ) -> Node | None:
        nodes, culprit = not_excluded(self._room.nodes, self._lease, requirement, self._room)
        if culprit is not None:
            self._incompatible = culprit
            return None
        able = [node for node in nodes if self._able(node, requirement, self._free(node))]
        if able:
            best = preferred(able, self._lease, self._room)
            return self._chooser.choose(best, requirement.amounts, self._free)
        if candidates is None:
            self._lacks.append(self._lack(index, requirement, nodes, []))
            return None
        return self._by_preemption(index, requirement, nodes, candidates, claimed, order)

    def _by_preemption(
        self,
        index: int,
        requirement: Requirement,
        nodes: Sequence[Node],
        candidates: Sequence[Preemptee],
        claimed: Sequence[Preemptee],
        order: PreemptionOrder,
    ) -> Node | None:
        unclaimed = [entry for entry in candidates if entry not in self.makes_room]
        credited = [*unclaimed, *claimed]

        def with_credit(node: Node) -> Amounts:
            return plus(self._free(node), credit(credited, node.id))

        able = [
            node for node in nodes if self._able(node, requirement, with_credit(node), credited)
        ]
        if not able:
            self._lacks.append(self._lack(index, requirement, nodes, credited))
            return None
        goes: dict[str, list[Preemptee]] = {}
        for node in able:
            free = plus(self._free(node), credit(claimed, node.id))
            missing = shortage(requirement.amounts, free)
            full = self._members_over(
                node.id, self._more(requirement), [*claimed, *self.makes_room]
            )
            goes[node.id] = collected(unclaimed, node.id, missing, order, full)
        best = preferred(able, self._lease, self._room)
        if order is PreemptionOrder.FEWEST_LEASES:
            best = narrowed(best, lambda node: len(goes[node.id]))
        elif order is PreemptionOrder.SMALLEST:
            best = narrowed(best, lambda node: sum(entry.size for entry in goes[node.id]))
        chosen = self._chooser.choose(best, requirement.amounts, with_credit)
        self.makes_room += goes[chosen.id]
        self._promised = True
        return chosen

    def _able(
        self,
        node: Node,
        requirement: Requirement,
        free: Amounts,
        gone: Sequence[Preemptee] = (),
    ) -> bool:
        if not fits(requirement.amounts, free):
            return False
        if self._terms.members_max is None:
            return True
        leaving = [*gone, *self.makes_room]
        return self._members_over(node.id, self._more(requirement), leaving) <= 0

    def _more(self, requirement: Requirement) -> int:
        return requirement.members if self._terms.all_members_count else 1

    def _members_over(self, node: str, more: int, gone: Sequence[Preemptee]) -> int:
        """Return by how many members the node would be over its limit."""
        most = self._terms.members_max
        if most is None:
            return 0
        freed = 0
        if self._terms.credit_members:
            freed = sum(entry.members_on(node) for entry in set(gone))
        return self._room.members(node) + more - freed - most

    def _lack(
        self,
        index: int,
        requirement: Requirement,
        nodes: Sequence[Node],
        credited: Sequence[Preemptee],
    ) -> Lack:
        missing = {
            node.id: shortage(
                requirement.amounts, plus(self._free(node), credit(credited, node.id))
            )
            for node in nodes
        }
        big_enough = [node for node in nodes if not missing[node.id]]
        if big_enough:
            more, leaving = self._more(requirement), [*credited, *self.makes_room]
            fewest = min(self._members_over(node.id, more, leaving) for node in big_enough)
            return Lack(index, Filter.MEMBER_LIMIT, {}, fewest)
        nearest = min(nodes, key=lambda node: self._measure(missing[node.id], node))
        return Lack(index, Filter.RESOURCES, missing[nearest.id])

    def _measure(self, missing: Amounts, node: Node) -> int | Fraction:
        if self._terms.relative_shortage:
            return relative(missing, node.capacity)
        return units(missing)
