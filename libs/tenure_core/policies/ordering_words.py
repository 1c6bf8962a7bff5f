"""The words of which an ordering is made: each sorts, and hands on what it finds equal.

Dominant resource fairness (Ghodsi et al., NSDI 2011) serves whoever's largest part of any kind is
smallest, and counts what it gives as it gives it. Shares are compared as whole numbers over one
common denominator, so equal ones are equal. Fair share sorts by a factor made of what was used in
the past (`tenure_core.admission.fair_share`); somebody without history goes first.
"""

from __future__ import annotations

import heapq
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import groupby
from typing import Final, Protocol, runtime_checkable

from tenure_core.planning.snapshot import LeaseView
from tenure_core.resources import ResourceVector

By = Callable[[LeaseView], str]
Then = Callable[[list[LeaseView]], list[LeaseView]]
Key = tuple[int | str | Decimal, ...]

SUBJECTS: Final[Mapping[str, By]] = {
    "owner": lambda lease: lease.spec.owner,
    "project": lambda lease: lease.spec.project,
}
NEWCOMER: Final = Decimal(1)


@dataclass(slots=True)
class Held:
    """What of a pool is held, counted on while the queue is arranged: made anew for each time.

    `running` are the leases that hold capacity now, `factors` the fair-share factors by subject
    (`owner`, `project`) and name.
    """

    running: list[LeaseView] = field(default_factory=list)
    capacity: ResourceVector = field(default_factory=ResourceVector)
    factors: Mapping[str, Mapping[str, Decimal]] = field(default_factory=dict)
    _shares: dict[str, Shares] = field(default_factory=dict)

    def shares(self, by: str) -> Shares:
        """Return what each owner or project has, to be counted on."""
        if by not in self._shares:
            self._shares[by] = Shares(SUBJECTS[by], self.capacity, self.running)
        return self._shares[by]


class Shares:
    """The dominant share of each subject, as a number over a denominator that all have."""

    def __init__(self, of: By, capacity: ResourceVector, running: Iterable[LeaseView]) -> None:
        whole = math.lcm(*(amount for amount in capacity.values() if amount > 0))
        self._of = of
        self._per_unit = {kind: whole // most for kind, most in capacity.items() if most > 0}
        self._parts: dict[str, dict[str, int]] = {}
        for lease in running:
            self.take(lease)

    def take(self, lease: LeaseView) -> None:
        """Count what one lease takes; kinds of which there is none do not count."""
        parts = self._parts.setdefault(self._of(lease), {})
        for kind, amount in lease.spec.amounts.items():
            per_unit = self._per_unit.get(kind, 0)
            parts[kind] = parts.get(kind, 0) + amount * lease.spec.node_count * per_unit

    def dominant(self, name: str) -> int:
        """Return the largest part of any kind that a subject has."""
        return max(self._parts.get(name, {}).values(), default=0)


@runtime_checkable
class Word(Protocol):
    """One word of an ordering; `text` names it, `why` says what puts others before."""

    @property
    def text(self) -> str:
        """Return how the queue goes, for people."""
        ...

    @property
    def why(self) -> str:
        """Return who is before a lease because of this word, for people."""
        ...

    def key(self, lease: LeaseView, held: Held) -> Key:
        """Return what the word tells leases apart by."""
        ...

    def arranged(self, leases: list[LeaseView], held: Held, then: Then) -> list[LeaseView]:
        """Return leases that came in this order sorted; `then` arranges those found equal."""
        ...


class SortingWord(ABC):
    """A word that sorts by its key; `text` and `why` are left to it."""

    __slots__ = ()

    @abstractmethod
    def key(self, lease: LeaseView, held: Held) -> Key:
        """Return the sort key, lowest first."""

    def arranged(self, leases: list[LeaseView], held: Held, then: Then) -> list[LeaseView]:
        """Sort by the key, and let `then` arrange equals."""

        def key(lease: LeaseView) -> Key:
            return self.key(lease, held)

        found: list[LeaseView] = []
        for _, equals in groupby(sorted(leases, key=key), key=key):
            found += then(list(equals))
        return found


@dataclass(frozen=True, slots=True)
class NewestFirst(SortingWord):
    """LIFO."""

    text: str = "the newest first"
    why: str = "that came later"

    def key(self, lease: LeaseView, held: Held) -> Key:  # noqa: ARG002  # the port's
        """Return the negated arrival."""
        return (-lease.arrival,)


@dataclass(frozen=True, slots=True)
class ShortestFirst(SortingWord):
    """By the remaining time."""

    text: str = "the shortest first"
    why: str = "that are shorter"

    def key(self, lease: LeaseView, held: Held) -> Key:  # noqa: ARG002  # the port's
        """Return the remaining time."""
        return (lease.remaining_ms,)


@dataclass(frozen=True, slots=True)
class HighestPriority(SortingWord):
    """By priority, the highest first; priorities of one class, `width` apart, are equal."""

    width: int = 1

    @property
    def text(self) -> str:
        """Return how the queue goes."""
        return "by priority" if self.width == 1 else f"by classes of {self.width} priorities"

    @property
    def why(self) -> str:
        """Return who is before."""
        return "of higher priority" if self.width == 1 else "of a higher class of priority"

    def key(self, lease: LeaseView, held: Held) -> Key:  # noqa: ARG002  # the port's
        """Return the negated class."""
        return (-(lease.spec.priority // self.width),)


@dataclass(frozen=True, slots=True)
class FairShare(SortingWord):
    """By what owners or projects used in the past, decayed: the least first."""

    by: str = "owner"
    weights: Mapping[str, int] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Return how the queue goes."""
        return f"by fair share of each {self.by}"

    @property
    def why(self) -> str:
        """Return who is before."""
        return f"whose {self.by} used less of its share"

    def key(self, lease: LeaseView, held: Held) -> Key:
        """Return the negated factor."""
        return (-held.factors.get(self.by, {}).get(SUBJECTS[self.by](lease), NEWCOMER),)


@dataclass(frozen=True, slots=True)
class DominantShare:
    """By the dominant share that owners or projects have, over their weight: the least first."""

    by: str = "owner"
    weights: Mapping[str, int] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Return how the queue goes."""
        return f"by dominant share of each {self.by}"

    @property
    def why(self) -> str:
        """Return who is before."""
        return f"whose {self.by} has a smaller share"

    def key(self, lease: LeaseView, held: Held) -> Key:  # noqa: ARG002  # the port's
        """Return the owner or project: shares change while they are given."""
        return (SUBJECTS[self.by](lease),)

    def arranged(self, leases: list[LeaseView], held: Held, then: Then) -> list[LeaseView]:
        """Serve whoever has least, one lease at a time; `then` arranges the leases of one."""
        shares, of = held.shares(self.by), SUBJECTS[self.by]
        queues: dict[str, list[LeaseView]] = {}
        for lease in leases:
            queues.setdefault(of(lease), []).append(lease)
        ordered = {name: then(queue) for name, queue in queues.items()}
        common = math.lcm(*(self.weights.get(name, 1) for name in queues))

        def entry(name: str, served: int) -> tuple[int, int, str, int]:
            share = shares.dominant(name) * (common // self.weights.get(name, 1))
            return share, ordered[name][served].arrival, name, served

        next_up = [entry(name, 0) for name in queues]
        heapq.heapify(next_up)
        found: list[LeaseView] = []
        while next_up:
            _, _, name, served = next_up[0]
            lease = ordered[name][served]
            found.append(lease)
            shares.take(lease)
            if served + 1 < len(ordered[name]):
                heapq.heapreplace(next_up, entry(name, served + 1))
            else:
                heapq.heappop(next_up)
        return found


Offered = Callable[[str], Word | None]
"""Looks among the words that installed packages offer."""

WORDS: Final = ("fifo", "lifo", "shortest", "priority", "priority:WIDTH", "drf", "drf:project",
                "fair-share", "fair-share:project")  # fmt: skip
WIDTH_MAX: Final = 1_000_000


def word_of(text: str, weights: Mapping[str, int], offered: Offered) -> Word:
    """Return the word that a text names. Raises ValueError with a sentence on what is right."""
    name, colon, argument = text.partition(":")
    by = argument if colon else "owner"
    if name == "lifo" and not colon:
        return NewestFirst()
    if name == "shortest" and not colon:
        return ShortestFirst()
    if name == "priority" and not colon:
        return HighestPriority()
    if name == "priority" and argument.isdigit() and 1 <= int(argument) <= WIDTH_MAX:
        return HighestPriority(int(argument))
    if name == "drf" and by in SUBJECTS:
        return DominantShare(by, weights)
    if name == "fair-share" and by in SUBJECTS:
        return FairShare(by, weights)
    found = offered(text)
    if found is not None:
        return found
    raise ValueError(f"{text!r} is none of {', '.join(WORDS)}, one or more of them joined by /")
