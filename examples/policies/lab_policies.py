"""Policies of one's own: what a package must hold for the planner to find them.

Installed beside Tenure (`pip install examples/policies`), each is known by the name of its entry
point in pyproject.toml. A policy is asked again and again: the same question must get the same
answer, whatever the time of day.
"""

from __future__ import annotations

from tenure_core.planning.snapshot import LeaseView
from tenure_core.policies.admission import Refusal
from tenure_core.policies.ordering_words import Held, SortingWord
from tenure_core.policies.placement import NodeFit
from tenure_core.policies.preemption import BookedPreemptBestEffort
from tenure_core.policies.pricing import Ask

FOUR_HOURS_MS = 4 * 3_600_000


def is_thesis(lease: LeaseView) -> bool:
    return lease.spec.labels.get("for") == "thesis"


class ShortOnly:
    """Admission: nothing above four hours."""

    def refusal(self, lease: LeaseView, now: int) -> Refusal | None:
        if lease.spec.duration_ms <= FOUR_HOURS_MS:
            return None
        return Refusal("TOO_LONG_FOR_POOL", "This pool takes leases of at most four hours.")


class ThesesFirst(SortingWord):
    """Ordering: leases labelled for=thesis go first; use it alone or as `theses-first/shortest`."""

    text = "theses first"
    why = "that are for a thesis"

    def key(self, lease: LeaseView, held: Held) -> tuple[int, ...]:
        return (not is_thesis(lease),)


class LastFirst:
    """Placement: nodes from the last one down, each filled before the next."""

    in_turn = False

    def key(self, fit: NodeFit) -> tuple[int, ...]:
        return (-fit.place,)


class SpareTheses(BookedPreemptBestEffort):
    """Preemption: bookings preempt what queues, as usual, but no thesis."""

    def may_preempt(self, preemptor: LeaseView, victim: LeaseView, at: int) -> bool:
        return not is_thesis(victim) and super().may_preempt(preemptor, victim, at)


class StudentsFree:
    """Pricing, in simulations: one coin an hour on a node, nothing for students."""

    surcharges = False

    def opened(self) -> StudentsFree:
        return self

    def rate(self, ask: Ask) -> float:
        return 0.0 if ask.user.startswith("student") else 1.0

    def learn(self, ask: Ask, rate: float, *, accepted: bool) -> None:
        """Rates stay as they are."""
