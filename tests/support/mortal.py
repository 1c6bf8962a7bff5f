"""A leader that is killed at one of the calls that leave its process: enumerated, not sampled.

Each such call (provider, database, slot table, registry) is a place to die: before it had its
effect, after it had it, or so that its effect comes only once the next leader is at work. A dead
leader does nothing more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any

from tests.support.fleet_world import FleetWorld

from tenure_autoscaler.acting import FleetActor, Surroundings
from tenure_autoscaler.elastic_acting import ElasticActor
from tenure_autoscaler.records import GroupClaim
from tenure_autoscaler.values import GroupKind

CALLS = {
    "provider": ("create", "list_machines", "remove", "suspend", "resume"),
    "book": ("open_book", "write", "order", "tell_results"),
    "nodes": ("retire", "unretire"),
    "occupancy": ("running",),
    "applications": ("fence", "reports", "order"),
    "store": ("get_group", "add_decision"),
}


class Killed(BaseException):
    """The process is gone."""


class When(Enum):
    """When a call's effect comes, seen from the death of its caller."""

    NEVER = "the call is never made"
    BEFORE = "the effect comes, the answer does not"
    LATE = "the effect comes when the next leader is at work"


class Mortal:
    """Counts the calls that leave one process and ends it at one of them."""

    def __init__(self, dies_at: int, when: When) -> None:
        self._dies_at = dies_at
        self._when = when
        self.calls = 0
        self.dead = False
        self.late: list[Callable[[], Awaitable[Any]]] = []
        self.died_in = ""

    def wrap(self, target: Any, name: str) -> Any:
        """Return `target` with its calls of CALLS[name] counted."""
        return _Wrapped(target, CALLS[name], self)

    async def call(self, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        """Make a call, or die."""
        if self.dead:
            raise Killed
        number, self.calls = self.calls, self.calls + 1
        if number != self._dies_at:
            return await call()
        self.dead, self.died_in = True, name
        if self._when is When.BEFORE:
            await call()
        elif self._when is When.LATE:
            self.late.append(call)
        raise Killed


class _Wrapped:
    def __init__(self, target: Any, counted: tuple[str, ...], mortal: Mortal) -> None:
        self._target = target
        self._counted = counted
        self._mortal = mortal

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        if name not in self._counted:
            return found

        async def counted(*given: Any, **named: Any) -> Any:
            return await self._mortal.call(name, lambda: found(*given, **named))

        return counted


async def mortal_actor(world: FleetWorld, mortal: Mortal) -> FleetActor:
    """Return the actor of a new leader that dies where `mortal` says."""
    world.epoch += 1
    claim = GroupClaim("g", world.epoch)
    await world.book.fence(claim)
    around = Surroundings(
        mortal.wrap(world.store, "store"), mortal.wrap(world.book, "book"), world, world,
        mortal.wrap(world, "nodes"), mortal.wrap(world, "occupancy"),
        mortal.wrap(world, "applications"), world.clock,
    )  # fmt: skip
    provider = mortal.wrap(world.provider, "provider")
    kind = ElasticActor if world.group.kind is GroupKind.ELASTIC else FleetActor
    return kind(claim, provider, around, lambda: not mortal.dead)
