"""Who makes room for a lease that fits nowhere, and in which order.

Only strictly lower ranks, only inside the scope, only what is running, preemptible and not private,
and only after it ran for a while. Nothing is taken unless the whole lease fits afterwards. Whoever
makes room does so everywhere at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from tenure_core.admission.amounts import Amounts, added_up, minus, units
from tenure_core.admission.waiting import WaitingLease
from tenure_core.timebase import Millis


class PreemptionOrder(Enum):
    """Who goes first among those of one rank."""

    OLDEST = "OLDEST"
    NEWEST = "NEWEST"
    FEWEST_LEASES = "FEWEST_LEASES"
    """Whoever contributes most to what is missing."""
    SMALLEST = "SMALLEST"


class PreemptionScope(Enum):
    """Whose leases may be taken."""

    OWNER = "OWNER"
    PROJECT = "PROJECT"
    DOMAIN = "DOMAIN"
    POOL = "POOL"


@dataclass(frozen=True, slots=True)
class PreemptionTerms:
    """A pool's rules for taking capacity back."""

    order: PreemptionOrder = PreemptionOrder.OLDEST
    scope: PreemptionScope = PreemptionScope.OWNER
    least_run_ms: Millis = 0


@dataclass(frozen=True, slots=True, eq=False)
class Preemptee:
    """A running lease that may have to make room. `started` is None when it never ran."""

    lease: str
    rank: int
    started: Millis | None
    allocations: Mapping[str, Amounts]
    owner: str = ""
    project: str = ""
    domain: str = ""
    preemptible: bool = True
    private: bool = False
    members: Mapping[str, int] = field(default_factory=dict)

    def members_on(self, node: str) -> int:
        """Return how many members it has on the node: one where it holds something, unless said."""
        return self.members.get(node, 1 if node in self.allocations else 0)

    def on(self, node: str) -> Amounts:
        """Return what it holds on the node."""
        return self.allocations.get(node, {})

    @property
    def size(self) -> int:
        """Return the plain sum of everything it holds anywhere."""
        return units(added_up(self.allocations.values()))


@dataclass(frozen=True, slots=True)
class Preemption:
    """The terms of a pool and the leases that they might hit, at one instant."""

    terms: PreemptionTerms
    preemptees: Sequence[Preemptee] = field(default_factory=tuple)
    now: Millis = 0

    def for_lease(self, lease: WaitingLease, claimed: Iterable[str]) -> list[Preemptee]:
        """Return those who may make room for the lease and whom nobody has claimed yet."""
        taken = frozenset(claimed)
        return [
            candidate
            for candidate in self.preemptees
            if candidate.lease not in taken
            and candidate.preemptible
            and not candidate.private
            and candidate.rank < lease.preemption_rank
            and self._ran_long_enough(candidate)
            and _same_scope(self.terms.scope, candidate, lease)
        ]

    def _ran_long_enough(self, candidate: Preemptee) -> bool:
        return candidate.started is None or (
            self.now - candidate.started >= self.terms.least_run_ms
        )


def _same_scope(scope: PreemptionScope, candidate: Preemptee, lease: WaitingLease) -> bool:
    if scope is PreemptionScope.OWNER:
        return candidate.owner == lease.owner
    if scope is PreemptionScope.PROJECT:
        return candidate.project == lease.project
    return scope is PreemptionScope.POOL or candidate.domain == lease.domain


def credit(candidates: Iterable[Preemptee], node: str) -> dict[str, int]:
    """Return what would be free on the node if all candidates were gone."""
    return added_up(candidate.on(node) for candidate in candidates)


def collected(
    candidates: Sequence[Preemptee],
    node: str,
    missing: Amounts,
    order: PreemptionOrder,
    members_over: int = 0,
) -> list[Preemptee]:
    """Return who is taken on the node, in order, until nothing is missing there any more.

    `members_over` is by how many members the node would be over its limit. Lowest rank first, then
    by `order`; those who contribute nothing to what is still missing are
    passed over. Greedy: `without_spare` prunes afterwards.
    """
    chosen: list[Preemptee] = []
    left = dict(missing)
    for candidate in sorted(candidates, key=_key(node, missing, order)):
        if not left and members_over <= 0:
            break
        helps = any(candidate.on(node).get(kind, 0) > 0 for kind in left)
        if not helps and not (members_over > 0 and candidate.members_on(node)):
            continue
        chosen.append(candidate)
        members_over -= candidate.members_on(node)
        rest = minus(left, {kind: candidate.on(node).get(kind, 0) for kind in left})
        left = {kind: amount for kind, amount in rest.items() if amount > 0}
    return chosen


def _key(
    node: str, missing: Amounts, order: PreemptionOrder
) -> Callable[[Preemptee], tuple[int, ...]]:
    def oldest(candidate: Preemptee) -> tuple[int, ...]:
        started = candidate.started
        return (0, 0) if started is None else (1, started)

    def newest(candidate: Preemptee) -> tuple[int, ...]:
        started = candidate.started
        return (0, 0) if started is None else (1, -started)

    def key(candidate: Preemptee) -> tuple[int, ...]:
        if order is PreemptionOrder.NEWEST:
            return (candidate.rank, *newest(candidate))
        if order is PreemptionOrder.FEWEST_LEASES:
            on_node = candidate.on(node)
            contribution = sum(min(on_node.get(kind, 0), n) for kind, n in missing.items())
            return (candidate.rank, -contribution, *oldest(candidate))
        if order is PreemptionOrder.SMALLEST:
            return (candidate.rank, candidate.size, *oldest(candidate))
        return (candidate.rank, *oldest(candidate))

    return key


def without_spare(
    chosen: Sequence[Preemptee], enough: Callable[[Sequence[Preemptee]], bool]
) -> list[Preemptee]:
    """Return `chosen` without those who need not go, sparing the highest ranks first.

    `enough` says whether the lease fits when only these go. What remains is minimal: nobody in it
    can be spared.
    """
    kept = list(chosen)
    for candidate in reversed(chosen):
        others = [entry for entry in kept if entry is not candidate]
        if enough(others):
            kept = others
    return kept
