"""Signed arithmetic on amounts by kind, for sums that may go below zero.

`tenure_core.resources.ResourceVector` holds what somebody asks for or has. The rules here also need
what is *left*, which is negative where a node shrank under its work, and requests that name a kind
with zero to say "without it". A kind that is absent counts as zero throughout.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

Amounts = Mapping[str, int]
"""Amounts by kind in any one integer unit a kind; zero may be named, negative is a lack."""


def plus(first: Amounts, *others: Amounts) -> dict[str, int]:
    """Return the sum by kind over the union of the kinds."""
    total = dict(first)
    for other in others:
        for kind, amount in other.items():
            total[kind] = total.get(kind, 0) + amount
    return total


def minus(first: Amounts, *others: Amounts) -> dict[str, int]:
    """Return `first` less all `others` by kind over the union of the kinds."""
    rest = dict(first)
    for other in others:
        for kind, amount in other.items():
            rest[kind] = rest.get(kind, 0) - amount
    return rest


def added_up(vectors: Iterable[Amounts]) -> dict[str, int]:
    """Return the sum of any number of vectors."""
    return plus({}, *vectors)


def shortage(wanted: Amounts, free: Amounts) -> dict[str, int]:
    """Return how much is missing of each kind that `wanted` names and `free` does not cover.

    A kind that is named with zero is missing where `free` is negative: an overcommitted node takes
    nothing that even mentions the kind.
    """
    return {
        kind: amount - free.get(kind, 0)
        for kind, amount in wanted.items()
        if amount > free.get(kind, 0)
    }


def fits(wanted: Amounts, free: Amounts) -> bool:
    """Say whether `free` covers every kind that `wanted` names."""
    # A loop: this is the innermost test of a pass, and a generator would take twice as long.
    for kind, amount in wanted.items():  # noqa: SIM110
        if amount > free.get(kind, 0):
            return False
    return True


def units(vector: Amounts) -> int:
    """Return the plain sum over the kinds: comparable only where the units are."""
    return sum(vector.values())


def relative(part: Amounts, whole: Amounts) -> Fraction:
    """Return the sum of `part` over `whole` by kind: without dimension, so kinds may be added.

    A kind of which the whole has nothing counts as one whole, so that lacking it weighs most.
    """
    return sum(
        (
            Fraction(amount, whole[kind]) if whole.get(kind, 0) > 0 else Fraction(1)
            for kind, amount in part.items()
            if amount
        ),
        Fraction(0),
    )
