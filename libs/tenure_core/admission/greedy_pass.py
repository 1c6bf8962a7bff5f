"""The pass of the ancestor's first version: pick one, give it a node or skip it, pick the next.

It is kept as the simplest baseline that the other passes are compared with. Nothing is reserved for
what is skipped, so big leases starve behind small ones. Vectors are compared as wholes: of two
nodes neither of which has at least as much of everything, the first stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from tenure_core.admission.amounts import Amounts, added_up, minus, plus
from tenure_core.admission.ordering import dominant_share


class GreedyPolicy(Enum):
    """Who is picked, and which node is taken."""

    FIFO = "FIFO"
    LIFO = "LIFO"
    DRF = "DRF"
    LEAST_OCCUPIED = "LEAST_OCCUPIED"
    """In order of arrival, to the node of which the least is taken."""


class ShareOf(Enum):
    """What an owner's share is made of."""

    ALL_LEASES = "ALL_LEASES"
    """The sum over everything held."""
    LARGEST_LEASE = "LARGEST_LEASE"
    """The largest single lease, so that ten small ones weigh as one: the ancestor's way."""


@dataclass(frozen=True, slots=True)
class GreedyNode:
    """A node and what is taken on it."""

    id: str
    capacity: Amounts
    occupied: Amounts


@dataclass(frozen=True, slots=True)
class GreedyLease:
    """A lease that waits or runs."""

    id: str
    owner: str
    amounts: Amounts


@dataclass(frozen=True, slots=True)
class Decision:
    """The node that a lease was given, or None when it was skipped."""

    lease: str
    node: str | None


def run_greedy_pass(
    policy: GreedyPolicy,
    nodes: Sequence[GreedyNode],
    waiting: Sequence[GreedyLease],
    running: Sequence[GreedyLease],
    *,
    total_capacity: Amounts | None = None,
    charge_nodes: bool = True,
    share_of: ShareOf = ShareOf.ALL_LEASES,
) -> list[Decision]:
    """Decide every waiting lease once, in the order of the policy; ties go by arrival.

    `total_capacity` is the sum over the nodes when not given. With `charge_nodes` unset what is
    given away does not count for later decisions.
    """
    capacity = (
        added_up(node.capacity for node in nodes) if total_capacity is None else total_capacity
    )
    shares = _Shares(capacity, running, share_of)
    occupied = {node.id: node.occupied for node in nodes}
    queue = list(waiting)
    decisions: list[Decision] = []
    while queue:
        lease = queue.pop(_picked(policy, queue, shares))
        fitting = [node for node in nodes if _fits(lease.amounts, node, occupied[node.id])]
        chosen = _assigned(policy, fitting, lease.amounts, occupied) if fitting else None
        decisions.append(Decision(lease.id, None if chosen is None else chosen.id))
        if chosen is not None:
            shares.add(lease)
            if charge_nodes:
                occupied[chosen.id] = plus(occupied[chosen.id], lease.amounts)
    return decisions


class _Shares:
    """Each owner's dominant share as decisions are made."""

    def __init__(
        self, capacity: Amounts, running: Sequence[GreedyLease], share_of: ShareOf
    ) -> None:
        self._capacity = capacity
        self._share_of = share_of
        self._usage: dict[str, dict[str, int]] = {}
        self._share: dict[str, Fraction] = {}
        for lease in running:
            self.add(lease)

    def of(self, owner: str) -> Fraction:
        return self._share.get(owner, Fraction(0))

    def add(self, lease: GreedyLease) -> None:
        owner = lease.owner
        if self._share_of is ShareOf.LARGEST_LEASE:
            one = dominant_share(lease.amounts, self._capacity)
            self._share[owner] = max(self.of(owner), one)
            return
        self._usage[owner] = plus(self._usage.get(owner, {}), lease.amounts)
        self._share[owner] = dominant_share(self._usage[owner], self._capacity)


def _picked(policy: GreedyPolicy, queue: Sequence[GreedyLease], shares: _Shares) -> int:
    if policy is GreedyPolicy.LIFO:
        return len(queue) - 1
    if policy is GreedyPolicy.DRF:
        return min(range(len(queue)), key=lambda place: shares.of(queue[place].owner))
    return 0


def _fits(wanted: Amounts, node: GreedyNode, occupied: Amounts) -> bool:
    """Say whether every kind of either vector is covered: an overcommitted node takes nothing."""
    left = minus(node.capacity, occupied, wanted)
    return all(amount >= 0 for amount in left.values())


def _assigned(
    policy: GreedyPolicy,
    fitting: Sequence[GreedyNode],
    wanted: Amounts,
    occupied: Mapping[str, Amounts],
) -> GreedyNode:
    if policy is GreedyPolicy.LEAST_OCCUPIED:
        return _best(fitting, lambda one, other: _exceeds(occupied[other.id], occupied[one.id]))
    if policy is GreedyPolicy.DRF:
        return _best(fitting, lambda one, other: _exceeds(one.capacity, other.capacity))

    def better(one: GreedyNode, other: GreedyNode) -> bool:
        spared, present = _declined(one, wanted), _declined(other, wanted)
        if spared != present:
            return spared < present
        return _exceeds(one.capacity, other.capacity)

    return _best(fitting, better)


def _best(
    nodes: Sequence[GreedyNode], better: Callable[[GreedyNode, GreedyNode], bool]
) -> GreedyNode:
    best = nodes[0]
    for node in nodes[1:]:
        if better(node, best):
            best = node
    return best


def _declined(node: GreedyNode, wanted: Amounts) -> int:
    """Count the kinds that the node has and the lease does not want, named or not."""
    return sum(
        1 for kind, amount in node.capacity.items() if amount > 0 and wanted.get(kind, 0) == 0
    )


def _exceeds(one: Amounts, other: Amounts) -> bool:
    """Say whether `one` has at least as much of everything and more of something."""
    rest = minus(one, other)
    return any(rest.values()) and all(amount >= 0 for amount in rest.values())
