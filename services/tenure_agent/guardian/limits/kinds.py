"""Which limits are of which kind."""

from __future__ import annotations

from tenure_agent.guardian.limits.bounds import Bounds, Group
from tenure_agent.guardian.limits.cgroup1 import Cgroup1
from tenure_agent.guardian.limits.cgroup2 import Cgroup2
from tenure_agent.guardian.limits.rlimits import Rlimits


def group_of(bounds: Bounds) -> Group | None:
    """Return the group of an allocation, None when nothing holds it; nothing is made yet."""
    match bounds.kind:
        case "cgroup1":
            return Cgroup1(bounds)
        case "cgroup2":
            return Cgroup2(bounds)
        case "rlimit":
            return Rlimits(bounds)
        case _:
            return None
