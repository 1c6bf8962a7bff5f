"""Turns what everybody used in the past into a factor between 0 and 1: the less used, the higher.

    decayed     the sum over days of usage x 2^(-age / half-life); today and later do not decay
    normalized  the weighted mean over kinds of decayed / (capacity x length of the window)
    factor      2^(-normalized / weight)

All in decimals of 50 digits, so equal histories give equal factors on every machine. The mean is
over the kinds that the *pool* has. The ancestor averages over the kinds that somebody happened to
touch, stops the exponent at 10, divides by a weight of zero, and gives equals different ranks;
`Mean.OF_TOUCHED_KINDS` and `exponent_max` reproduce the first two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Context, Decimal
from enum import Enum
from typing import Final

_EXACT: Final = Context(prec=50)
_TWO: Final = Decimal(2)
_ZERO: Final = Decimal(0)
_ONE: Final = Decimal(1)
_SECONDS_PER_DAY: Final = Decimal(86_400)

Usage = Mapping[str, Decimal]
"""Amount x seconds by kind."""


class Mean(Enum):
    """Over which kinds the mean is taken."""

    OF_POOL_KINDS = "OF_POOL_KINDS"
    """All that the pool has, used or not."""
    OF_TOUCHED_KINDS = "OF_TOUCHED_KINDS"
    """Those that have an entry of usage: a trace of another kind makes a heavy user look light."""


@dataclass(frozen=True, slots=True)
class FairShareTerms:
    """The knobs of a pool. Days for `half_life` and `lookback`, amounts for `capacity`.

    `kind_weights` has the weight of a kind; others weigh as `kind_weight` says. `exponent_max`
    stops the exponent (None: never), which makes all very heavy users equal.
    """

    half_life: Decimal = Decimal(7)
    lookback: Decimal = Decimal(28)
    capacity: Mapping[str, Decimal] = field(default_factory=dict)
    kind_weights: Mapping[str, Decimal] = field(default_factory=dict)
    default_weight: Decimal = _ONE
    mean: Mean = Mean.OF_POOL_KINDS
    exponent_max: Decimal | None = None

    def kind_weight(self, kind: str) -> Decimal:
        """Return how much the kind counts in the mean."""
        if kind in self.kind_weights:
            return self.kind_weights[kind]
        family = kind.partition(".")[0]
        return _DEFAULT_KIND_WEIGHTS.get(family, _ONE)


_DEFAULT_KIND_WEIGHTS: Final = {"mem": Decimal("0.001"), "cuda": Decimal(10)}


@dataclass(frozen=True, slots=True)
class Standing:
    """Where somebody stands: decayed usage, its part of what there was, and the factor."""

    decayed: Usage
    normalized: Decimal
    factor: Decimal


def decayed(days: Mapping[int, Usage], today: int, half_life: Decimal) -> dict[str, Decimal]:
    """Return the usage of all days (numbered), each halved every `half_life` days of its age."""
    total: dict[str, Decimal] = {}
    for day, usage in days.items():
        age = Decimal(max(0, today - day))
        weight = _EXACT.power(_TWO, _EXACT.divide(-age, half_life))
        for kind, amount in usage.items():
            part = _EXACT.multiply(amount, weight)
            total[kind] = _EXACT.add(total.get(kind, _ZERO), part)
    return total


def normalized(used: Usage, terms: FairShareTerms) -> Decimal:
    """Return the weighted mean over kinds of the part of the whole window's capacity that is used.

    Kinds without capacity do not count; zero when none counts.
    """
    parts, weights = _ZERO, _ZERO
    for kind, capacity in terms.capacity.items():
        if capacity <= 0 or (terms.mean is Mean.OF_TOUCHED_KINDS and kind not in used):
            continue
        weight = terms.kind_weight(kind)
        window = _EXACT.multiply(capacity, _EXACT.multiply(terms.lookback, _SECONDS_PER_DAY))
        part = _EXACT.divide(used.get(kind, _ZERO), window)
        parts = _EXACT.add(parts, _EXACT.multiply(weight, part))
        weights = _EXACT.add(weights, weight)
    return _EXACT.divide(parts, weights) if weights > 0 else _ZERO


def factor(share: Decimal, weight: Decimal, exponent_max: Decimal | None = None) -> Decimal:
    """Return 2^(-share / weight), at most 1; a weight of zero or less entitles to nothing: 0."""
    if weight <= 0:
        return _ZERO
    exponent = _EXACT.divide(_EXACT.minus(share), weight)
    if exponent_max is not None:
        exponent = max(-exponent_max, min(exponent_max, exponent))
    return min(_ONE, _EXACT.power(_TWO, exponent))


def standing(
    days: Mapping[int, Usage], today: int, weight: Decimal | None, terms: FairShareTerms
) -> Standing:
    """Return where somebody with this history and weight stands; no weight is the default one."""
    used = decayed(days, today, terms.half_life)
    share = normalized(used, terms)
    own_weight = terms.default_weight if weight is None else weight
    return Standing(used, share, factor(share, own_weight, terms.exponent_max))


NEWCOMER: Final = _ONE
"""The factor of somebody without history: nothing was used."""


@dataclass(frozen=True, slots=True)
class Factors:
    """The factors of an owner at the three levels, the highest level first."""

    domain: Decimal = NEWCOMER
    project: Decimal = NEWCOMER
    owner: Decimal = NEWCOMER

    @property
    def order(self) -> tuple[Decimal, Decimal, Decimal]:
        """Return what to sort by; greater comes first."""
        return (self.domain, self.project, self.owner)


def ranks(factors: Mapping[str, Factors]) -> list[tuple[int, str]]:
    """Return (rank, owner), 1 for the highest factors; equals share a rank and go by name."""
    ordered = sorted(factors, key=lambda owner: (*(-part for part in factors[owner].order), owner))
    result: list[tuple[int, str]] = []
    for place, owner in enumerate(ordered, start=1):
        equal = result and factors[result[-1][1]] == factors[owner]
        result.append((result[-1][0] if equal else place, owner))
    return result
