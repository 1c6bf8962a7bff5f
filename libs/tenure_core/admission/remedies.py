"""The smallest change to a request that would let it start: fewer nodes, shorter, another pool.

Whether a changed request could start is the caller's question to the planner (`could_start`); this
module asks as few of them as it can, and only for changes that an owner can make.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum


class Remedy(Enum):
    """What to change."""

    FEWER_NODES = "FEWER_NODES"
    SHORTER = "SHORTER"
    OTHER_POOL = "OTHER_POOL"


@dataclass(frozen=True, slots=True)
class Terms:
    """What can be changed of a request; `duration_ms` in whole minutes or as asked for."""

    pool: str
    node_count: int
    duration_ms: int


@dataclass(frozen=True, slots=True)
class Suggestion:
    """One change and the terms that follow from it."""

    remedy: Remedy
    terms: Terms


def suggestions(
    asked: Terms,
    pools: Sequence[str],
    could_start: Callable[[Terms], bool],
    *,
    step_ms: int,
    least_ms: int,
) -> list[Suggestion]:
    """Return the smallest change of each sort that would do, none for a sort that does not help.

    Fewer nodes and shorter are searched by halving, since less of either never hurts: at most about
    log2(nodes) + log2(duration / step) questions, and one a pool. Durations are multiples of
    `step_ms`, at least `least_ms`.
    """
    found: list[Suggestion] = []

    def with_nodes(count: int) -> Terms:
        return Terms(asked.pool, count, asked.duration_ms)

    def with_steps(steps: int) -> Terms:
        return Terms(asked.pool, asked.node_count, steps * step_ms)

    nodes = _largest(1, asked.node_count - 1, lambda count: could_start(with_nodes(count)))
    if nodes is not None:
        found.append(Suggestion(Remedy.FEWER_NODES, with_nodes(nodes)))
    shortest = -(-least_ms // step_ms)
    longest = -(-asked.duration_ms // step_ms) - 1
    steps = _largest(shortest, longest, lambda count: could_start(with_steps(count)))
    if steps is not None:
        found.append(Suggestion(Remedy.SHORTER, with_steps(steps)))
    for pool in pools:
        terms = Terms(pool, asked.node_count, asked.duration_ms)
        if pool != asked.pool and could_start(terms):
            found.append(Suggestion(Remedy.OTHER_POOL, terms))
            break
    return found


def _largest(least: int, most: int, holds: Callable[[int], bool]) -> int | None:
    """Return the largest number in least..most for which `holds`, which holds for all below it."""
    if most < least or not holds(least):
        return None
    while least < most:
        middle = (least + most + 1) // 2
        if holds(middle):
            least = middle
        else:
            most = middle - 1
    return least
