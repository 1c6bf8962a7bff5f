"""Which moves between nodes may go on side by side: those that share no node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

Node = TypeVar("Node", str, int)


def rounds(moves: Mapping[int, tuple[Node, Node]]) -> list[dict[int, tuple[Node, Node]]]:
    """Return the moves of slots in rounds, each with all that still fit into it, in order."""
    left = dict(moves)
    found = []
    while left:
        now: dict[int, tuple[Node, Node]] = {}
        busy: set[Node] = set()
        for slot, move in left.items():
            if busy.isdisjoint(move):
                now[slot] = move
                busy.update(move)
        found.append(now)
        left = {slot: move for slot, move in left.items() if slot not in now}
    return found
