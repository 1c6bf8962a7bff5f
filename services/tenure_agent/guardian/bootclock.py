"""The clock of the fence: nanoseconds since boot, counting suspended time.

Separate from `tenure_runtime.clocks` because a guardian imports nothing outside its package; both
read CLOCK_BOOTTIME, so their values compare within one boot.
"""

from __future__ import annotations

import time

_SOURCE = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_ns() -> int:
    """Return nanoseconds since boot; only differences and shared deadlines mean something."""
    return time.clock_gettime_ns(_SOURCE)


def boot_ms() -> int:
    """Return milliseconds since boot."""
    return boot_ns() // 1_000_000


def wall_ns() -> int:
    """Return the wall clock in nanoseconds since the Unix epoch, for people and checkers only."""
    return time.clock_gettime_ns(time.CLOCK_REALTIME)
