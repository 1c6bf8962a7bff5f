"""What a lease that waits for room lays claim to, so that waiting ends and others lose nothing.

A claim names nodes on which the lease would fit if their present work ended, those that lack least
now. On those nodes, and only there, nobody else gets what is claimed; everything else stays open to
everybody. Work on the claimed nodes only drains, so with finite run times the lease gets its turn,
whatever arrives behind it; a lease that could not fit on an empty pool claims nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


def drained(nodes: Sequence[Node]) -> Room:
    """Return the room that the nodes would have if nothing ran on them."""
    return Room(
        Node(
            node.id,
            node.capacity,
            architecture=node.architecture,
            failed_leases=node.failed_leases,
            group_members=node.group_members,
        )
        for node in nodes
    )


def claim_for(
    lease: WaitingLease,
    room: Room,
    empty: Room,
    chooser: Chooser,
    terms: PlacementTerms,
    standing: Claim | None = None,
) -> Claim | None:
    """Return what the lease should wait for, or None when it could never fit.

    `empty` is the drained room of the same nodes; it is left as it was. A `standing` claim of an
    earlier pass is kept while it would still do, so that the lease does not run after nodes that
    happen to look better.
    """
    wanted = requirements(lease)
    if wanted is None:
        return None
    if standing is not None and _still_does(standing, wanted, empty):
        return standing
    mark = empty.mark()
    nodes = _nearest(lease, wanted, room, empty, terms)
    if nodes is None:
        found = Placer(empty, Chooser(chooser.terms), terms).place(lease)
        nodes = _per_requirement(found, wanted) if isinstance(found, Placed) else None
    empty.undo_to(mark)
    if nodes is None:
        return None
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
    empty: Room,
    terms: PlacementTerms,
) -> list[str] | None:
    """Give each requirement the node that lacks least now of those that could take it empty."""
    group = None if lease.wish is None else lease.wish.group
    mark = empty.mark()
    claimed: dict[str, Amounts] = {}
    nodes: list[str] = []
    for requirement in wanted:
        left, _ = not_excluded(empty.nodes, lease, requirement, empty)
        able = [
            node
            for node in left
            if fits(requirement.amounts, empty.free(node.id))
            and _members_fit(empty.members(node.id), requirement, terms)
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
        empty.take(best.id, requirement.amounts, requirement.members, group)
    empty.undo_to(mark)
    return nodes if len(nodes) == len(wanted) else None


def _members_fit(present: int, requirement: Requirement, terms: PlacementTerms) -> bool:
    return terms.members_max is None or present + requirement.members <= terms.members_max


def _still_does(standing: Claim, wanted: list[Requirement], empty: Room) -> bool:
    known = {node.id for node in empty.nodes}
    if not set(standing.amounts) <= known:
        return False
    total: dict[str, int] = plus({}, *standing.amounts.values())
    asked: dict[str, int] = plus({}, *(requirement.amounts for requirement in wanted))
    return total == asked and all(
        fits(amounts, empty.free(node)) for node, amounts in standing.amounts.items()
    )
