"""What one planning pass came to: what was decided, expected, and taken by the slot table."""

from __future__ import annotations

from dataclasses import dataclass, field

from tenure_core.planning import plan as p
from tenure_scheduler.entries import Prediction


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
