"""What becomes of a lease that is held until its owner confirms it, and that nobody confirms."""

from __future__ import annotations

from tenure_core.enactment.facts import Step
from tenure_core.leases.lease import Lease
from tenure_core.leases.states import WAITING, LeaseState
from tenure_core.timebase import Millis

S = LeaseState


def is_over(lease: Lease, now: Millis) -> bool:
    """Say whether the time to confirm the lease has passed."""
    held = lease.state in WAITING or lease.state is S.SCHEDULED
    return held and lease.hold_expires is not None and lease.hold_expires <= now


def expired(lease: Lease, now: Millis) -> Step:
    """Return how a lease that nobody confirmed is given up.

    One that is booked is CANCELLING first: its owner may be confirming it at this moment, and what
    was given back by then could not be promised any more.
    """
    text = "Nobody confirmed it in time."
    if lease.state is S.SCHEDULED:
        return Step(lease.id, S.CANCELLING, "HOLD_EXPIRED", text)
    return Step(lease.id, S.CANCELLED, "HOLD_EXPIRED", text, release=True, ended=now)
