"""Summary figures of a simulation, over all leases and for each kind of terms.

- wait: first start less arrival, of leases that started;
- bounded slowdown: max(1, (end - arrival) / max(run, 10 s)), of leases that ended having run;
- utilisation: slots times real run time of the leases that ran, over slots times the span from the
  first arrival to the last end;
- waste: slot time given to attempts whose progress was lost, over slot time used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from tenure_core.timebase import Millis
from tenure_sim.workload import Workload

BOUND_MS = 10_000
"""The run time below which slowdown is computed as if the run had been so long."""


@dataclass(frozen=True, slots=True)
class KindScores:
    """The figures of one kind of leases."""

    leases: int
    done: int
    rejected: int
    wait_mean_ms: float
    wait_max_ms: Millis
    bounded_slowdown_mean: float
    preemptions: int


@dataclass(frozen=True, slots=True)
class Scores:
    """The figures of a run; `by_kind` has one entry a kind of terms that occurs."""

    all: KindScores
    by_kind: dict[str, KindScores]
    utilisation: float
    makespan_ms: Millis
    waste: float

    def as_json(self) -> dict[str, object]:
        """Return the figures as plain values."""
        return asdict(self)


def score(
    workload: Workload,
    *,
    slots: int,
    kinds: Sequence[str],
    states: Sequence[str],
    starts: Sequence[Millis | None],
    ends: Sequence[Millis | None],
    preemptions: Sequence[int],
    lost_ms: Millis = 0,
) -> Scores:
    """Return the figures of an outcome given as columns; `lost_ms` is slot time that was lost."""
    groups: dict[str, list[int]] = {}
    for index, kind in enumerate(kinds):
        groups.setdefault(kind, []).append(index)
    used = 0
    last = first = workload.arrivals[0] if len(workload) else 0
    for index, end in enumerate(ends):
        if end is not None and starts[index] is not None:
            run = workload.runs[index]
            if states[index] == "CANCELLED":
                run = min(run, end - (starts[index] or 0))
            used += workload.widths[index] * run
            last = max(last, end)
    span = last - first
    columns = (workload, states, starts, ends, preemptions)
    return Scores(
        all=_of_kind(range(len(workload)), *columns),
        by_kind={kind: _of_kind(groups[kind], *columns) for kind in sorted(groups)},
        utilisation=round(used / (slots * span), 6) if span and slots else 0.0,
        makespan_ms=span,
        waste=round(lost_ms / (used + lost_ms), 6) if used + lost_ms else 0.0,
    )


def _of_kind(
    indices: Sequence[int],
    workload: Workload,
    states: Sequence[str],
    starts: Sequence[Millis | None],
    ends: Sequence[Millis | None],
    preemptions: Sequence[int],
) -> KindScores:
    arrivals, runs = workload.arrivals, workload.runs
    started = waits = longest = finished = done = rejected = evicted = 0
    slowdowns = 0.0
    for i in indices:
        start, end, state = starts[i], ends[i], states[i]
        evicted += preemptions[i]
        if state == "DONE":
            done += 1
        elif state == "REJECTED":
            rejected += 1
        if start is None:
            continue
        wait = start - arrivals[i]
        started += 1
        waits += wait
        if wait > longest:
            longest = wait
        if end is not None and state != "CANCELLED":
            finished += 1
            ratio = (end - arrivals[i]) / (runs[i] if runs[i] > BOUND_MS else BOUND_MS)
            slowdowns += ratio if ratio > 1.0 else 1.0
    return KindScores(
        leases=len(indices),
        done=done,
        rejected=rejected,
        wait_mean_ms=round(waits / started, 3) if started else 0.0,
        wait_max_ms=longest,
        bounded_slowdown_mean=round(slowdowns / finished, 4) if finished else 0.0,
        preemptions=evicted,
    )
