"""Elections with leases by virtual time, as an etcd would hold them, over the faulty network.

A seat is held until its time to live has passed since the last renewal that arrived. The holder
counts from the *sending* of the last renewal that was answered, on its own host's clock, so it
knows of its end first. Renewals can be lost like everything else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from tests.simulation.network import Network
from tests.simulation.world import BootView, Host, World
from tests.support.virtual_loop import PROCESS, Process

from tenure_core.errors import Unavailable
from tenure_runtime.election.elector import Leader

TTL_MS: Final = 3_000
RENEW_S: Final = 1.0
ASK_S: Final = 0.25
PATIENCE_S: Final = 0.8


@dataclass(slots=True)
class Seat:
    """One scope: who holds it, until when by the store's clock."""

    holder: str = ""
    value: str = ""
    token: int = 0
    ends_ms: int = 0


class Etcd:
    """The store: one host whose clock rules."""

    def __init__(self, world: World, network: Network, host: str = "etcd") -> None:
        self.world = world
        self.network = network
        self.host = host
        self.seats: dict[str, Seat] = {}

    def hold(self, scope: str, holder: str, value: str) -> int:
        """Take or renew a seat; return the token, 0 when another holds it."""
        now = self.world.now_ms()
        seat = self.seats.setdefault(scope, Seat())
        if seat.holder not in ("", holder) and seat.ends_ms > now:
            return 0
        if seat.holder != holder or seat.ends_ms <= now:
            seat.token += 1
            self.world.say(f"seat       {scope} to {holder}, token {seat.token}")
        seat.holder, seat.value, seat.ends_ms = holder, value, now + TTL_MS
        return seat.token

    def renew(self, scope: str, holder: str, token: int) -> int:
        """Renew a seat that is still held under the token."""
        seat = self.seats.get(scope)
        if seat is None or (seat.holder, seat.token) != (holder, token):
            return 0
        if seat.ends_ms <= self.world.now_ms():
            return 0
        seat.ends_ms = self.world.now_ms() + TTL_MS
        return token

    def leave(self, scope: str, holder: str, token: int) -> int:
        """Give a seat back."""
        seat = self.seats.get(scope)
        if seat is not None and (seat.holder, seat.token) == (holder, token):
            seat.holder, seat.ends_ms = "", 0
        return 1

    async def ask(self, here: str, call: str, *arguments: object) -> int:
        """Have the store do something over the network. Raises Unavailable."""
        process, world = PROCESS.get(), self.world
        if process is not None:
            process.check()
        link = frozenset((here, self.host))
        answer: asyncio.Future[int] = world.loop.create_future()

        def arrived() -> None:
            result = getattr(self, call)(*arguments)
            if not world.chance("lose_answer", world.rates.lose_answer):
                self.network.carry(link, lambda: _set(answer, result), waits=False)

        if not world.chance("lose_request", world.rates.lose_request):
            self.network.carry(link, arrived, waits=False)
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await answer
        except TimeoutError:
            raise Unavailable("ELECTION_UNAVAILABLE", "The store does not answer.") from None


def _set(future: asyncio.Future[int], result: int) -> None:
    if not future.done():
        future.set_result(result)


class SimLeadership:
    """A won election (`tenure_runtime.election.elector.Leadership`)."""

    def __init__(
        self, etcd: Etcd, host: Host, holder: str, scope: str, token: int, ends_ms: int
    ) -> None:
        self._etcd = etcd
        self._host = host
        self._holder = holder
        self._boot: BootView = host.clock.boot()
        self._ends_ms = ends_ms
        self._resigned = False
        self.scope = scope
        self.token = token
        self.lost = asyncio.Event()
        self._renewing = asyncio.get_running_loop().create_task(self._renew())

    def valid(self) -> bool:
        """Say whether nobody else can lead by now, without asking."""
        return not self._resigned and self._boot.now_ms() < self._ends_ms

    async def resign(self) -> None:
        """Give the seat back."""
        if self._resigned:
            return
        self._resigned = True
        self.lost.set()
        self._renewing.cancel()
        with suppress(Unavailable):
            await self._etcd.ask(self._host.name, "leave", self.scope, self._holder, self.token)

    async def _renew(self) -> None:
        while self.valid():
            await asyncio.sleep(RENEW_S)
            sent_ms = self._boot.now_ms()
            try:
                token = await self._etcd.ask(
                    self._host.name, "renew", self.scope, self._holder, self.token
                )
            except Unavailable:
                continue
            if token != self.token:
                break
            self._ends_ms = max(self._ends_ms, sent_ms + TTL_MS)
        self._ends_ms = min(self._ends_ms, self._boot.now_ms())
        self.lost.set()


class SimElector:
    """A replica's elections (`tenure_runtime.election.elector.Elector`)."""

    def __init__(self, etcd: Etcd, host: Host, process: Process) -> None:
        self._etcd = etcd
        self._host = host
        self._holder = f"{host.name}.{host.starts}"
        self._process = process

    async def campaign(self, scope: str, value: str) -> SimLeadership:
        """Wait until this replica leads."""
        rng = self._etcd.world.rng("campaign")
        boot = self._host.clock.boot()
        while True:
            sent_ms = boot.now_ms()
            try:
                token = await self._etcd.ask(self._host.name, "hold", scope, self._holder, value)
            except Unavailable:
                token = 0
            if token and boot.now_ms() < sent_ms + TTL_MS:
                return SimLeadership(
                    self._etcd, self._host, self._holder, scope, token, sent_ms + TTL_MS
                )
            await asyncio.sleep(ASK_S * rng.uniform(0.5, 1.5))

    async def leader(self, scope: str) -> Leader | None:
        """Return who leads, as the store has it."""
        seat = self._etcd.seats.get(scope)
        if seat is None or seat.ends_ms <= self._etcd.world.now_ms():
            return None
        return Leader(seat.value, seat.token)

    async def observe(self, scope: str) -> AsyncIterator[Leader | None]:
        """Yield the present leader; nobody asks for more here."""
        yield await self.leader(scope)

    async def close(self) -> None:
        """Nothing is kept open."""
