"""What no lease of a trace may exceed, whatever the form: a typing error must not run for ever.

Times lie in 0..2^50 milliseconds (35,000 years), widths in 1..1,000,000 slots. Leases beyond are
told by their id, since columns know no lines.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tenure_core.errors import Invalid, Violation
from tenure_core.leases.lease import Deadline
from tenure_core.timebase import Millis
from tenure_sim.workload import BadLine, Workload

TIME_MAX: Final[Millis] = 2**50
SLOTS_MAX: Final = 1_000_000


def within_limits(name: str, workload: Workload, *, skip_bad: bool) -> Workload:
    """Return the workload without what exceeds the limits; raises Invalid unless it may skip it."""
    if not len(workload) or _is_fine(workload):
        return workload
    faults = {i: fault for i in range(len(workload)) if (fault := _fault(workload, i))}
    if faults and not skip_bad:
        raise Invalid(
            [
                Violation(f"{name}: lease {workload.ids[i]}", "BAD_TRACE_LINE", fault)
                for i, fault in faults.items()
            ],
            "BAD_TRACE",
        )
    kept = [i for i in range(len(workload)) if i not in faults]
    dropped = tuple(BadLine(0, f"lease {workload.ids[i]}: {fault}") for i, fault in faults.items())
    return replace(
        workload,
        ids=[workload.ids[i] for i in kept],
        arrivals=[workload.arrivals[i] for i in kept],
        widths=[workload.widths[i] for i in kept],
        requests=[workload.requests[i] for i in kept],
        runs=[workload.runs[i] for i in kept],
        starts=None if workload.starts is None else [workload.starts[i] for i in kept],
        specs=None if workload.specs is None else [workload.specs[i] for i in kept],
        owners=None if workload.owners is None else [workload.owners[i] for i in kept],
        labels=None if workload.labels is None else [workload.labels[i] for i in kept],
        cancels=None if workload.cancels is None else [workload.cancels[i] for i in kept],
        bad=(*workload.bad, *dropped),
    )


def _is_fine(workload: Workload) -> bool:
    """Say whether no lease can be at fault, by the extremes of the columns alone."""
    starts = workload.starts
    return (
        workload.specs is None
        and workload.cancels is None
        and min(workload.arrivals) >= 0
        and max(workload.arrivals) <= TIME_MAX
        and max(workload.requests) <= TIME_MAX
        and max(workload.widths) <= SLOTS_MAX
        and (starts is None or all(at is None or 0 <= at <= TIME_MAX for at in starts))
    )


def _fault(workload: Workload, index: int) -> str:
    start = None if workload.starts is None else workload.starts[index]
    times = {
        "arrival": workload.arrivals[index],
        "duration": workload.requests[index],
        "start": start or 0,
        "cancellation": (workload.cancels[index] if workload.cancels is not None else 0) or 0,
    }
    if workload.specs is not None and isinstance(terms := workload.specs[index].terms, Deadline):
        times["deadline"] = terms.deadline
        times["earliest start"] = terms.earliest_start or 0
    for title, time in times.items():
        if not 0 <= time <= TIME_MAX:
            return f"its {title} lies outside 0..{TIME_MAX // 1_000} seconds"
    if workload.widths[index] > SLOTS_MAX:
        return f"it asks for more than {SLOTS_MAX:,} slots"
    return ""
