"""How far a simulation is, for whoever wants to show it.

The simulation writes, another thread may read; nothing is decided by it.
"""

from __future__ import annotations


class Progress:
    """How many leases of the workload have arrived so far."""

    __slots__ = ("done",)

    def __init__(self) -> None:
        self.done = 0
