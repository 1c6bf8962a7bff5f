"""What a lease costs when it is placed, and whether its user agrees."""

from __future__ import annotations

from tenure_core.planning.haizea.entries import HaizeaLease
from tenure_core.policies.pricing import Ask, Free, PricingPolicy, quote

_HOUR_S = 3600
REFUSED = -1
"""The price of a lease whose user refused."""


class Prices:
    """The pool's prices; the rates are those of our own policies."""

    def __init__(self, policy: PricingPolicy | None = None) -> None:
        """Begin with a list that has learnt nothing; everything is free unless said otherwise."""
        self._free = policy is None or isinstance(policy, Free)
        self._list = (policy or Free()).opened()

    def offer(self, lease: HaizeaLease, surcharge_hours: float = 0.0) -> bool:
        """Set the price of the lease; False when its user refuses it.

        `surcharge_hours` are node hours of suspending and resuming others for it. It is asked again
        each time a lease is placed.
        """
        if self._free:
            return True
        hours = lease.duration / _HOUR_S * lease.count
        ask = Ask(str(lease.id), str(lease.user), hours, surcharge_hours, lease.user_rate)
        made = quote(self._list, ask)
        lease.price = made.price if made.accepted else REFUSED
        return made.accepted
