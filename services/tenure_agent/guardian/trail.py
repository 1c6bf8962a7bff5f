"""The trail: a line when work begins and one when nothing of it is left, for whoever checks.

Lines are appended with one write each, so those of several processes never mix. The start line is
written by the work's own process right before it becomes the command, the end line after the last
process of the tree is gone: two intervals of one lease that overlap are two runs at once.
"""

from __future__ import annotations

import json
import os

from tenure_agent.guardian.bootclock import boot_ns, wall_ns
from tenure_agent.guardian.folder import Spec


def append(spec: Spec, event: str, pid: int, exit_code: int | None = None) -> None:
    """Append one line; `event` is `start` or `end`."""
    line: dict[str, object] = {
        "event": event,
        "lease": spec.lease,
        "attempt": spec.attempt,
        "rank": spec.rank,
        "node": spec.node,
        "pid": pid,
        "boot_ns": boot_ns(),
        "wall_ns": wall_ns(),
    }
    if exit_code is not None:
        line["exit_code"] = exit_code
    descriptor = os.open(spec.trail_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(descriptor, json.dumps(line).encode() + b"\n")
    finally:
        os.close(descriptor)
