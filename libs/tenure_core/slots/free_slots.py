"""How many slots of a shape are free at once, over time and over all nodes together."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from tenure_core.slots.query import Demand
from tenure_core.slots.table import SlotTable
from tenure_core.timebase import Interval, Millis


@dataclass(frozen=True, slots=True)
class AvailabilityStep:
    """How many slots are free at once in a span without change."""

    interval: Interval
    slots: int


def free_slots(table: SlotTable, demand: Demand, span: Interval) -> tuple[AvailabilityStep, ...]:
    """Sum the slots of all nodes by a sweep over their n change points, O(n log n)."""
    changes: dict[Millis, int] = {span.end: 0}
    for node in table.availability(span, demand.selector):
        before = 0
        for since, amounts in node.free:
            slots = demand.amounts.times_in(amounts)
            slots = min(slots, 1) if demand.spread else slots
            at = max(since, span.start)
            changes[at] = changes.get(at, 0) + slots - before
            before = slots
    changes.setdefault(span.start, 0)
    instants = sorted(changes)
    steps: list[AvailabilityStep] = []
    total = 0
    for start, end in pairwise(instants):
        total += changes[start]
        if steps and steps[-1].slots == total:
            steps[-1] = AvailabilityStep(Interval(steps[-1].interval.start, end), total)
        else:
            steps.append(AvailabilityStep(Interval(start, end), total))
    return tuple(steps)
