"""How replicas of the registry tell one another to look at agents, by way of the database.

Decides what may happen to a notice: it takes as long as any trip to the database, it may be lost,
and a replica that starts hears nothing of before. As `tenure_registry.notices` does, a replica that
begins to listen, or could not do what it was told, looks at everything once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from tests.simulation.storage import trip_s
from tests.simulation.world import World
from tests.support.virtual_loop import Process, outside

Heard = Callable[[list[str] | None], Awaitable[None]]
AGAIN_S: Final = 0.5


class NoticeBoard:
    """Who listens, by replica."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._hearers: dict[str, tuple[Process, Heard]] = {}

    def listen(self, replica: str, process: Process, heard: Heard) -> None:
        """Have a replica hear what it is told from now on."""
        self._hearers[replica] = (process, heard)
        process.spawn(_hear(heard, None))

    def tell(self, replica: str, agents: Collection[str]) -> None:
        """Have a replica look at these agents soon, if the notice arrives."""
        world = self._world
        if world.chance("notice", 5 * world.rates.database):
            world.say(f"lost       a notice to {replica}")
            return
        names = list(agents)
        world.loop.call_later(trip_s(world), self._arrive, replica, names, context=outside())

    def _arrive(self, replica: str, agents: list[str]) -> None:
        process, heard = self._hearers.get(replica, (None, None))
        if process is not None and heard is not None and process.alive:
            process.spawn(_hear(heard, agents))


async def _hear(heard: Heard, agents: list[str] | None) -> None:
    while True:
        try:
            await heard(agents)
            return
        except Exception:
            await asyncio.sleep(AGAIN_S)
            agents = None
