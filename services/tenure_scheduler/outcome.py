"""What one planning pass came to: what was decided, expected, and taken by the slot table."""

from __future__ import annotations

from dataclasses import dataclass, field

from tenure_core.planning import plan as p
from tenure_scheduler.entries import LeaseEntry, Prediction


@dataclass
class PlanOutcome:
    """What one planning pass came to, for those who ask about the queue."""

    plan: p.Plan
    predictions: dict[str, Prediction] = field(default_factory=dict)
    held: frozenset[str] = frozenset()

    @property
    def is_final(self) -> bool:
        """Say whether all of the plan took effect, so that planning again would change nothing."""
        return len(self.held) == len(self.plan.groups)

    @property
    def scheduled(self) -> int:
        """Return how many leases were booked or moved."""
        return sum(
            isinstance(decision, p.Schedule) and decision.group in self.held
            for decision in self.plan.decisions
        )


def predictions_of(made: p.Plan) -> dict[str, Prediction]:
    """Return what the plan expects of the leases that go on waiting, in queue order."""
    waiting = (each for each in made.decisions if isinstance(each, p.Queue))
    return {
        each.lease: Prediction(
            each.lease, each.predicted_start, position, each.reason, each.message
        )
        for position, each in enumerate(waiting, 1)
    }


def given_up_for(preemptor: str) -> tuple[str, str]:
    """Return reason and words for a lease that lost its booking; to nobody when its node failed."""
    if preemptor:
        return "PREEMPTED", "Its booking was given to another lease."
    return "NODE_LOST", "Its node can no longer keep it; it is planned anew."


def booked_text(entry: LeaseEntry, decision: p.Schedule) -> str:
    """Return in words what was booked, and why elsewhere than before."""
    if not decision.reason:
        return "Capacity is booked for it."
    before, after = (
        {placement.node for placement in placements}
        for placements in (entry.lease.placements, decision.placements)
    )
    left, instead = ", ".join(sorted(before - after)), ", ".join(sorted(after - before))
    return f"Node {left} can no longer keep it; it is booked on {instead} for the same time."
