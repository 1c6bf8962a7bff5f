"""What leases cost, and whether their users agree.

A price is the node hours asked for, times a rate; prices are in whatever money rates are in. A user
who named the highest rate that they would pay refuses what is above it. The rules are those of the
ancestor, whose own planner here uses them too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, runtime_checkable

USER_RATE: Final = "simul_userrate"
"""The label of a lease that says which rate its user would pay at most."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One lease for which a price is wanted.

    `surcharge_hours` are the node hours for which others are suspended and resumed for it.
    `user_rate` is None for a user who pays what is asked.
    """

    lease: str
    user: str
    node_hours: float
    surcharge_hours: float = 0.0
    user_rate: float | None = None


@dataclass(frozen=True, slots=True)
class Quote:
    """What was asked for a lease, the surcharge in it, and what its user said."""

    price: float
    surcharge: float
    accepted: bool


@runtime_checkable
class PriceList(Protocol):
    """The rates of one run; it may learn from what is accepted."""

    @property
    def surcharges(self) -> bool:
        """Say whether suspending and resuming others is charged as well."""
        ...

    def rate(self, ask: Ask) -> float:
        """Return the rate of an hour on a node."""
        ...

    def learn(self, ask: Ask, rate: float, *, accepted: bool) -> None:
        """Take note of what became of an offer."""
        ...


@runtime_checkable
class PricingPolicy(Protocol):
    """Says by which rates a run begins."""

    def opened(self) -> PriceList:
        """Return a price list that has learnt nothing yet."""
        ...


def quote(prices: PriceList, ask: Ask) -> Quote:
    """Return what a lease costs and whether its user accepts; the list learns from it."""
    rate = prices.rate(ask)
    surcharge = ask.surcharge_hours * rate if prices.surcharges else 0.0
    price = ask.node_hours * rate + surcharge
    most = None if ask.user_rate is None else ask.node_hours * ask.user_rate
    accepted = most is None or price <= most
    prices.learn(ask, rate, accepted=accepted)
    return Quote(price, surcharge, accepted)


def user_rate_of(labels: Mapping[str, str]) -> float | None:
    """Return the highest rate that a user would pay, None when the labels say no number."""
    try:
        rate = float(labels[USER_RATE])
    except (KeyError, ValueError):
        return None
    return rate if 0 <= rate < float("inf") else None


@dataclass(frozen=True, slots=True)
class Free:
    """Nothing costs anything."""

    surcharges: bool = False

    def opened(self) -> PriceList:
        """Return itself."""
        return self

    def rate(self, ask: Ask) -> float:  # noqa: ARG002  # the port's
        """Return 0."""
        return 0.0

    def learn(self, ask: Ask, rate: float, *, accepted: bool) -> None:
        """Learn nothing."""


@dataclass(frozen=True, slots=True)
class Constant:
    """One rate for all; who has others suspended pays for that too."""

    per_hour: float = 1.0
    surcharges: bool = True

    def opened(self) -> PriceList:
        """Return itself."""
        return self

    def rate(self, ask: Ask) -> float:  # noqa: ARG002  # the port's
        """Return the rate."""
        return self.per_hour

    def learn(self, ask: Ask, rate: float, *, accepted: bool) -> None:
        """Learn nothing."""


@dataclass(frozen=True, slots=True)
class Random:
    """A rate anywhere between two, drawn for each lease from a seed and the lease's id."""

    lowest: float = 0.0
    highest: float = 1.0
    seed: int = 0
    surcharges: bool = False

    def opened(self) -> PriceList:
        """Return itself."""
        return self

    def rate(self, ask: Ask) -> float:
        """Return the lease's rate: the same for the same seed, whoever asked before."""
        from hashlib import blake2b  # few runs draw prices

        drawn = blake2b(f"{self.seed}/{ask.lease}".encode(), digest_size=8).digest()
        share = int.from_bytes(drawn, "big") / 2**64
        return self.lowest + (self.highest - self.lowest) * share

    def learn(self, ask: Ask, rate: float, *, accepted: bool) -> None:
        """Learn nothing."""


@dataclass(frozen=True, slots=True)
class Maximum:
    """What the user would pay at most; `otherwise` for those who do not say."""

    otherwise: float = 0.0
    surcharges: bool = False

    def opened(self) -> PriceList:
        """Return itself."""
        return self

    def rate(self, ask: Ask) -> float:
        """Return the user's rate."""
        return self.otherwise if ask.user_rate is None else ask.user_rate

    def learn(self, ask: Ask, rate: float, *, accepted: bool) -> None:
        """Learn nothing."""


@dataclass(frozen=True, slots=True)
class Adaptive:
    """The median of what is believed of each user; begins with one rate for all."""

    first: float = 1.0

    def opened(self) -> PriceList:
        """Return a list that believes nothing yet."""
        return _AdaptiveList(self.first)


@dataclass(slots=True)
class _Estimate:
    """What is believed of one user's rate: the dearest accepted, the cheapest refused."""

    rate: float
    accepted: float | None = None
    refused: float | None = None
    frozen: bool = False


@dataclass(slots=True)
class _AdaptiveList:
    """Raises a user's rate after accepts, lowers it after refusals, halves the gap after both."""

    first: float
    surcharges: bool = False
    _estimates: dict[str, _Estimate] = field(default_factory=dict)

    def rate(self, ask: Ask) -> float:  # noqa: ARG002  # the port's
        """Return the median of the estimates."""
        if not self._estimates:
            return self.first
        rates = sorted(estimate.rate for estimate in self._estimates.values())
        middle = len(rates) // 2
        return rates[middle] if len(rates) % 2 else (rates[middle - 1] + rates[middle]) / 2

    def learn(self, ask: Ask, rate: float, *, accepted: bool) -> None:
        """Move the user's estimate; it is frozen once an accept follows a refusal."""
        estimate = self._estimates.setdefault(ask.user, _Estimate(rate))
        if estimate.frozen:
            return
        if accepted:
            estimate.frozen = estimate.refused is not None
            estimate.accepted = rate
        else:
            estimate.refused = rate
        if estimate.frozen:
            return
        if estimate.accepted is not None and estimate.refused is not None:
            estimate.rate = (estimate.accepted + estimate.refused) / 2
        else:
            estimate.rate = rate * (1.5 if accepted else 0.5)


NAMES: Final = ("free", "constant:RATE", "random:LOWEST-HIGHEST", "maximum[:RATE]", "adaptive:RATE")


def parse_pricing(text: str, seed: int = 0) -> PricingPolicy:
    """Return the pricing that a text names. Raises ValueError with what is right."""
    name, colon, argument = text.strip().lower().partition(":")
    low, dash, high = argument.partition("-")
    if name == "free" and not colon:
        return Free()
    if name == "maximum" and not colon:
        return Maximum()
    if name == "random" and dash and _is_rate(low) and _is_rate(high):
        return Random(float(low), float(high), seed)
    if _is_rate(argument):
        rate = float(argument)
        if name == "constant":
            return Constant(rate)
        if name == "maximum":
            return Maximum(rate)
        if name == "adaptive":
            return Adaptive(rate)
    raise ValueError(f"{text!r} is none of {', '.join(NAMES)}")


def _is_rate(text: str) -> bool:
    return text.replace(".", "", 1).isdigit() and len(text) <= 12
