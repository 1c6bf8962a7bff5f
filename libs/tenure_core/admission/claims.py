"""What a lease that waits for room lays claim to, so that waiting ends and others lose nothing.

A claim names nodes on which the lease would fit if their present work ended, those that lack least
now. On those nodes, and only there, nobody else gets what is claimed; everything else stays open to
everybody. Work on the claimed nodes only drains, so with finite run times the lease gets its turn,
whatever arrives behind it; a lease that could not fit on an empty pool claims nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tenure_core.admission.amounts import Amounts, fits, minus, plus, relative, shortage
from tenure_core.admission.filters import Requirement, not_excluded, requirements
from tenure_core.admission.nodes import Node, Room
from tenure_core.admission.outcomes import Placed
from tenure_core.admission.placement import PlacementTerms
from tenure_core.admission.placer import Placer
from tenure_core.admission.strategies import Chooser
from tenure_core.admission.waiting import WaitingLease


@dataclass(frozen=True, slots=True)
class Claim:
    """Amounts and members by node that are kept for one waiting lease."""

    lease: str
    amounts: Mapping[str, Amounts] = field(default_factory=dict)
    members: Mapping[str, int] = field(default_factory=dict)


def claim_for(
    lease: WaitingLease,
    room: Room,
    chooser: Chooser,
    terms: PlacementTerms,
    standing: Claim | None = None,
) -> Claim | None:
    """Return what the lease should wait for, or None when it could never fit.

    A `standing` claim of an earlier pass is kept while it would still do, so that the lease does
    not run after nodes that happen to look better.
    """
    wanted = requirements(lease)
    if wanted is None:
        return None
    drained = Room(_drained(room.nodes))
    if standing is not None and _still_does(standing, wanted, drained):
        return standing
    nodes = _nearest(lease, wanted, room, drained, terms)
    if nodes is None:
        empty = Placer(Room(_drained(room.nodes)), Chooser(chooser.terms), terms)
        found = empty.place(lease)
        if not isinstance(found, Placed):
            return None
        nodes = _per_requirement(found, wanted)
    amounts: dict[str, Amounts] = {}
    members: dict[str, int] = {}
    for node, requirement in zip(nodes, wanted, strict=True):
        amounts[node] = plus(amounts.get(node, {}), requirement.amounts)
        members[node] = members.get(node, 0) + requirement.members
    return Claim(lease.id, amounts, members)


def keep(claim: Claim, room: Room) -> None:
    """Take what is claimed out of the room, as far as it is there, for the rest of the pass.

    Of a kind of which less is free than claimed nothing is left; no kind goes below what it was.
    """
    for node, amounts in claim.amounts.items():
        free = room.free(node)
        kept = {kind: min(n, max(0, free.get(kind, 0))) for kind, n in amounts.items()}
        room.take(node, kept, claim.members.get(node, 0), None)


def _drained(nodes: list[Node]) -> list[Node]:
    return [
        Node(
            node.id,
            node.capacity,
            architecture=node.architecture,
            failed_leases=node.failed_leases,
            group_members=node.group_members,
        )
        for node in nodes
    ]


def _per_requirement(found: Placed, wanted: list[Requirement]) -> list[str]:
    nodes, place = [], 0
    for requirement in wanted:
        nodes.append(found.nodes[place])
        place += requirement.members
    return nodes


def _nearest(
    lease: WaitingLease,
    wanted: list[Requirement],
    room: Room,
    drained: Room,
    terms: PlacementTerms,
) -> list[str] | None:
    """Give each requirement the node that lacks least now of those that could take it drained."""
    group = None if lease.wish is None else lease.wish.group
    mark = drained.mark()
    claimed: dict[str, Amounts] = {}
    nodes: list[str] = []
    for requirement in wanted:
        left, _ = not_excluded(drained.nodes, lease, requirement, drained)
        able = [
            node
            for node in left
            if fits(requirement.amounts, drained.free(node.id))
            and _members_fit(drained.members(node.id), requirement, terms)
        ]
        if not able:
            break
        best = min(
            able,
            key=lambda node: relative(
                shortage(
                    requirement.amounts,
                    minus(room.free(node.id), claimed.get(node.id, {})),
                ),
                node.capacity,
            ),
        )
        nodes.append(best.id)
        claimed[best.id] = plus(claimed.get(best.id, {}), requirement.amounts)
        drained.take(best.id, requirement.amounts, requirement.members, group)
    drained.undo_to(mark)
    return nodes if len(nodes) == len(wanted) else None


def _members_fit(present: int, requirement: Requirement, terms: PlacementTerms) -> bool:
    return terms.members_max is None or present + requirement.members <= terms.members_max


def _still_does(standing: Claim, wanted: list[Requirement], drained: Room) -> bool:
    known = {node.id for node in drained.nodes}
    if not set(standing.amounts) <= known:
        return False
    total: dict[str, int] = plus({}, *standing.amounts.values())
    asked: dict[str, int] = plus({}, *(requirement.amounts for requirement in wanted))
    return total == asked and all(
        fits(amounts, drained.free(node)) for node, amounts in standing.amounts.items()
    )
