"""Elections by a row in PostgreSQL, for one machine without etcd.

A row names the holder of a scope and when that ends, by the database's clock. An advisory lock
would not do: it has no time limit, so a leader that is stopped would hold it for ever. The
database's clock is a wall clock: if it is set forward, another may win while the old leader's own
deadline still runs, which is why epochs decide at every write and leadership alone never does.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

import structlog

from tenure_core.errors import DomainError, Unavailable, WrongState
from tenure_core.timebase import SECOND_MS, Clock, Millis
from tenure_runtime.clocks import BootClock

from .elector import Leader, check_scope
from .row_store import RowStore

_log = structlog.get_logger(__name__)

_RENEWALS_PER_TTL: Final = 3
_LOOK_AGAIN_S: Final = 1.0
"""How late a missed notification may be noticed."""

_STORE_AWAY_PAUSE_S: Final = 0.3
_PARTING_TIMEOUT_S: Final = 2.0


class RowLeadership:
    """Leadership of one scope, held by a row."""

    def __init__(
        self, scope: str, token: int, until_ms: Millis, clock: Clock, elector: RowElector
    ) -> None:
        self.scope: Final = scope
        self.token: Final = token
        self.lost: Final = asyncio.Event()
        self._until_ms = until_ms
        self._clock = clock
        self._elector = elector

    def valid(self) -> bool:
        """Say whether this replica leads, by its own clock and without asking (see the port)."""
        return not self.lost.is_set() and self._clock.now_ms() < self._until_ms

    def renewed(self, until_ms: Millis) -> None:
        """Note a renewal, unless it comes too late: what was over once must not come back."""
        if self.valid():
            self._until_ms = max(self._until_ms, until_ms)

    async def resign(self) -> None:
        """Give the scope back (see the port)."""
        if not self.lost.is_set():
            await self._elector.resign(self)


class RowElector:
    """A replica's elections in a PostgreSQL database. Use it in one event loop.

    `dsn` names the database; the schema `election` is made there when first needed. It keeps up to
    three connections of its own, so that a busy service pool cannot starve a renewal. `ttl_s` is
    how long a silent leader blocks its scope.
    """

    def __init__(self, dsn: str, *, ttl_s: float = 5, clock: Clock | None = None) -> None:
        self._ttl_ms = int(ttl_s * SECOND_MS)
        self._clock = clock or BootClock()
        self._store = RowStore(dsn, holder=uuid.uuid4().hex)
        self._entered: dict[str, RowLeadership | None] = {}
        self._renewing: asyncio.Task[None] | None = None

    async def campaign(self, scope: str, value: str) -> RowLeadership:
        """Wait until this replica leads `scope` (see the port)."""
        check_scope(scope)
        if scope in self._entered:
            raise WrongState("ALREADY_CANDIDATE", f"this replica runs for {scope} already")
        self._entered[scope] = None
        try:
            return await self._stand(scope, value)
        except BaseException:
            del self._entered[scope]
            await self._free(scope)
            raise

    async def leader(self, scope: str) -> Leader | None:
        """Return the present leader of `scope`, or None (see the port)."""
        check_scope(scope)
        return await self._store.leader(scope)

    async def observe(self, scope: str) -> AsyncIterator[Leader | None]:
        """Yield the leader of `scope` and its changes (see the port); a lapse within 1 s."""
        check_scope(scope)
        first = True
        last: Leader | None = None
        with self._store.listening(scope) as news:
            while True:
                news.clear()
                try:
                    now = await self._store.leader(scope)
                except Unavailable as error:
                    _log.warning("election.store_away", error=error.message)
                else:
                    if first or now != last:
                        first, last = False, now
                        yield now
                await self._store.wait(news, _LOOK_AGAIN_S)

    async def resign(self, leadership: RowLeadership) -> None:
        """End `leadership` here first, then in the store."""
        self._end(leadership, "resigned")
        await self._free(leadership.scope)

    async def close(self) -> None:
        """Resign everything and close the connections (see the port)."""
        for leadership in [each for each in self._entered.values() if each is not None]:
            await self.resign(leadership)
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait({self._renewing})
        await self._store.close()

    async def _stand(self, scope: str, value: str) -> RowLeadership:
        """Seize the row as soon as it is free, woken by a resignation or by its end."""
        with self._store.listening(scope) as news:
            while True:
                news.clear()
                sent_ms = self._clock.now_ms()
                try:
                    token, remaining_ms = await self._store.seize(scope, value, self._ttl_ms)
                except Unavailable as error:
                    _log.warning("election.store_away", error=error.message)
                    await asyncio.sleep(_STORE_AWAY_PAUSE_S)
                    continue
                if token is not None:
                    break
                await self._store.wait(news, min(remaining_ms / SECOND_MS, _LOOK_AGAIN_S))
        leadership = RowLeadership(scope, token, sent_ms + self._ttl_ms, self._clock, self)
        self._entered[scope] = leadership
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.create_task(self._renew())
        _log.info("election.won", scope=scope, token=token)
        return leadership

    async def _renew(self) -> None:
        """Renew everything held in one statement, three times in a life."""
        while True:
            await asyncio.sleep(self._ttl_ms / _RENEWALS_PER_TTL / SECOND_MS)
            held = {each.scope: each for each in self._entered.values() if each is not None}
            if not held:
                continue
            sent_ms = self._clock.now_ms()
            try:
                tokens = {scope: leadership.token for scope, leadership in held.items()}
                kept = await self._store.renew(tokens, self._ttl_ms)
            except Unavailable as error:
                _log.warning("election.renewal_failed", error=error.message)
                kept = None
            for scope, leadership in held.items():
                if kept is not None and scope not in kept:
                    self._end(leadership, "row lost")
                elif kept is not None:
                    leadership.renewed(sent_ms + self._ttl_ms)
                if not leadership.valid():
                    self._end(leadership, "time ran out")

    def _end(self, leadership: RowLeadership, why: str) -> None:
        """Latch the end of a leadership and make room for a new candidacy."""
        if leadership.lost.is_set():
            return
        leadership.lost.set()
        if self._entered.get(leadership.scope) is leadership:
            del self._entered[leadership.scope]
        _log.info("election.ended", scope=leadership.scope, token=leadership.token, why=why)

    async def _free(self, scope: str) -> None:
        """Free the row if it is ours; if the store is away, its time runs out unrenewed."""
        with suppress(DomainError, TimeoutError):
            async with asyncio.timeout(_PARTING_TIMEOUT_S):
                await self._store.free(scope)
