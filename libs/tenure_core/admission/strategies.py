"""Which of several nodes that would all do is taken.

Concentrated fills nodes up, dispersed (and its older name, legacy) evens them out, round robin goes
in turn. Before any of that, nodes that could do something the lease declines are spared: a lease
that says "without gpu" goes where no gpu is free, if it can.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tenure_core.admission.amounts import Amounts
from tenure_core.admission.nodes import Node


class Strategy(Enum):
    """How to choose."""

    CONCENTRATED = "CONCENTRATED"
    DISPERSED = "DISPERSED"
    LEGACY = "LEGACY"
    ROUND_ROBIN = "ROUND_ROBIN"


KIND_PRIORITY_DEFAULT: Final = ("cuda", "rocm", "tpu", "gpu", "cpu", "memory")
"""The kinds that are compared first, scarce ones before plentiful ones."""


@dataclass(frozen=True, slots=True)
class StrategyTerms:
    """How to choose, and which kinds to compare first.

    With `by_family` an entry `cuda` stands for every `cuda.…`; the ancestor compares whole names,
    so its own default list misses the kinds that it is about.
    """

    strategy: Strategy = Strategy.DISPERSED
    kind_priority: tuple[str, ...] = KIND_PRIORITY_DEFAULT
    by_family: bool = True


class Chooser:
    """Chooses among candidates; remembers its turn between choices."""

    def __init__(self, terms: StrategyTerms, turn: int = 0) -> None:
        self.terms = terms
        self.turn = turn

    def choose(
        self, candidates: Sequence[Node], wanted: Amounts, free: Callable[[Node], Amounts]
    ) -> Node:
        """Return the best candidate, the first among equals. There is at least one candidate.

        `free` says what is, or will be, left on a node.
        """
        if self.terms.strategy is Strategy.ROUND_ROBIN:
            chosen = self.ranked(candidates, wanted, free)[0]
            self.turn += 1
            return chosen
        return min(candidates, key=self._key(wanted, free))

    def ranked(
        self, candidates: Sequence[Node], wanted: Amounts, free: Callable[[Node], Amounts]
    ) -> list[Node]:
        """Return the candidates, the best first, without taking a turn."""
        if self.terms.strategy is Strategy.ROUND_ROBIN:
            in_turn = sorted(candidates, key=lambda node: node.id)
            place = self.turn % len(in_turn)
            return in_turn[place:] + in_turn[:place]
        return sorted(candidates, key=self._key(wanted, free))

    def _key(
        self, wanted: Amounts, free: Callable[[Node], Amounts]
    ) -> Callable[[Node], tuple[int, list[tuple[bool, int]]]]:
        kinds = compared_kinds(wanted, self.terms)
        declined = [kind for kind, amount in wanted.items() if amount == 0]
        sign = 1 if self.terms.strategy is Strategy.CONCENTRATED else -1

        def key(node: Node) -> tuple[int, list[tuple[bool, int]]]:
            left_on, capacity = free(node), node.capacity
            left = [(kind not in capacity, sign * left_on.get(kind, 0)) for kind in kinds]
            return (unused_abilities(node, declined) if declined else 0), left

        return key


def unused_abilities(node: Node, declined: Sequence[str]) -> int:
    """Count the kinds that the lease declines (names with zero) and that the node had free."""
    return sum(1 for kind in declined if node.free_at_start.get(kind, 0) > 0)


def compared_kinds(wanted: Amounts, terms: StrategyTerms) -> list[str]:
    """Return the kinds asked for: listed ones in the order of the list, the others by name."""
    first = [
        kind
        for entry in terms.kind_priority
        for kind in sorted(wanted)
        if kind == entry or (terms.by_family and kind.startswith(f"{entry}."))
    ]
    listed = list(dict.fromkeys(first))
    return [*listed, *sorted(kind for kind in wanted if kind not in listed)]
