"""Relays the output of work from an agent's stream to whoever asked for it.

Decides how a slow reader holds back an agent without holding back its beats: the request is ended
when too much waits here, and made anew from where it stopped once that was read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from tenure_core.errors import DomainError, NotFound, Unavailable
from tenure_registry.ports import Ids
from tenure_registry.values import LogPart, LogRequest

WAITING_MAX: Final = 64
"""Parts of at most 64 KiB that may wait for one reader: 4 MiB."""

Ask = Callable[[LogRequest], None]
"""Sends a request to the agent; raises Unavailable when its stream is not open here."""


class _Tap:
    """What one reader has not read yet."""

    def __init__(self, agent: str, request: LogRequest) -> None:
        self.agent = agent
        self.request = request
        self.parts: deque[LogPart] = deque()
        self.arrived = asyncio.Event()
        self.next_offset = request.offset
        self.held_back = False
        self.error: DomainError | None = None


class LogRelay:
    """All requests for logs that are under way at this replica."""

    def __init__(self, ids: Ids) -> None:
        self._ids = ids
        self._taps: dict[str, _Tap] = {}

    def expects(self, request_id: str) -> bool:
        """Say whether a part of this request was asked for."""
        return request_id in self._taps

    def arrived(self, agent: str, part: LogPart) -> None:
        """Take a part that an agent sent; one that nobody asked it for is dropped."""
        tap = self._taps.get(part.request_id)
        if tap is None or tap.agent != agent or tap.held_back:
            return
        tap.parts.append(part)
        tap.next_offset = part.offset + len(part.data)
        if len(tap.parts) >= WAITING_MAX and not part.end:
            tap.held_back = True
        tap.arrived.set()

    def agent_gone(self, agent: str) -> None:
        """End all requests to an agent whose stream ended."""
        for tap in self._taps.values():
            if tap.agent == agent:
                tap.error = Unavailable(
                    "AGENT_DISCONNECTED",
                    "The agent's stream ended; ask again from the last offset.",
                    offset=tap.next_offset,
                )
                tap.arrived.set()

    async def stream(
        self, agent: str, wanted: LogRequest, ask: Ask
    ) -> AsyncGenerator[tuple[int, bytes], None]:
        """Yield (offset, data) until the log ends. Close it to end the agent's sending.

        Raises NotFound ALLOCATION_NOT_FOUND when the agent has no such log, Unavailable when its
        stream ends.
        """
        tap = self._open(agent, wanted, ask)
        try:
            while True:
                while tap.parts:
                    part = tap.parts.popleft()
                    if part.reason:
                        raise NotFound("ALLOCATION_NOT_FOUND", f"No log: {part.reason}.")
                    if part.data:
                        yield part.offset, part.data
                    if part.end:
                        return
                if tap.error is not None:
                    raise tap.error
                if tap.held_back:
                    tap = self._resume(tap, ask)
                    continue
                if tap.request.cancel:
                    return
                tap.arrived.clear()
                await tap.arrived.wait()
                if tap.held_back:
                    ask(replace(tap.request, cancel=True))
        finally:
            if self._taps.pop(tap.request.request_id, None) and tap.error is None:
                self._say_quietly(ask, replace(tap.request, cancel=True))

    def _open(self, agent: str, wanted: LogRequest, ask: Ask) -> _Tap:
        tap = _Tap(agent, replace(wanted, request_id=self._ids.short(12)))
        self._taps[tap.request.request_id] = tap
        try:
            ask(tap.request)
        except DomainError:
            del self._taps[tap.request.request_id]
            raise
        return tap

    def _resume(self, tap: _Tap, ask: Ask) -> _Tap:
        """Ask anew, under a new id: parts of the old request may still be on their way."""
        del self._taps[tap.request.request_id]
        return self._open(tap.agent, replace(tap.request, offset=tap.next_offset), ask)

    def _say_quietly(self, ask: Ask, request: LogRequest) -> None:
        # When the agent's stream is gone, so is the request.
        with suppress(DomainError):
            ask(request)
