"""A pool's time on this host: slottable's, carried on by a clock that counts suspended time."""

from __future__ import annotations

from tenure_core.timebase import Clock, Millis


class PoolClock:
    """Never goes backward, and never asks this host's wall clock."""

    def __init__(self, boot: Clock) -> None:
        """`boot` counts milliseconds since some instant, also while the host sleeps."""
        self._boot = boot
        self._offset: Millis | None = None

    def observe(self, at: Millis) -> None:
        """Take over a time that slottable answered; an older one than is known tells nothing."""
        offset = at - self._boot.now_ms()
        if self._offset is None or offset > self._offset:
            self._offset = offset

    def now_ms(self) -> Millis:
        """Return the pool's time; only after something was observed."""
        assert self._offset is not None, "slottable has not told the time yet"
        return self._boot.now_ms() + self._offset
