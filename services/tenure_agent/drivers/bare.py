"""Allocations without a command: their owner wants the capacity only, so nothing runs.

They begin at once and end when told, or when contact was lost for longer than the fence time: then
the registry counts them as over, and so must we.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tenure_agent.fence import Fence
from tenure_agent.guardian.bootclock import boot_ms
from tenure_agent.ports import Listener
from tenure_agent.work import Event, Key, Launch, State


class BareDriver:
    """Keeps account of allocations that are capacity and nothing more."""

    suspended_keeps: tuple[str, ...] = ()

    def __init__(self, fence: Fence, now_ms: Callable[[], int] = boot_ms) -> None:
        self._fence = fence
        self._now_ms = now_ms
        self._since_ms: dict[Key, int] = {}
        self._kept: set[Key] = set()
        fence.on_lapse(self._end_fenced)

    def listen(self, listener: Listener) -> None:
        """Send events to `listener`."""
        self._tell = listener

    def start(self, key: Key, launch: Launch, *, before_ms: int, traceparent: str) -> None:
        """Count it as running, unless it is too late."""
        del traceparent
        if self._now_ms() > before_ms:
            self._tell(Event(key, State.ENDED, reason="EXPIRED"))
            return
        self._count(key, launch.keep_on_loss)
        self._tell(Event(key, State.RUNNING))

    def suspend(self, key: Key) -> None:
        """Count it as suspended."""
        self._tell(Event(key, State.SUSPENDED, self._run_ms(key)))

    def resume(self, key: Key) -> None:
        """Count it as running."""
        self._tell(Event(key, State.RUNNING, self._run_ms(key)))

    def stop(self, key: Key, *, grace_ms: int, reason: str) -> None:
        """Count it as ended."""
        del grace_ms
        self._end(key, "STOPPED", reason)

    def recover(self, keys: Mapping[Key, bool]) -> frozenset[Key]:
        """Count allocations of an earlier process on, or as ended when the fence has passed."""
        for key, keep_on_loss in keys.items():
            self._count(key, keep_on_loss)
        if self._fence.lapsed:
            self._end_fenced()
        return frozenset()

    def _count(self, key: Key, keep_on_loss: bool) -> None:
        self._since_ms[key] = self._now_ms()
        if keep_on_loss:
            self._kept.add(key)

    def _end_fenced(self) -> None:
        for key in [key for key in self._since_ms if key not in self._kept]:
            self._end(key, "FENCED", "Out of contact for longer than the fence time.")

    def _end(self, key: Key, reason: str, message: str) -> None:
        run_ms = self._run_ms(key)
        self._since_ms.pop(key, None)
        self._kept.discard(key)
        self._tell(Event(key, State.ENDED, run_ms, 0, reason, message))

    def _run_ms(self, key: Key) -> int:
        now_ms = self._now_ms()
        return now_ms - self._since_ms.get(key, now_ms)
