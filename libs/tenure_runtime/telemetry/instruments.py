"""Counters, gauges and histograms kept in the process.

Decides how values are kept: one a label set, labels from closed sets only. Each instrument is made
once, where a process or library declares its metrics, and is then known to `exposition`.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tenure_runtime.telemetry.tracing import recorded_traceparent

# Upper bounds of the duration buckets, in milliseconds.
BUCKETS_MS: Final = (1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1_000.0, 5_000.0)

LONG_MS: Final = (10.0, 100.0, 500.0, 1_000.0, 5_000.0, 15_000.0, 60_000.0, 300_000.0, 1_800_000.0)
"""The same where minutes are usual."""

_OBSERVERS: Final[list[Callable[[], None]]] = []
_DECLARED: Final[list[Counter | Gauge | Histogram]] = []


class Counter:
    """A number that only grows, one a label set."""

    def __init__(self, name: str, unit: str, meaning: str, labels: tuple[str, ...]) -> None:
        self.name, self.unit, self.meaning, self.labels = name, unit, meaning, labels
        self.values: dict[tuple[str, ...], float] = defaultdict(float)
        if not labels:
            # Shown from the beginning: a rate needs a first value to grow from.
            self.values[()] = 0.0
        _DECLARED.append(self)

    def add(self, amount: float, *labels: str) -> None:
        """Add to the number of one label set."""
        self.values[labels] += amount


class Gauge:
    """A number that goes up and down, one a label set."""

    def __init__(self, name: str, unit: str, meaning: str, labels: tuple[str, ...]) -> None:
        self.name, self.unit, self.meaning, self.labels = name, unit, meaning, labels
        self.values: dict[tuple[str, ...], float] = {}
        _DECLARED.append(self)

    def set(self, value: float, *labels: str) -> None:
        """Set the number of one label set."""
        self.values[labels] = value

    def add(self, amount: float, *labels: str) -> None:
        """Change the number of one label set."""
        self.values[labels] = self.values.get(labels, 0.0) + amount

    def replace(self, values: Mapping[tuple[str, ...], float]) -> None:
        """Set all there is: label sets that are left out are gone."""
        self.values = dict(values)

    def forget(self, *labels: str) -> None:
        """Show one label set no more."""
        self.values.pop(labels, None)


class Exemplar(NamedTuple):
    """One value of a bucket, where in a trace it was recorded, and when (since 1970)."""

    traceparent: str
    value_ms: float
    at_ns: int


@dataclass(slots=True)
class Buckets:
    """How many values fell under each bound and over the last, how many at all, and the sum.

    `exemplars` are the last ones of recorded traces, by the number of their bucket.
    """

    counts: list[int]
    count: int = 0
    total: float = 0.0
    exemplars: dict[int, Exemplar] = field(default_factory=dict)


class Histogram:
    """How a duration in milliseconds is spread, one a label set."""

    def __init__(
        self,
        name: str,
        meaning: str,
        labels: tuple[str, ...],
        bounds_ms: tuple[float, ...] = BUCKETS_MS,
    ) -> None:
        self.name, self.unit, self.meaning, self.labels = name, "ms", meaning, labels
        self.bounds_ms = bounds_ms
        self.values: dict[tuple[str, ...], Buckets] = {}
        _DECLARED.append(self)

    def show(self, *labels: str) -> Buckets:
        """Return what was counted of one label set, shown from now on also if that is nothing."""
        buckets = self.values.get(labels)
        if buckets is None:
            buckets = self.values[labels] = Buckets([0] * (len(self.bounds_ms) + 1))
        return buckets

    def record(self, value_ms: float, *labels: str) -> None:
        """Count one value of one label set."""
        buckets = self.show(*labels)
        bucket = bisect_left(self.bounds_ms, value_ms)
        buckets.counts[bucket] += 1
        buckets.count += 1
        buckets.total += value_ms
        traceparent = recorded_traceparent()
        if traceparent:
            buckets.exemplars[bucket] = Exemplar(traceparent, value_ms, time.time_ns())


@contextmanager
def observed(observe: Callable[[], None]) -> Iterator[None]:
    """Have `observe` set gauges whenever somebody reads them, while the block runs.

    For what is known anyway: nobody counts it between two readings.
    """
    _OBSERVERS.append(observe)
    try:
        yield
    finally:
        _OBSERVERS.remove(observe)


def observe() -> None:
    """Bring the gauges that are set on reading up to date."""
    for each in tuple(_OBSERVERS):
        each()


def declared() -> Iterator[Counter | Gauge | Histogram]:
    """Yield every instrument that this process has declared."""
    yield from _DECLARED
