"""How long before a booking a machine must be started, from what was measured (P26).

One percentile a machine type and operation, the provider's launch rate, and the chance that a
start fails. Admission is told the result, so that a start that is too early gets a later offer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from tenure_core.autoscaling.future_node import NodeTimes
from tenure_core.autoscaling.machine_types import MachineType
from tenure_core.timebase import MINUTE_MS, Millis

SAMPLES_MIN: Final = 20
"""Fewer measurements than this leave the configured time in force."""

SAMPLES_MAX: Final = 500
"""The newest measurements that are kept of one operation."""

SLOW: Final = Fraction(5, 100)
"""How many starts take longer than their 95th percentile."""

LATE_MAX: Final = Fraction(1, 20_000)
"""How often a booked machine may be late: one of twenty is in one booking of a thousand."""

STARTS_MAX: Final = 5
"""A provider that fails more often than that needs a person, not a longer lead."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Durations of one operation of one machine type, oldest first, and how many starts failed."""

    durations_ms: tuple[Millis, ...] = ()
    started: int = 0
    failed: int = 0

    def after_success(self, duration_ms: Millis) -> Measured:
        """Return the measurements with one more duration."""
        kept = (*self.durations_ms, duration_ms)[-SAMPLES_MAX:]
        return replace(self, durations_ms=kept, started=self.started + 1)

    def after_failure(self) -> Measured:
        """Return the measurements with one more failed start."""
        return replace(self, started=self.started + 1, failed=self.failed + 1)


def percentile_ms(durations_ms: Sequence[Millis], *, percent: int = 95) -> Millis:
    """Return the smallest measured duration that `percent` of all do not exceed (nearest rank)."""
    assert durations_ms and 0 < percent <= 100
    rank = -(-len(durations_ms) * percent // 100)
    return sorted(durations_ms)[rank - 1]


def measured_times(
    configured: NodeTimes, *, boot: Measured, resume: Measured, suspend: Measured
) -> NodeTimes:
    """Return the configured times with each 95th percentile that has enough measurements."""

    def p95(measured: Measured, otherwise: Millis) -> Millis:
        enough = len(measured.durations_ms) >= SAMPLES_MIN
        return percentile_ms(measured.durations_ms) if enough else otherwise

    return replace(
        configured,
        boot_p95_ms=p95(boot, configured.boot_p95_ms),
        resume_p95_ms=p95(resume, configured.resume_p95_ms),
        suspend_p95_ms=p95(suspend, configured.suspend_p95_ms),
    )


def boot_lead_ms(kind: MachineType, machines: int) -> Millis:
    """Return how long before its start a booking of `machines` new machines must be begun.

    cold + ceil((m - 1) / r): the last of m machines launched at rate r still boots in time
    (autoscaler specification 3.4).
    """
    if machines <= 0:
        return 0
    waiting = -(-(machines - 1) * MINUTE_MS // kind.launches_per_minute)
    return kind.times.cold_ms + waiting


def launch_gap_ms(kind: MachineType) -> Millis:
    """Return the time between two launches at the provider's rate, rounded up."""
    return -(-MINUTE_MS // kind.launches_per_minute)


def launch_backlog_ms(kind: MachineType, booting: Iterable[tuple[Millis, Millis]]) -> Millis:
    """Return how long the provider is still busy launching what was asked for before.

    `booting` gives, of each machine that boots, for how long it has been on order and how long
    after the order its launch was expected. Launches go one after another.
    """
    gap = launch_gap_ms(kind)
    return max((max(0, wait - since + gap) for since, wait in booting), default=0)


def starts_possible(kind: MachineType, lead_ms: Millis) -> int:
    """Return how many starts one after another fit into `lead_ms`: the last must end by then."""
    if lead_ms < kind.times.boot_p95_ms:
        return 0
    deadline = kind.times.start_deadline_factor * kind.times.boot_p95_ms
    if deadline == 0:
        return 1
    return 1 + (lead_ms - kind.times.boot_p95_ms) // deadline


def late_probability(measured: Measured, starts: int) -> Fraction:
    """Return the chance that a machine is not ready: every one of `starts` starts fails.

    A start fails by its measured failures or by the 5 % beyond the 95th percentile, taken as
    independent. One when no start fits.
    """
    failing = Fraction(measured.failed, measured.started) if measured.started else Fraction(0)
    return (failing + (1 - failing) * SLOW) ** starts if starts > 0 else Fraction(1)


def replacing_ms(times: NodeTimes, boots: Measured) -> Millis:
    """Return how long before its lead a booked machine is begun, so that failures can be replaced.

    A start that fails is given up at its deadline, and another follows within the guard. There are
    to be so many that a machine is late less often than `LATE_MAX`. Before much was measured one
    start in fifty is taken to fail.
    """
    deadline = times.start_deadline_factor * times.boot_p95_ms
    failing = Fraction(boots.failed + 1, boots.started + 50)
    overdue = Fraction(
        sum(duration > deadline for duration in boots.durations_ms), len(boots.durations_ms) or 1
    )
    again = failing + (1 - failing) * overdue
    late = failing + (1 - failing) * SLOW
    starts = 1
    while late > LATE_MAX and starts < STARTS_MAX:
        late *= again
        starts += 1
    return (starts - 1) * (deadline + times.guard_ms)


def lateness_ms(start_ms: Millis, ready_at_ms: Sequence[Millis | None], now_ms: Millis) -> Millis:
    """Return how late a booking is complete: zero when all its machines were ready at its start.

    A machine that is not ready yet (None) is late by the time passed so far.
    """
    latest = max((now_ms if at is None else at for at in ready_at_ms), default=start_ms)
    return max(0, latest - start_ms)
