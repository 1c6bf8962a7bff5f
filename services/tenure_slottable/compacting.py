"""Takes out of the slot table what is over for longer than anybody asks about, in small steps.

That is maintenance: its reservations stay behind when its time is over. What leases held is given
back by their leaders when they end, and what runs or is booked is never touched here.
"""

from __future__ import annotations

from typing import Final

from tenure_core.timebase import Millis
from tenure_slottable.ports import MaintenanceWindow, PoolTransaction, Store

WINDOWS_MAX: Final = 20
"""How many windows one run takes out at most."""

ROWS_MAX: Final = 500
"""How many reservations one transaction gives back at most: the pool is locked for some 20 ms."""


class Compacting:
    """The body of the loop that compacts."""

    def __init__(self, store: Store, retention_ms: Millis) -> None:
        self._store = store
        self._retention_ms = retention_ms

    async def run_once(self) -> int:
        """Forget windows that ended longer ago than the retention; return how many.

        Each step is a transaction of its own; one that is cut off is gone on with by the next run.
        """
        ended = await self._store.ended_windows(self._retention_ms, WINDOWS_MAX)
        for window in ended:
            while not await self._step(window):
                pass
        return len(ended)

    async def _step(self, window: MaintenanceWindow) -> bool:
        async def release(tx: PoolTransaction) -> bool:
            done = tx.table.release_of(f"maintenance-{window.id}", ROWS_MAX)
            if done:
                await tx.drop_window(window)
            return done

        return await self._store.change(window.pool, release)
