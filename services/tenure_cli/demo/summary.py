"""What a demo came to, kind by kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

from tenure.admission.v1 import lease_pb2 as lpb
from tenure_cli.demo.submitting import DemoState
from tenure_cli.demo.workload import KINDS, DemoLease
from tenure_core.trails import Run
from tenure_runtime.rpc.wire import to_millis

SLOWDOWN_BOUND_MS = 10_000
"""Runs shorter than this count as so long, as is usual for the bounded slowdown."""


@dataclass(frozen=True, slots=True)
class KindSummary:
    """Leases of one kind. Waits and lateness in milliseconds."""

    kind: str
    submitted: int
    done: int
    rejected: int
    failed: int
    wait_mean: float
    wait_max: float
    slowdown: float
    preemptions: int


def summarise(state: DemoState) -> list[KindSummary]:
    """Return a summary of each kind of terms."""
    return [_kind(state, kind) for kind in KINDS]


def _kind(state: DemoState, kind: str) -> KindSummary:
    leases = [lease for lease in state.leases if lease.kind == kind]
    known = [(lease, state.known[lease.id]) for lease in leases if lease.id in state.known]
    started = [(lease, wire) for lease, wire in known if wire.HasField("start_time")]
    waits = [wait_ms(state, lease, wire) for lease, wire in started]
    slowdowns = [
        max(1.0, (wait + lease.run) / max(lease.run, SLOWDOWN_BOUND_MS))
        for (lease, _), wait in zip(started, waits, strict=True)
    ]
    states = [wire.state for _, wire in known]
    return KindSummary(
        kind,
        len(leases),
        states.count(lpb.Lease.STATE_DONE),
        states.count(lpb.Lease.STATE_REJECTED) + sum(lease.id in state.refused for lease in leases),
        states.count(lpb.Lease.STATE_FAILED),
        mean(waits) if waits else 0.0,
        max(waits, default=0.0),
        mean(slowdowns) if slowdowns else 0.0,
        sum(wire.preemption_count for _, wire in known),
    )


def wait_ms(state: DemoState, lease: DemoLease, wire: lpb.Lease) -> float:
    """Return how long a lease waited since it could first start; for a booking, its lateness."""
    since = to_millis(wire.create_time)
    if lease.start is not None:
        since = state.began_ms + lease.start
    return max(0.0, to_millis(wire.start_time) - since)


def utilisation(runs: Sequence[Run], slots: int) -> float:
    """Return the share of slot time used between the first start and the last end."""
    ended = [run for run in runs if run.end is not None]
    if not ended:
        return 0.0
    begin = min(run.start for run in ended)
    end = max(run.end for run in ended if run.end is not None)
    used = sum(stop - start for run in ended for start, stop in run.stretches if stop is not None)
    return used / (slots * (end - begin))
