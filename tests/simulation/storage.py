"""The way from a service's process to its database, where a crash or a failure can fall between.

The memory stores keep what a database would: they outlive the processes. Each call is one
transaction that runs on the database's side, whole or not at all, whatever becomes of the process
that asked: killed before, it never happens; killed after, it has happened and nobody was told.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import Any, Final, Protocol

from tests.simulation.world import World
from tests.support.virtual_loop import PROCESS, outside

from tenure_core.errors import Unavailable

TRIP_S: Final = (0.0001, 0.002)
SLOW_S: Final = (0.02, 1.5)


class Watcher(Protocol):
    """Sees each transaction."""

    def before(self, store: str, method: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments, perhaps with something in them that looks closer."""
        ...

    def after(self, store: str, method: str, arguments: tuple[Any, ...], result: Any) -> None:
        """Take in what took effect."""
        ...


class Doomed:
    """Kills processes at a moment of their own work: before or after a transaction."""

    def __init__(self, world: World) -> None:
        self._world = world

    def strikes(self, where: str) -> None:
        """Kill the process at hand, if its time has come."""
        process = PROCESS.get()
        if process is None or not process.alive:
            return
        if self._world.chance("doom", self._world.rates.doom):
            self._world.say(f"CRASH      {where}")
            process.kill()
            process.check()


class DatabaseLink:
    """A store as a process reaches it. Watches pass; calls take time and may fail."""

    def __init__(self, world: World, name: str, store: Any, watcher: Watcher) -> None:
        self._world = world
        self._name = name
        self._store = store
        self._watcher = watcher
        self._doom = Doomed(world)

    def __getattr__(self, method: str) -> Any:
        real = getattr(self._store, method)
        if not inspect.iscoroutinefunction(real) or method == "run":
            return real

        async def call(*arguments: Any, **named: Any) -> Any:
            return await self._transact(method, real, arguments, named)

        # Once made it stays: `__getattr__` is asked for what is not there.
        self.__dict__[method] = call
        return call

    async def _transact(
        self, method: str, real: Any, arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> Any:
        world, what = self._world, f"{self._name}.{method}"
        await self._trip()
        self._doom.strikes(f"before {what}")
        if world.chance("database", world.rates.database):
            world.say(f"failed     {what}, before it had an effect")
            raise _away()
        process = PROCESS.get()
        if process is not None:
            process.check()
        # On the database's side: a process that is killed meanwhile does not tear it apart.
        result = await world.loop.create_task(
            self._run(method, real, arguments, named), context=outside()
        )
        self._doom.strikes(f"after {what}")
        if world.chance("database", world.rates.database):
            world.say(f"failed     {what}, after it had its effect")
            raise _away()
        await self._trip()
        return result

    async def _run(
        self, method: str, real: Any, arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> Any:
        result = await real(*self._watcher.before(self._name, method, arguments), **named)
        self._watcher.after(self._name, method, arguments, result)
        self._world.step()
        return result

    async def _trip(self) -> None:
        await asyncio.sleep(trip_s(self._world))


def trip_s(world: World) -> float:
    """Return how long the way to the database takes this time."""
    slow = world.chance("slow_database", world.rates.slow)
    return world.rng("trip").uniform(*(SLOW_S if slow else TRIP_S))


def _away() -> Unavailable:
    return Unavailable("DATABASE_UNAVAILABLE", "The database is away or too busy.")
