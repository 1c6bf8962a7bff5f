"""A lease of the live system as one of a trace: what it asked for, and how long it really ran.

Only the time in which its last attempt was ACTIVE counts as run: neither the time it stood
suspended nor what was lost with earlier attempts. What its owner ended while it ran is taken to
have been over by then; what left without having run leaves a replay at the same instant, whether it
waits there or runs.
"""

from __future__ import annotations

from typing import Final

from tenure_core.leases.lease import HistoryEntry, Lease
from tenure_core.leases.states import ENDED, WAITING, LeaseState
from tenure_core.timebase import Millis
from tenure_sim.workload import SimLease

_BEFORE: Final = WAITING | {LeaseState.SCHEDULED}
"""Whoever is in one of these has no progress."""


def as_it_was(lease: Lease) -> SimLease:
    """Return a lease as it is to be replayed.

    One that was rejected, or that has not ended, is taken to need all the time that it asked for.
    """
    whole = SimLease(lease.id, lease.created, lease.spec, lease.spec.duration_ms)
    if lease.state not in ENDED or lease.state is LeaseState.REJECTED or lease.ended is None:
        return whole
    ran = ran_ms(lease)
    if ran is not None:
        run_ms = min(lease.spec.duration_ms, max(1, ran))
        return SimLease(lease.id, lease.created, lease.spec, run_ms)
    return SimLease(lease.id, lease.created, lease.spec, whole.run_ms, cancel=lease.ended)


def ran_ms(lease: Lease) -> Millis | None:
    """Return how long the last attempt of a lease that ended ran, None when it never did.

    Work that was over before all its agents had confirmed ran since they were told to start it. Of
    a lease the newest hundred transitions are kept: runs before them are not counted.
    """
    steps: list[HistoryEntry] = []
    for entry in lease.history:
        steps = [] if entry.state in _BEFORE else [*steps, entry]
    began = {LeaseState.ACTIVE}
    if not any(entry.state is LeaseState.ACTIVE for entry in steps):
        began = {LeaseState.STARTING}
    total: Millis | None = None
    for index, entry in enumerate(steps):
        if entry.state in began:
            until = steps[index + 1].at if index + 1 < len(steps) else lease.ended
            total = (total or 0) + max(0, (until or entry.at) - entry.at)
    return total
