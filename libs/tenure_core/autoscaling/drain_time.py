"""How long the queue takes to drain, and how many workers that asks for, in exact arithmetic.

The ancestor's formula (autoscaler specification 1.8): t = queue / threads * mean job time; below
the band the target lies a quarter above its lower end, above the band a quarter below its upper
end. Corrections: a worker that has ended no job is not measured rather than infinitely fast, no
threads is no measurement (P12), the mean is weighted by work done, nothing is rounded but the
final count (P15).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from math import ceil, floor

from tenure_core.autoscaling.group_config import DrainBand, ServiceTime


class Direction(StrEnum):
    """Where a decision goes."""

    IN = "IN"
    HOLD = "HOLD"
    OUT = "OUT"


@dataclass(frozen=True, slots=True)
class WorkerSample:
    """What one active worker reports: threads, and its mean job time (zero: none has ended)."""

    threads: int
    mean_job_ms: Fraction


@dataclass(frozen=True, slots=True)
class Measurement:
    """The drain time and what it was made of; `reason` says why there is none."""

    active: int
    threads: int
    samples: int
    mean_job_ms: Fraction | None = None
    mean_queue: Fraction | None = None
    drain_ms: Fraction | None = None
    reason: str = "MEASURED"


@dataclass(frozen=True, slots=True)
class Recommendation:
    """How many workers the measurement asks for, before any limit or damping."""

    direction: Direction
    wanted: int
    desired_ms: Fraction | None = None


def measure(
    workers: Sequence[WorkerSample], queue_lengths: Sequence[int], band: DrainBand
) -> Measurement:
    """Return the drain time of the last `band.samples` queue lengths over `workers`.

    Without a worker, enough samples, a thread or an ended job there is no drain time.
    """
    threads = sum(worker.threads for worker in workers)
    found = Measurement(len(workers), threads, len(queue_lengths))
    if not workers:
        return _without(found, "NO_ACTIVE_WORKER")
    if len(queue_lengths) < band.samples:
        return _without(found, "TOO_FEW_SAMPLES")
    mean_queue = Fraction(sum(queue_lengths[-band.samples :]), band.samples)
    mean_job = mean_job_ms(workers, band.service_time)
    if threads == 0 or mean_job is None:
        reason = "NO_THREADS" if threads == 0 else "NO_JOB_ENDED"
        return Measurement(
            len(workers), threads, len(queue_lengths), mean_job, mean_queue, reason=reason
        )
    drain = mean_queue / threads * mean_job
    return Measurement(len(workers), threads, len(queue_lengths), mean_job, mean_queue, drain)


def _without(found: Measurement, reason: str) -> Measurement:
    return Measurement(found.active, found.threads, found.samples, reason=reason)


def mean_job_ms(workers: Sequence[WorkerSample], how: ServiceTime) -> Fraction | None:
    """Return the mean job time, or None when no worker has ended a job.

    WEIGHTED weighs each worker that has ended one by its rate (threads / mean job time), so that
    queue / threads * mean equals queue / total rate. PLAIN counts the others as zero.
    """
    measured = [worker for worker in workers if worker.mean_job_ms > 0]
    if not measured:
        return None
    if how is ServiceTime.WEIGHTED:
        rate = sum((worker.threads / worker.mean_job_ms for worker in measured), Fraction(0))
        if rate > 0:
            return sum(worker.threads for worker in measured) / rate
        workers = measured
    total = sum((worker.mean_job_ms for worker in workers), Fraction(0))
    return total / len(workers)


def recommend(measurement: Measurement, band: DrainBand, *, min_workers: int) -> Recommendation:
    """Return how many active workers would bring the drain time to the target in the band.

    Never fewer than `min_workers` by a removal; holds without a measurement.
    """
    active, drain = measurement.active, measurement.drain_ms
    quarter = Fraction(band.upper_ms - band.lower_ms, 4)
    if drain is None or band.lower_ms <= drain <= band.upper_ms:
        return Recommendation(Direction.HOLD, active)
    if drain > band.upper_ms:
        desired = band.upper_ms - quarter
        return Recommendation(
            Direction.OUT, active + ceil(drain / desired * active - active), desired
        )
    desired = band.lower_ms + quarter
    spared = floor((1 - drain / desired) * active) if drain else active - 1
    floor_of = min(active, min_workers)
    return Recommendation(Direction.IN, max(floor_of, active - spared), desired)


def would_call_for_more(
    workers: Sequence[WorkerSample], queue_lengths: Sequence[int], band: DrainBand
) -> bool:
    """Say whether `workers` alone would drain the queue too slowly, or cannot be measured (P14)."""
    drain = measure(workers, queue_lengths, band).drain_ms
    return drain is None or drain > band.upper_ms
