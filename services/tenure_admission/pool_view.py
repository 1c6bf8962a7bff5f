"""What admission knows of a pool's nodes: enough to say what can never fit.

Decides only what is certain. A node whose capacity is not known now (its agent is away) could have
any amount, so nothing that might use it is refused; such cases are left to the pool's leader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tenure_core.resources import ResourceVector

_ANSWERS_MAX: Final = 4_096

Question = tuple[tuple[tuple[str, int], ...], tuple[tuple[str, str], ...], bool]


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node and the capacities it has or will have at some time; none when that is not known."""

    id: str
    attributes: Mapping[str, str]
    capacities: tuple[ResourceVector, ...]

    def matches(self, selector: Mapping[str, str]) -> bool:
        """Say whether the node has all the attributes."""
        return all(self.attributes.get(key) == value for key, value in selector.items())

    def slots(self, amounts: ResourceVector) -> int:
        """Return how many slots of these amounts the empty node could ever carry at once."""
        return max((amounts.times_in(capacity) for capacity in self.capacities), default=0)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a lease asks of a pool: `count` slots of `amounts` on nodes with all attributes."""

    amounts: Mapping[str, int]
    count: int
    selector: Mapping[str, str] = field(default_factory=dict)
    spread: bool = False


class AllOpen:
    """Takes no pool to be cordoned."""

    def cordoned(self, pool: str) -> bool:
        """Say no."""
        del pool
        return False


@dataclass(slots=True)
class PoolView:
    """The nodes of one pool at the last look; answers are kept until the next one."""

    nodes: tuple[NodeView, ...]
    _answers: dict[Question, int | None] = field(default_factory=dict)
    _kinds: frozenset[str] | None = None

    @property
    def ids(self) -> frozenset[str]:
        """Return the ids of the nodes."""
        return frozenset(node.id for node in self.nodes)

    @property
    def kinds(self) -> frozenset[str] | None:
        """Return the kinds of resources that any node has; None while a node is not known."""
        if self._kinds is None and self.nodes and all(node.capacities for node in self.nodes):
            vectors = (vector for node in self.nodes for vector in node.capacities)
            self._kinds = frozenset(kind for vector in vectors for kind in vector)
        return self._kinds

    def slots_ever(
        self, amounts: Mapping[str, int], selector: Mapping[str, str], *, spread: bool
    ) -> int | None:
        """Return how many slots the whole pool could ever carry at once; None when not known."""
        question = (tuple(sorted(amounts.items())), tuple(sorted(selector.items())), spread)
        if question not in self._answers:
            if len(self._answers) >= _ANSWERS_MAX:
                self._answers.clear()
            self._answers[question] = self._count(ResourceVector(amounts), selector, spread)
        return self._answers[question]

    def could_carry(self, wanted: Wanted) -> bool | None:
        """Say whether the empty pool could carry a lease, None when that is not known."""
        slots = self.slots_ever(wanted.amounts, wanted.selector, spread=wanted.spread)
        return None if slots is None else slots >= wanted.count

    def _count(
        self, amounts: ResourceVector, selector: Mapping[str, str], spread: bool
    ) -> int | None:
        matching = [node for node in self.nodes if node.matches(selector)]
        if not self.nodes or not all(node.capacities for node in matching):
            return None
        each = (node.slots(amounts) for node in matching)
        return sum(min(1, count) if spread else count for count in each)


def another(
    wanted: Wanted, views: Mapping[str, PoolView], cordoned: Callable[[str], bool]
) -> str | None:
    """Return a pool that could carry a lease which the pool it would be in never could.

    The first by name, those that take leases now before others; None when none surely could.
    """
    able = [name for name, view in sorted(views.items()) if view.could_carry(wanted)]
    return min(able, key=lambda name: (cordoned(name), name), default=None)


def merged(before: PoolView | None, nodes: Iterable[NodeView]) -> PoolView:
    """Return the view after another look: a node seen without capacity keeps what it last had."""
    known = {node.id: node for node in before.nodes} if before else {}
    kept = tuple(
        NodeView(node.id, node.attributes, known[node.id].capacities)
        if not node.capacities and node.id in known
        else node
        for node in nodes
    )
    if before is not None and before.nodes == kept:
        return before
    return PoolView(kept)
