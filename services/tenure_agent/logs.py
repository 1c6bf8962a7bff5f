"""Reads what leases print and sends it on request, once or as it comes.

Decides how a log is read: in pieces of at most 64 KiB, from the asked offset, with `follow` until
the work has ended and all is sent. How much is kept is decided where it is written
(`guardian.output`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tenure_agent.guardian import folder as folders
from tenure_agent.ledger import Ledger
from tenure_agent.work import Key, is_lease_id

CHUNK_BYTES: Final = 64 * 1024
REQUESTS_MAX: Final = 64
_LOOK_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class LogWish:
    """What is asked for.

    `attempt` 0 is the last one here; a negative `offset` counts from the end.
    """

    id: str
    key: Key
    offset: int
    follow: bool


@dataclass(frozen=True, slots=True)
class LogPart:
    """A part of a log, or with a `reason` the news that there is none."""

    id: str
    offset: int
    data: bytes = b""
    end: bool = False
    reason: str = ""


Send = Callable[[LogPart], Awaitable[None]]


class Logs:
    """Serves log requests of one stream, each in a task of its own."""

    def __init__(self, ledger: Ledger, folder_of: Callable[[Key], Path], send: Send) -> None:
        self._ledger = ledger
        self._folder_of = folder_of
        self._send = send
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def begin(self, wish: LogWish) -> None:
        """Start to send a log. More than `REQUESTS_MAX` at once are refused with LOGS_BUSY."""
        if wish.id in self._tasks:
            return
        if len(self._tasks) >= REQUESTS_MAX:
            await self._send(LogPart(wish.id, 0, end=True, reason="LOGS_BUSY"))
            return
        task = asyncio.get_running_loop().create_task(self._serve(wish))
        self._tasks[wish.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(wish.id, None))

    def cancel(self, request_id: str) -> None:
        """End a request; nothing more is sent for it."""
        task = self._tasks.pop(request_id, None)
        if task is not None:
            task.cancel()

    def close(self) -> None:
        """End all requests: the stream is gone."""
        for request_id in list(self._tasks):
            self.cancel(request_id)

    async def _serve(self, wish: LogWish) -> None:
        key = self._find(wish.key)
        if key is None:
            await self._send(LogPart(wish.id, 0, end=True, reason="ALLOCATION_NOT_FOUND"))
            return
        path = self._folder_of(key) / folders.OUTPUT
        offset = _first_offset(path, wish.offset)
        while True:
            # Whether it has ended is asked before reading: what is read after the end is all.
            over = not wish.follow or self._ended(key)
            offset = await self._send_present(wish.id, path, offset)
            if over:
                await self._send(LogPart(wish.id, offset, end=True))
                return
            await asyncio.sleep(_LOOK_S)

    async def _send_present(self, request_id: str, path: Path, offset: int) -> int:
        while data := _read(path, offset):
            await self._send(LogPart(request_id, offset, data))
            offset += len(data)
        return offset

    def _find(self, wanted: Key) -> Key | None:
        """Return the allocation that is meant, if it is known or its folder is still there."""
        if not is_lease_id(wanted.lease):
            return None
        if wanted.attempt:
            known = wanted in self._ledger.allocations or self._folder_of(wanted).is_dir()
            return wanted if known else None
        mine = [a.key for a in self._ledger.of_lease(wanted.lease) if a.key.rank == wanted.rank]
        return max(mine, default=None)

    def _ended(self, key: Key) -> bool:
        allocation = self._ledger.allocations.get(key)
        return allocation is None or allocation.ended


def _first_offset(path: Path, asked: int) -> int:
    if asked >= 0:
        return asked
    try:
        return max(0, path.stat().st_size + asked)
    except FileNotFoundError:
        return 0


def _read(path: Path, offset: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(CHUNK_BYTES)
    except FileNotFoundError:
        return b""  # nothing was printed yet, or the folder was pruned
