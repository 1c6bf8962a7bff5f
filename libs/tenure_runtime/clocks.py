"""The real clocks behind the core's `Clock` port, and one that counts suspended time.

Decides where time comes from. What an instant means is left to `tenure_core.timebase`.
"""

from __future__ import annotations

import time

from tenure_core.timebase import Millis


class SystemClock:
    """The wall clock of this host. Never compare it with another host's."""

    def now_ms(self) -> Millis:
        """Return the present instant in milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000


class BootClock:
    """Milliseconds since boot, counting suspended time; for deadlines that a pause must not stop.

    CLOCK_BOOTTIME where the system has it (Linux), else the monotonic clock (macOS counts
    suspended time there under another name; Python gives no portable access to it).
    """

    def __init__(self) -> None:
        self._source = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def now_ms(self) -> Millis:
        """Return milliseconds since boot; only differences mean something."""
        return time.clock_gettime_ns(self._source) // 1_000_000
