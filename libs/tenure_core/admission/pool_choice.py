"""Where a lease may wait that asked for no pool: those that could ever hold it, best first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction

from tenure_core.admission.amounts import added_up
from tenure_core.admission.claims import drained
from tenure_core.admission.nodes import Node
from tenure_core.admission.outcomes import Placed
from tenure_core.admission.placement import PlacementTerms
from tenure_core.admission.placer import Placer
from tenure_core.admission.strategies import Chooser, StrategyTerms
from tenure_core.admission.waiting import WaitingLease


class PoolPolicy(Enum):
    """Which of several pools comes first."""

    AS_LISTED = "AS_LISTED"
    EMPTIEST = "EMPTIEST"
    """Least of what the lease asks for is taken or waited for, relative to what there is."""


@dataclass(frozen=True, slots=True)
class PoolOutlook:
    """A pool: its nodes, and what those who wait in it ask for together."""

    nodes: Sequence[Node]
    waiting: Mapping[str, int] = field(default_factory=dict)
    cordoned: bool = False


def could_ever_fit(lease: WaitingLease, nodes: Sequence[Node], terms: PlacementTerms) -> bool:
    """Say whether the lease would fit on the nodes if nothing ran on them."""
    found = Placer(drained(nodes), Chooser(StrategyTerms()), terms).place(lease)
    return isinstance(found, Placed)


def pools_for(
    lease: WaitingLease,
    allowed: Mapping[str, PoolOutlook],
    policy: PoolPolicy,
    terms: PlacementTerms | None = None,
) -> list[str]:
    """Return the allowed pools that could ever hold the lease, the best first; ties by the list.

    Cordoned pools come last: they take nothing new now, but may again.
    """
    rules = PlacementTerms() if terms is None else terms
    fitting = [name for name, pool in allowed.items() if could_ever_fit(lease, pool.nodes, rules)]

    def key(name: str) -> tuple[bool, Fraction]:
        pool = allowed[name]
        load = _load(lease, pool) if policy is PoolPolicy.EMPTIEST else Fraction(0)
        return pool.cordoned, load

    return sorted(fitting, key=key)


def _load(lease: WaitingLease, pool: PoolOutlook) -> Fraction:
    capacity = added_up(node.capacity for node in pool.nodes)
    taken = added_up([pool.waiting, *(node.taken for node in pool.nodes)])
    return max(
        (
            Fraction(taken.get(kind, 0), capacity[kind])
            for kind, amount in lease.amounts.items()
            if amount > 0 and capacity.get(kind, 0) > 0
        ),
        default=Fraction(0),
    )
