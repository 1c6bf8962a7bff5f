"""One planning pass: a frozen snapshot in, a plan out; the same input gives the same bytes."""

from __future__ import annotations

from tenure_core.planning.plan import Plan
from tenure_core.planning.snapshot import Snapshot
from tenure_core.policies.bundle import Policies


def plan(snapshot: Snapshot, policies: Policies) -> Plan:
    """Return what to book, move and release now, and what becomes of each lease.

    Pure: it reads nothing but its arguments and changes neither.
    """
    raise NotImplementedError
