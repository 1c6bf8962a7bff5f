"""What a priced run brought in, and what it might have.

The user's price of a lease is the node hours that it asked for, times the rate that its user would
pay at most; leases of users who named none count in the first two figures only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tenure_core.planning.quoting import REFUSED
from tenure_core.policies.pricing import Quote, user_rate_of
from tenure_core.timebase import HOUR_MS
from tenure_sim.workload import Workload


@dataclass(frozen=True, slots=True)
class Revenue:
    """Sums over the leases of a run, in the money of the rates."""

    revenue: float
    surcharge: float
    missed_by_undercharging: float
    missed_by_rejection: float
    missed_by_refusal: float

    @property
    def missed(self) -> float:
        """Return all that was missed."""
        return round(
            self.missed_by_undercharging + self.missed_by_rejection + self.missed_by_refusal, 6
        )


def revenue_of(
    workload: Workload,
    states: Sequence[str],
    reasons: Sequence[str],
    quotes: Sequence[Quote | None],
) -> Revenue:
    """Return the sums; a lease pays when it is done."""
    revenue = surcharge = undercharged = rejected = refused = 0.0
    for index, (state, reason, quote) in enumerate(zip(states, reasons, quotes, strict=True)):
        spec = workload.spec(index)
        rate = user_rate_of(spec.labels)
        most = None if rate is None else spec.duration_ms / HOUR_MS * spec.node_count * rate
        if state == "DONE" and quote is not None:
            revenue += quote.price
            surcharge += quote.surcharge
            undercharged += 0.0 if most is None else most - quote.price
        elif state == "REJECTED" and most is not None:
            if reason == REFUSED:
                refused += most
            else:
                rejected += most
    return Revenue(
        *(round(sum_, 6) for sum_ in (revenue, surcharge, undercharged, rejected, refused))
    )
