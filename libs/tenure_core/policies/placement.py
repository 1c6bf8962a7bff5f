"""Which of the nodes that fit are taken first."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol, runtime_checkable

from tenure_core.timebase import Interval, Millis


class HostSelection(Enum):
    """The order in which nodes that fit are filled; ties go by node id.

    These three are the ones that the search of the slot table knows by heart; any other order is a
    `HostRanking`.
    """

    FIRST_FIT = "FIRST_FIT"
    """By node id."""
    BEST_FIT = "BEST_FIT"
    """The node with the least free share of its capacity at the start: packs."""
    WORST_FIT = "WORST_FIT"
    """The node with the largest free share of its capacity at the start: spreads."""


@dataclass(frozen=True, slots=True)
class NodeFit:
    """A node that has room for some slots of a lease throughout `interval`, as a ranking sees it.

    `place` is where the node stands among the `places` candidates, by id from 0. `turn` is the
    lease's number in the order of arrival. `free_permille` is the mean share of its capacity that
    is free at the start, over the kinds asked for. `leases` is how many leases hold something of
    it at the start, `changes` when what is free on it changes next (`timebase.FOREVER` for never).
    """

    node: str
    place: int
    places: int
    slots: int
    turn: int
    interval: Interval
    free_permille: int
    leases: int
    changes: Millis


@runtime_checkable
class HostRanking(Protocol):
    """An order of one's own among the nodes that fit."""

    @property
    def in_turn(self) -> bool:
        """Say whether nodes take one slot each in turn, or each is filled before the next."""
        ...

    def key(self, fit: NodeFit) -> tuple[int, ...]:
        """Return the sort key of a node, lowest first; ties go by node id."""
        ...


@dataclass(frozen=True, slots=True)
class RoundRobin:
    """Each lease begins one node further than the one that arrived before it."""

    in_turn: bool = True

    def key(self, fit: NodeFit) -> tuple[int, ...]:
        """Return how far the node is from the one whose turn it is."""
        return ((fit.place - fit.turn) % fit.places,)


_CROWDED: Final = 4


@dataclass(frozen=True, slots=True)
class Greedy:
    """The ancestor's: nodes with few leases first, and those on which nothing changes soon.

    The score has two parts for how far the node is from four leases, and one for which part of the
    time asked for passes before anything changes there. (A fourth part, for capacity, was always
    the same.)
    """

    in_turn: bool = False

    def key(self, fit: NodeFit) -> tuple[int, ...]:
        """Return the negated score, in parts of a thousand of its three parts."""
        calm = min(fit.changes - fit.interval.start, fit.interval.duration_ms)
        lonely = 2000 * (_CROWDED - min(_CROWDED, fit.leases)) // _CROWDED
        return (-(lonely + 1000 * calm // fit.interval.duration_ms),)
