"""How replicas tell one another to look at agents: PostgreSQL's LISTEN and NOTIFY.

Decides the form of a notice. One may be lost, so whoever listens anew looks at everything once.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from typing import Final

import asyncpg

from tenure_runtime.postgres.pool import Pool
from tenure_runtime.telemetry.logging import get_logger

CHANNEL: Final = "tenure_registry_notice"
# A payload has at most 8,000 bytes, an agent's id at most 63.
_AGENTS_MAX: Final = 100
_WAITING_MAX: Final = 1_000

Heard = Callable[[list[str] | None], Awaitable[None]]
"""Told the agents to look at, or None for all of them."""


class PostgresNotices:
    """Sends and hears notices; `run()` belongs in a TaskGroup."""

    def __init__(self, pool: Pool, replica: str) -> None:
        self._pool = pool
        self._replica = replica
        self._outgoing: deque[str] = deque(maxlen=_WAITING_MAX)
        self._incoming: deque[list[str] | None] = deque(maxlen=_WAITING_MAX)
        self._to_send = asyncio.Event()
        self._to_hear = asyncio.Event()

    def tell(self, replica: str, agents: Collection[str]) -> None:
        """Have a replica look at these agents soon; never waits."""
        names = list(agents)
        for start in range(0, len(names), _AGENTS_MAX):
            part = names[start : start + _AGENTS_MAX]
            self._outgoing.append(json.dumps([replica, part], separators=(",", ":")))
        self._to_send.set()

    async def run(self, heard: Heard) -> None:
        """Send and hear until cancelled, over reconnections."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._hear(heard))
            while True:
                try:
                    await self._attend()
                except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                    get_logger().warning("notices.unattended", error=str(error))
                await asyncio.sleep(0.5)

    async def _hear(self, heard: Heard) -> None:
        while True:
            await self._to_hear.wait()
            self._to_hear.clear()
            waiting = [self._incoming.popleft() for _ in range(len(self._incoming))]
            agents: list[str] | None = None
            if None not in waiting:
                agents = sorted({name for part in waiting if part is not None for name in part})
            try:
                await heard(agents)
            except Exception as error:  # noqa: BLE001 - the top of a loop
                get_logger().error("notice.failed", exc_info=error)
                self._incoming.append(None)
                await asyncio.sleep(0.5)
                self._to_hear.set()

    def _arrived(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        replica, agents = json.loads(str(payload))
        if replica == self._replica:
            self._incoming.append(agents)
            self._to_hear.set()

    async def _attend(self) -> None:
        def lost(_: object) -> None:
            gone.set()
            self._to_send.set()

        gone = asyncio.Event()
        async with self._pool.acquire() as connection:
            connection.add_termination_listener(lost)
            await connection.add_listener(CHANNEL, self._arrived)
            # Whatever was told while nobody listened is found by looking at everything.
            self._incoming.append(None)
            self._to_hear.set()
            try:
                while not gone.is_set():
                    await self._to_send.wait()
                    self._to_send.clear()
                    while self._outgoing and not gone.is_set():
                        await connection.execute(
                            "SELECT pg_notify($1, $2)", CHANNEL, self._outgoing[0]
                        )
                        self._outgoing.popleft()
            finally:
                connection.remove_termination_listener(lost)
                if not connection.is_closed():
                    await connection.remove_listener(CHANNEL, self._arrived)


class NoNotices:
    """For a registry that is alone."""

    def tell(self, replica: str, agents: Collection[str]) -> None:
        """Do nothing: there is no other replica."""
