"""Elections within one process: for tests, simulation, and a service that runs alone.

First come, first to lead; nobody is ever silent, so there is no time to live. `Seats.take_away`
ends a leadership as a lost lease would.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final

from tenure_core.errors import WrongState

from .elector import Leader, check_scope


@dataclass(slots=True)
class _Seat:
    """One scope: who leads, who waits in which order, and how many have led."""

    holder: FixedLeadership | None = None
    waiting: list[FixedLeadership] = field(default_factory=list)
    tokens: int = 0
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)


class Seats:
    """What the electors of one process share, as others share a store."""

    def __init__(self) -> None:
        self._seats: dict[str, _Seat] = {}

    def seat(self, scope: str) -> _Seat:
        """Return the seat of `scope`, made on first use."""
        return self._seats.setdefault(scope, _Seat())

    async def take_away(self, scope: str) -> None:
        """End the present leadership of `scope`, if there is one, as if its lease were lost."""
        holder = self.seat(scope).holder
        if holder is not None:
            await holder.resign()

    async def advance(self, scope: str) -> None:
        """Seat the next candidate if the seat is free, and wake whoever looks at it."""
        seat = self.seat(scope)
        async with seat.changed:
            if seat.holder is not None and seat.holder.lost.is_set():
                seat.holder = None
            if seat.holder is None and seat.waiting:
                seat.tokens += 1
                seat.holder = seat.waiting.pop(0)
                seat.holder.token = seat.tokens
            seat.changed.notify_all()


class FixedLeadership:
    """Leadership of one scope in one process."""

    def __init__(self, scope: str, value: str, seats: Seats) -> None:
        self.scope: Final = scope
        self.value: Final = value
        self.token = 0
        self.lost: Final = asyncio.Event()
        self._seats = seats

    def valid(self) -> bool:
        """Say whether this replica leads (see the port)."""
        return self._seats.seat(self.scope).holder is self and not self.lost.is_set()

    async def resign(self) -> None:
        """Give the scope back (see the port)."""
        self.lost.set()
        await self._seats.advance(self.scope)


class FixedElector:
    """A replica's elections over `seats`; without it, one that always wins at once."""

    def __init__(self, seats: Seats | None = None) -> None:
        self._seats = seats or Seats()
        self._entered: dict[str, FixedLeadership] = {}

    async def campaign(self, scope: str, value: str) -> FixedLeadership:
        """Wait until this replica leads `scope` (see the port)."""
        check_scope(scope)
        previous = self._entered.get(scope)
        if previous is not None and not previous.lost.is_set():
            raise WrongState("ALREADY_CANDIDATE", f"this replica runs for {scope} already")
        leadership = self._entered[scope] = FixedLeadership(scope, value, self._seats)
        seat = self._seats.seat(scope)
        seat.waiting.append(leadership)
        try:
            await self._seats.advance(scope)
            async with seat.changed:
                await seat.changed.wait_for(lambda: leadership.token > 0)
        except BaseException:
            if leadership in seat.waiting:
                seat.waiting.remove(leadership)
            await leadership.resign()
            raise
        return leadership

    async def leader(self, scope: str) -> Leader | None:
        """Return the present leader of `scope`, or None (see the port)."""
        check_scope(scope)
        holder = self._seats.seat(scope).holder
        return Leader(holder.value, holder.token) if holder is not None else None

    async def observe(self, scope: str) -> AsyncIterator[Leader | None]:
        """Yield the leader of `scope` and its changes (see the port)."""
        last = await self.leader(scope)
        yield last
        seat = self._seats.seat(scope)
        while True:
            async with seat.changed:
                while (now := await self.leader(scope)) == last:
                    await seat.changed.wait()
            last = now
            yield now

    async def close(self) -> None:
        """Resign everything (see the port)."""
        for leadership in self._entered.values():
            if leadership.valid():
                await leadership.resign()
