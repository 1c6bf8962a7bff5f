"""What a lease costs when it is placed, and whether its user agrees."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from statistics import median

from tenure_core.planning.haizea.entries import HaizeaLease

_HOUR_S = 3600
REFUSED = -1
"""The price of a lease whose user refused."""


class Pricing(Enum):
    """How the rate of an hour on a node is found."""

    FREE = "free"
    CONSTANT = "constant"
    MAXIMUM = "maximum"
    ADAPTIVE = "adaptive"


@dataclass(slots=True)
class _Estimate:
    """What is believed of one user's rate: the dearest accepted, the cheapest refused."""

    rate: float
    accepted: float | None = None
    refused: float | None = None
    frozen: bool = False


@dataclass(slots=True)
class PriceList:
    """The pool's prices; the adaptive ones learn from what users accept and refuse."""

    pricing: Pricing = Pricing.FREE
    rate: float = 0.0
    _estimates: dict[int | None, _Estimate] = field(default_factory=dict)

    def offer(self, lease: HaizeaLease, surcharge_hours: float = 0.0) -> bool:
        """Set the price of the lease; False when its user refuses it.

        `surcharge_hours` are node hours of suspending and resuming others for it.
        """
        if self.pricing is Pricing.FREE:
            return True
        hours = lease.duration / _HOUR_S
        rate = self._rate(lease)
        price = hours * lease.count * rate
        if self.pricing is Pricing.CONSTANT:
            price += surcharge_hours * rate
        refused = lease.user_rate is not None and price > hours * lease.count * lease.user_rate
        if self.pricing is Pricing.ADAPTIVE:
            self._learn(lease.user, rate, refused)
        lease.price = REFUSED if refused else price
        return not refused

    def _rate(self, lease: HaizeaLease) -> float:
        if self.pricing is Pricing.MAXIMUM and lease.user_rate is not None:
            return lease.user_rate
        if self.pricing is Pricing.ADAPTIVE and self._estimates:
            return median(estimate.rate for estimate in self._estimates.values())
        return self.rate

    def _learn(self, user: int | None, rate: float, refused: bool) -> None:
        """Raise the rate after accepts, lower it after refusals, halve the gap after both."""
        estimate = self._estimates.setdefault(user, _Estimate(rate))
        if estimate.frozen:
            return
        if refused:
            estimate.refused = rate
        else:
            estimate.frozen = estimate.refused is not None
            estimate.accepted = rate
        if estimate.frozen:
            return
        if estimate.accepted is not None and estimate.refused is not None:
            estimate.rate = (estimate.accepted + estimate.refused) / 2
        else:
            estimate.rate = rate * (0.5 if refused else 1.5)
