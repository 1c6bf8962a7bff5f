"""What a pool's leader measures, beside what every process does.

Label sets are closed: pools and kinds of resources are operators' (a handful), the rest is ours.
Gauges are set by `observing`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from tenure_core.leases.states import LeaseState
from tenure_runtime.telemetry.metrics import LONG_MS, Counter, Gauge, Histogram
from tenure_scheduler.entries import Transition, TransitionVerdict

CYCLE: Final = Histogram("cycle_duration", "Time of a step of a cycle", ("pool", "step"))
CYCLES_FAILED: Final = Counter("cycles_failed", "1", "Cycles that failed", ("pool",))
EPOCH: Final = Gauge("leader_epoch", "1", "Epoch under which this replica leads, else 0", ("pool",))
REVISION: Final = Gauge(
    "mirror_revision", "1", "Revision of the slot table that the leader has seen", ("pool",)
)
LEASES: Final = Gauge("leases", "1", "Leases that have not ended", ("pool", "state"))
QUEUE_LENGTH: Final = Gauge("queue_length", "1", "Leases that wait", ("pool", "reason"))
QUEUE_AGE: Final = Gauge(
    "queue_age_seconds", "s", "How long the oldest of them waits", ("pool", "reason")
)
CAPACITY: Final = Gauge(
    "pool_capacity", "base units", "What nodes that take work have now", ("pool", "resource")
)
BOOKED: Final = Gauge("pool_booked", "base units", "What is booked for now", ("pool", "resource"))
AGENTS: Final = Gauge("pool_agents", "1", "Agents", ("pool", "state"))
LATENESS: Final = Histogram(
    "reservation_lateness", "How long after its booked start a lease ran", ("pool",), LONG_MS
)
PREEMPTIONS: Final = Counter("preemptions", "1", "Leases that gave way to others", ("pool",))


def begin(pool: str) -> None:
    """Show what counts a pool's events before the first: a rate needs a value to grow from."""
    CYCLES_FAILED.add(0, pool)
    PREEMPTIONS.add(0, pool)
    LATENESS.show(pool)


@contextmanager
def step(pool: str, name: str) -> Iterator[None]:
    """Measure one step of a cycle."""
    started = time.perf_counter()
    try:
        yield
    finally:
        CYCLE.record((time.perf_counter() - started) * 1_000, pool, name)


def recorded(
    pool: str, transitions: Iterable[Transition], verdicts: Iterable[TransitionVerdict]
) -> None:
    """Count what recorded transitions say about promises."""
    asked = {transition.id: transition for transition in transitions}
    for verdict in verdicts:
        if verdict.reason or verdict.lease is None:
            continue
        transition = asked[verdict.id]
        gave_way = transition.reason == "PREEMPTED" and transition.state is LeaseState.QUEUED
        if transition.preempted or gave_way:
            PREEMPTIONS.add(1, pool)
        placements = verdict.lease.lease.placements
        if transition.started is not None and placements:
            booked = min(placement.interval.start for placement in placements)
            LATENESS.record(max(0, transition.started - booked), pool)
