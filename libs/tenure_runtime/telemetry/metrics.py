"""The instruments that every process has, declared in one place with unit and meaning.

Decides names, units and label sets (labels come from closed sets only). Values are kept in the
process and read by `snapshot()`; an exporter is left to the process that wants one.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

# Upper bounds of the duration buckets, in milliseconds.
BUCKETS_MS: Final = (1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1_000.0, 5_000.0)


class Counter:
    """A number that only grows, one a label set."""

    def __init__(self, name: str, unit: str, meaning: str, labels: tuple[str, ...]) -> None:
        self.name, self.unit, self.meaning, self.labels = name, unit, meaning, labels
        self.values: dict[tuple[str, ...], float] = defaultdict(float)

    def add(self, amount: float, *labels: str) -> None:
        """Add to the number of one label set."""
        self.values[labels] += amount


@dataclass(slots=True)
class Buckets:
    """How often a value fell under each bound, how often at all, and the sum."""

    counts: list[int]
    count: int = 0
    total: float = 0.0


class Histogram:
    """How a duration in milliseconds is spread, one a label set."""

    def __init__(self, name: str, meaning: str, labels: tuple[str, ...]) -> None:
        self.name, self.unit, self.meaning, self.labels = name, "ms", meaning, labels
        self.values: dict[tuple[str, ...], Buckets] = {}

    def record(self, value_ms: float, *labels: str) -> None:
        """Count one value of one label set."""
        buckets = self.values.get(labels)
        if buckets is None:
            buckets = self.values[labels] = Buckets([0] * (len(BUCKETS_MS) + 1))
        index = next((i for i, bound in enumerate(BUCKETS_MS) if value_ms <= bound), -1)
        buckets.counts[index] += 1
        buckets.count += 1
        buckets.total += value_ms


CALLS: Final = Histogram("rpc_duration", "Time to serve a call", ("method", "code"))
LOOP_RUNS: Final = Histogram("loop_duration", "Time of one run of a loop", ("loop", "outcome"))
TRANSACTION_RETRIES: Final = Counter(
    "transaction_retries", "1", "Transactions begun again after a serialization failure", ()
)
GROUP_SIZE: Final = Counter("group_commit_items", "1", "Items committed in groups", ("batcher",))
GROUPS: Final = Counter("group_commits", "1", "Transactions that committed groups", ("batcher",))
WATCHERS_CUT_OFF: Final = Counter("watchers_cut_off", "1", "Watchers that did not keep up", ())


def record_call(method: str, code: str, duration_ms: float) -> None:
    """Count one served call."""
    CALLS.record(duration_ms, method, code)
