"""How often the slot table refused a lease's booking, and how long to leave it be.

A table that changed meanwhile explains a refusal or two: those are planned anew at once. After that
a fault is more likely, and a lease that is charged and uncharged a hundred times a second would
keep everybody busy.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from tenure_core.planning.snapshot import Blocked
from tenure_core.timebase import Millis

AT_ONCE: Final = 3
FIRST_MS: Final[Millis] = 100
LONGEST_MS: Final[Millis] = 5_000
KNOWN_MAX: Final = 10_000

REFUSED: Final = Blocked(
    "PLAN_REFUSED", "The slot table refuses its booking; it is tried again shortly."
)


class Refusals:
    """Counts refusals in a row, of the leases last refused."""

    def __init__(self) -> None:
        self._counts: OrderedDict[str, int] = OrderedDict()

    def note(self, lease: str) -> Millis:
        """Count one more; return how long to leave the lease out of the plan."""
        times = self._counts.pop(lease, 0) + 1
        self._counts[lease] = times
        if len(self._counts) > KNOWN_MAX:
            self._counts.popitem(last=False)
        if times < AT_ONCE:
            return 0
        return min(FIRST_MS << min(times - AT_ONCE, 16), LONGEST_MS)

    def forget(self, lease: str) -> None:
        """Forget a lease whose booking was taken."""
        self._counts.pop(lease, None)
