"""From a workload trace to the leases of a demo: time compressed, all four kinds of terms.

The trace says who comes when, how wide, for how long, and how much longer was asked for. Which
kind of terms a job gets is decided by its place among the jobs, the same each time: the widest are
booked in advance, so that they must take capacity from others.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tenure_core.errors import Invalid, Violation
from tenure_core.timebase import Millis
from tenure_sim.lublin import LublinModel, write_swf
from tenure_sim.swf import read_swf
from tenure_sim.workload import Workload

TRACE: Final = Path(__file__).with_name("workload.swf")
MODEL: Final = LublinModel(jobs=60, processors=32, seed=11)
"""Where the trace in the repository comes from: `python -m tenure_cli.demo.workload`."""

ARRIVALS_MS: Final[Millis] = 40_000
"""Over what time all jobs arrive."""

FILLED_MS: Final[Millis] = 60_000
"""How long all slots would be busy if the work were packed without a gap."""

RUN_MIN_MS: Final[Millis] = 1_500
RUN_MAX_MS: Final[Millis] = 12_000
START_SLACK_MS: Final[Millis] = 3_000
"""What a request allows besides the run: a busy small machine starts processes slowly."""

BOOKING_LEAD_MS: Final[Millis] = 4_000
"""How long ahead a booking is made, at least."""

BOOKING_GAP_MS: Final[Millis] = 2_000
"""How long after the end of one booking the next begins, at least."""

ROUNDS: Final = 10
KINDS: Final = ("best effort", "advance", "deadline", "immediate")


@dataclass(frozen=True, slots=True)
class DemoLease:
    """One lease of the demo. Times are milliseconds from its begin."""

    id: str
    kind: str
    arrival: Millis
    width: int
    request: Millis
    run: Millis
    start: Millis | None = None
    deadline: Millis | None = None

    @property
    def seed(self) -> str:
        """Return the seed of its computation."""
        return f"tenure-demo-{self.id}"


def demo_leases(trace: Path, slots: int, limit: int = 60) -> list[DemoLease]:
    """Return the leases of a trace for a pool of `slots` slots, in the order of arrival."""
    workload = read_swf(trace, processors=10**9, first=limit, skip_bad=True)
    if not len(workload):
        raise Invalid([Violation("trace", "NO_JOBS", f"{trace} holds no job")])
    machine = max(slots, *workload.widths)
    widths = [max(1, round(width * slots / machine)) for width in workload.widths]
    span = max(workload.arrivals[-1] - workload.arrivals[0], 1)
    runs = _compressed(workload, widths, slots)
    order = sorted(range(len(workload)), key=lambda i: (-widths[i], i))
    advance = set(order[: max(2, len(order) // 15)])
    found = []
    booked = 0
    for index, name in enumerate(workload.ids):
        arrival = (workload.arrivals[index] - workload.arrivals[0]) * ARRIVALS_MS // span
        run = runs[index]
        factor = min(3.0, workload.requests[index] / max(workload.runs[index], 1))
        request = round(run * factor) + START_SLACK_MS
        start = deadline = None
        if index in advance:
            # Who books a time knows well how long it takes, and bookings are spread out.
            kind, request = "advance", run + START_SLACK_MS
            booked = max(booked + BOOKING_GAP_MS, arrival + BOOKING_LEAD_MS)
            start = booked
            booked += request
        elif index % 7 == 3:
            kind, deadline = "deadline", arrival + 3 * request + 15_000
        elif index % 11 == 5 and widths[index] <= slots // 8:
            kind = "immediate"
        else:
            kind = "best effort"
        lease = DemoLease(
            f"demo-{name}", kind, arrival, widths[index], request, run, start, deadline
        )
        found.append(lease)
    return found


def _compressed(workload: Workload, widths: list[int], slots: int) -> list[Millis]:
    """Scale the run times until the work fills the slots for FILLED_MS, within their bounds."""
    wanted = slots * FILLED_MS
    factor = wanted / sum(w * r for w, r in zip(widths, workload.runs, strict=True))
    runs = list(workload.runs)
    for _ in range(20):
        runs = [min(RUN_MAX_MS, max(RUN_MIN_MS, round(run * factor))) for run in workload.runs]
        work = sum(w * r for w, r in zip(widths, runs, strict=True))
        if abs(work - wanted) < wanted // 50:
            break
        factor *= wanted / work
    return runs


def main() -> None:
    """Write the trace of the repository anew."""
    with TRACE.open("w", encoding="utf-8") as out:
        write_swf(MODEL, out)


if __name__ == "__main__":
    main()
