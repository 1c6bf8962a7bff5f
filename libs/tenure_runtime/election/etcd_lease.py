"""The one etcd lease of a replica: granted when first needed, renewed, and replaced once it ends.

Decides until when the replica may rely on its lease without asking. Which keys hang on it is the
elector's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

import structlog

from tenure_core.errors import DomainError
from tenure_core.timebase import SECOND_MS, Clock

from .etcd_client import EtcdClient, Lease

_log = structlog.get_logger(__name__)
_Result = TypeVar("_Result")

RENEWALS_PER_TTL: Final = 3
"""A lease is renewed this many times in its life, so that two renewals may fail."""


class ReplicaLease:
    """One lease while it lives. Once it has ended it stays so; the next one is another object."""

    def __init__(self, lease: Lease, clock: Clock) -> None:
        self.id: Final = lease.id
        self.ended: Final = asyncio.Event()
        self._until_ms = lease.until_ms
        self._clock = clock

    def remaining_ms(self) -> int:
        """Return how long the lease surely holds from now; 0 when that is over."""
        if self.ended.is_set():
            return 0
        return max(0, self._until_ms - self._clock.now_ms())

    def holds(self) -> bool:
        """Say whether the lease surely holds at this moment, without asking anyone."""
        return self.remaining_ms() > 0

    def renewed(self, lease: Lease) -> None:
        """Note a renewal, unless it comes too late: what was over once must not come back."""
        if self.holds():
            self._until_ms = max(self._until_ms, lease.until_ms)

    async def unless_ended(self, work: Coroutine[Any, Any, _Result]) -> _Result | None:
        """Return what `work` returns, or None (and cancel it) if the lease ends first."""
        doing = asyncio.ensure_future(work)
        ending = asyncio.ensure_future(self.ended.wait())
        try:
            await asyncio.wait({doing, ending}, return_when=asyncio.FIRST_COMPLETED)
            return doing.result() if doing.done() else None
        finally:
            ending.cancel()
            if not doing.done():
                doing.cancel()
                await asyncio.wait({doing})


class LeaseKeeper:
    """Keeps one lease alive for a replica; `chores` is called after each renewal."""

    def __init__(
        self,
        client: EtcdClient,
        *,
        ttl_s: int,
        clock: Clock,
        chores: Callable[[], Awaitable[None]],
    ) -> None:
        self._client = client
        self._ttl_s = ttl_s
        self._clock = clock
        self._chores = chores
        self._lease: ReplicaLease | None = None
        self._granting = asyncio.Lock()
        self._renewing: asyncio.Task[None] | None = None

    @property
    def lease(self) -> ReplicaLease | None:
        """Return the lease if there is one that holds."""
        return self._lease if self._lease is not None and self._lease.holds() else None

    async def held(self) -> ReplicaLease:
        """Return the replica's lease, granted anew if there is none that holds."""
        async with self._granting:
            if self.lease is None:
                await self._stop_renewing()
                if self._lease is not None:
                    # Its time ran out here, maybe not yet there: its keys would block us.
                    await self._client.revoke(self._lease.id)
                    self._lease = None
                granted = await self._client.grant(self._ttl_s)
                self._lease = ReplicaLease(granted, self._clock)
                self._renewing = asyncio.create_task(self._renew(self._lease, granted.ttl_s))
            assert self._lease is not None
            return self._lease

    async def end(self) -> None:
        """End the lease here and in the store, and with it every key that hangs on it."""
        await self._stop_renewing()
        if self._lease is not None:
            lease, self._lease = self._lease, None
            lease.ended.set()
            await self._client.revoke(lease.id)

    async def _stop_renewing(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait({self._renewing})
            self._renewing = None

    async def _renew(self, lease: ReplicaLease, ttl_s: int) -> None:
        """Renew until the lease ends, by etcd's word or by our own deadline."""
        why = "it was no longer renewed"
        try:
            while (remaining_ms := lease.remaining_ms()) > 0:
                period_ms = min(ttl_s * SECOND_MS // RENEWALS_PER_TTL, remaining_ms)
                await asyncio.sleep(period_ms / SECOND_MS)
                try:
                    async with asyncio.timeout(lease.remaining_ms() / SECOND_MS):
                        renewed = await self._client.keep_alive(lease.id)
                        if renewed is None:
                            why = "etcd no longer knows it"
                            return
                        lease.renewed(renewed)
                        await self._chores()
                except (DomainError, TimeoutError) as error:
                    _log.warning("election.renewal_failed", lease=f"{lease.id:x}", error=str(error))
        finally:
            if not lease.ended.is_set():
                lease.ended.set()
                _log.info("election.lease_ended", lease=f"{lease.id:x}", why=why)
