"""Until when work may run without word from the registry.

Decides the deadline: the sending of the last beat that was acknowledged, plus the fence time. The
registry counts its longer loss time from the *receipt* of the same beat, so the work has ended
before it gives the agent up, whatever the clocks of the two say. Enforcing it is left to the
guardians, which read the same file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from tenure_agent.guardian.bootclock import boot_ms
from tenure_agent.guardian.fencefile import FenceFile, boot_id


class Fence:
    """The agent's side of the shared deadline."""

    def __init__(self, folder: Path, now_ms: Callable[[], int] = boot_ms) -> None:
        self.path = folder / f"fence-{boot_id()}"
        # Of what ran before a boot nothing is left, and nothing tells what had begun.
        self.rebooted = not self.path.exists() and any(folder.glob("fence-*"))
        self._remove_those_of_earlier_boots(folder)
        self._file = FenceFile(str(self.path))
        self._deadline_ms = self._file.deadline_ms()
        self._now_ms = now_ms
        self._renewed = asyncio.Event()
        self._on_lapse: list[Callable[[], None]] = []

    @property
    def lapsed(self) -> bool:
        """Say whether contact is not proven at present."""
        return self._now_ms() >= self._deadline_ms

    def on_lapse(self, listener: Callable[[], None]) -> None:
        """Call `listener` when contact is regained after the deadline had passed."""
        self._on_lapse.append(listener)

    def renew(self, sent_ms: int, fence_ms: int) -> None:
        """Extend the deadline: a beat sent at `sent_ms` (boot clock) was acknowledged."""
        deadline_ms = sent_ms + fence_ms
        if deadline_ms <= self._deadline_ms:
            return
        if self.lapsed:
            for listener in self._on_lapse:
                listener()
        self._file.renew(deadline_ms)
        self._deadline_ms = deadline_ms
        self._renewed.set()

    async def proven(self) -> None:
        """Return as soon as contact is proven; at once when it is."""
        while self.lapsed:
            self._renewed.clear()
            await self._renewed.wait()

    def close(self) -> None:
        """Let go of the file; the deadline stays in force."""
        self._file.close()

    def _remove_those_of_earlier_boots(self, folder: Path) -> None:
        for path in folder.glob("fence-*"):
            if path != self.path:
                path.unlink()
