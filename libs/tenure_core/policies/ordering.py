"""In which order waiting leases are looked at: words that are applied one after another.

`priority:100/drf:project` orders by classes of a hundred priorities and within each by the dominant
share of projects; what all words leave equal goes by arrival. Whoever has waited longer than
`age_max_ms` goes before all others, the longest wait first: then the promise to the head of the
queue is its own, so no order lets anybody wait for ever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from tenure_core.planning.snapshot import LeaseView
from tenure_core.policies.ordering_words import (
    WORDS,
    FairShare,
    Held,
    Offered,
    Word,
    word_of,
)
from tenure_core.timebase import DAY_MS, Millis

AGE_MAX_MS: Final[Millis] = DAY_MS
"""How long an order that is not by arrival may keep a lease back, unless a pool says otherwise."""

WORDS_MAX: Final = 4


class Pool(Protocol):
    """What is asked of the pool that is ordered for, at `now`."""

    @property
    def now(self) -> Millis:
        """Return the instant."""
        ...

    def held(self) -> Held:
        """Return what runs, who is weighed how, and how much there is."""
        ...


class Ordering(Protocol):
    """Sorts the queue."""

    @property
    def remembers(self) -> Mapping[str, Mapping[str, int]]:
        """Return the weights of those whose past usage it asks for, by `owner` or `project`."""
        ...

    def arranged(self, waiting: Collection[LeaseView], pool: Pool) -> list[LeaseView]:
        """Return the leases in the order in which they are looked at."""
        ...

    def place(self, lease: LeaseView, before: Sequence[LeaseView], pool: Pool) -> str:
        """Say why these leases are before this one."""
        ...


@dataclass(frozen=True, slots=True)
class ByWords:
    """An ordering by words; without any, by arrival."""

    words: tuple[Word, ...] = ()
    age_max_ms: Millis | None = None

    @property
    def remembers(self) -> Mapping[str, Mapping[str, int]]:
        """Return the weights of those whose past usage its words ask for."""
        return {word.by: word.weights for word in self.words if isinstance(word, FairShare)}

    def arranged(self, waiting: Collection[LeaseView], pool: Pool) -> list[LeaseView]:
        """Return those that aged by arrival, then the others by the words."""
        arrived = sorted(waiting, key=lambda lease: lease.arrival)
        if not self.words:
            return arrived
        aged = [lease for lease in arrived if self._has_aged(lease, pool.now)]
        others = [lease for lease in arrived if not self._has_aged(lease, pool.now)]
        held = pool.held()
        held.running += aged
        return aged + _by_words(others, self.words, held)

    def _has_aged(self, lease: LeaseView, now: Millis) -> bool:
        return self.age_max_ms is not None and now - lease.created >= self.age_max_ms

    def place(self, lease: LeaseView, before: Sequence[LeaseView], pool: Pool) -> str:
        """Count those before it by what puts them there."""
        held = pool.held()
        counts = Counter(self._because(each, lease, pool.now, held) for each in before)
        told = ", ".join(f"{count} {why}" for why, count in counts.items())
        order = ", then ".join([*(word.text for word in self.words), "by arrival"])
        return f"The queue goes {order}." + (f" Before it: {told}." if told else "")

    def _because(self, before: LeaseView, lease: LeaseView, now: Millis, held: Held) -> str:
        if self.words and self._has_aged(before, now):
            return "that waited longest"
        for word in self.words:
            if word.key(before, held) != word.key(lease, held):
                return word.why
        return "that came earlier"


def _by_words(leases: list[LeaseView], words: tuple[Word, ...], held: Held) -> list[LeaseView]:
    if not words:
        return leases
    return words[0].arranged(leases, held, lambda equals: _by_words(equals, words[1:], held))


FIFO: Final = ByWords()
"""By arrival; a suspended or requeued lease keeps its old place."""


@dataclass(frozen=True, slots=True)
class OrderingTerms:
    """What an operator says of a pool's order beside the words.

    `weights` are of owners or projects, 1 where nothing is said.
    """

    weights: Mapping[str, int] = field(default_factory=dict)
    age_max_ms: Millis = AGE_MAX_MS


def parse_ordering(
    text: str, terms: OrderingTerms | None = None, offered: Offered = lambda _: None
) -> ByWords:
    """Return the ordering that a text names, for example `priority:100/fair-share:project`.

    `offered` looks up words that are not ours. Raises ValueError with a sentence on what would be
    right.
    """
    given = OrderingTerms() if terms is None else terms
    parts = [part.strip() for part in text.lower().split("/")]
    words = [word_of(part, given.weights, offered) for part in parts if part != "fifo"]
    if len(words) > WORDS_MAX or len({type(word) for word in words}) < len(words):
        raise ValueError(f"an order has at most {WORDS_MAX} different words of {', '.join(WORDS)}")
    return ByWords(tuple(words), given.age_max_ms if words else None)
