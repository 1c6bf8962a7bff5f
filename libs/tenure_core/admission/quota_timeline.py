"""Limits that vary over time, and charges for spans: what an account holds at every instant.

A lease is charged when it is booked, for the interval booked, so a limit must hold at every instant
of it, also where the limit itself changes. Lowering a limit never breaks what is charged already;
`over` says where the account is above it, and new charges there are refused until it is not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from tenure_core.admission.amounts import Amounts, added_up
from tenure_core.admission.quotas import Excess, exceeded
from tenure_core.timebase import Interval, Millis

Limits = Mapping[str, int | None]
"""The most of each kind; None is no limit, and a kind that is not named is limited to zero."""


@dataclass(frozen=True, slots=True)
class LimitPlan:
    """A limit, and other limits for certain spans: of those that cover an instant the last counts.

    Operators write recurring limits (nights, terms) as the spans that they expand to.
    """

    base: Limits
    spans: tuple[tuple[Interval, Limits], ...] = ()

    def at(self, instant: Millis) -> Limits:
        """Return the limit at the instant."""
        covering = [limits for span, limits in self.spans if span.contains(instant)]
        return covering[-1] if covering else self.base

    def changes(self) -> set[Millis]:
        """Return the instants at which the limit may change."""
        return {edge for span, _ in self.spans for edge in (span.start, span.end)}


@dataclass(frozen=True, slots=True)
class Overrun:
    """At this instant an account would hold too much of these kinds."""

    at: Millis
    over: tuple[Excess, ...]


@dataclass(slots=True)
class QuotaTimeline:
    """The charges of one account by lease. Charging a lease anew replaces its charge."""

    plan: LimitPlan
    charges: dict[str, tuple[Interval, Amounts]] = field(default_factory=dict)

    def held_at(self, instant: Millis) -> dict[str, int]:
        """Return what is charged at the instant."""
        return added_up(
            amounts for span, amounts in self.charges.values() if span.contains(instant)
        )

    def refusal(self, lease: str, span: Interval, amounts: Amounts) -> Overrun | None:
        """Return the first instant at which charging the lease would be too much, or None.

        What the lease is charged already does not count against it, so it may be extended, moved or
        shrunk. Cost: charges in the span times change points in it.
        """
        others = self._others(lease, span)
        for instant in self._edges(others, span):
            held = added_up(charged for during, charged in others if during.contains(instant))
            over = exceeded(held, amounts, self.plan.at(instant))
            if over:
                return Overrun(instant, over)
        return None

    def charge(self, lease: str, span: Interval, amounts: Amounts) -> Overrun | None:
        """Charge the lease for the span, instead of any earlier charge, unless refused."""
        refused = self.refusal(lease, span, amounts)
        if refused is None:
            self.charges[lease] = (span, amounts)
        return refused

    def release(self, lease: str, at: Millis) -> bool:
        """End the lease's charge at `at`; False when nothing of it was left from there on."""
        span, amounts = self.charges.get(lease, (None, {}))
        if span is None or at >= span.end:
            return False
        if at <= span.start:
            del self.charges[lease]
        else:
            self.charges[lease] = (Interval(span.start, at), amounts)
        return True

    def over(self, span: Interval) -> list[Overrun]:
        """Return every instant of the span at which the account comes to hold too much.

        Only a limit that was lowered can cause this; nothing that runs is touched by it.
        """
        found: list[Overrun] = []
        for instant in self._edges(self.charges.values(), span):
            held = self.held_at(instant)
            above = exceeded({}, held, self.plan.at(instant))
            if above:
                found.append(Overrun(instant, above))
        return found

    def _others(self, lease: str, span: Interval) -> list[tuple[Interval, Amounts]]:
        return [
            charge
            for name, charge in self.charges.items()
            if name != lease and charge[0].overlaps(span)
        ]

    def _edges(self, charges: Collection[tuple[Interval, Amounts]], span: Interval) -> list[Millis]:
        starts = {during.start for during, _ in charges} | self.plan.changes()
        ends = {during.end for during, _ in charges}
        return sorted({span.start, *(edge for edge in starts | ends if span.contains(edge))})
