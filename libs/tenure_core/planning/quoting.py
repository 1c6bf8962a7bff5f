"""What the leases of a book were asked to pay: each once, when it is first planned.

A lease that queues is asked when it joins; one whose terms name a time when a place for it is
found, for then it is known whom it has suspended. Whoever agreed is not asked again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from tenure_core.planning.plan import Preempt, PreemptHow
from tenure_core.planning.snapshot import LeaseView
from tenure_core.policies.bundle import Policies
from tenure_core.policies.pricing import Ask, Free, PriceList, Quote, quote, user_rate_of
from tenure_core.timebase import HOUR_MS

REFUSED: Final = "PRICE_REFUSED"
REFUSED_TEXT: Final = "It costs more than its owner would pay."


class Quotes:
    """The quotes of one book, by lease."""

    def __init__(self, policies: Policies) -> None:
        """Begin with a price list that has learnt nothing."""
        self.by_lease: dict[str, Quote] = {}
        self._policies = policies
        pricing = policies.pricing
        self._list: PriceList | None = None if isinstance(pricing, Free) else pricing.opened()

    def agrees(
        self,
        lease: LeaseView,
        preempted: Iterable[Preempt] = (),
        leases: Mapping[str, LeaseView] | None = None,
    ) -> bool:
        """Say whether the lease's owner pays what is asked; `leases` are those `preempted` name."""
        if self._list is None:
            return True
        known = self.by_lease.get(lease.id)
        if known is None:
            spec = lease.spec
            known = self.by_lease[lease.id] = quote(
                self._list,
                Ask(
                    lease.id,
                    spec.owner,
                    spec.duration_ms / HOUR_MS * spec.node_count,
                    self._surcharge_hours(preempted, leases or {}),
                    user_rate_of(spec.labels),
                ),
            )
        return known.accepted

    def _surcharge_hours(
        self, preempted: Iterable[Preempt], leases: Mapping[str, LeaseView]
    ) -> float:
        """Return the node hours for which preempted leases are suspended and resumed."""
        overheads = self._policies.overheads
        nodes = sum(
            leases[each.lease].spec.node_count
            for each in preempted
            if each.how is PreemptHow.SUSPEND
        )
        return (overheads.suspend_ms + overheads.resume_ms) / HOUR_MS * nodes
