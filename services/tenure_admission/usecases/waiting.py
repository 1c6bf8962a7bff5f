"""Wait for leases: one follower of the feed wakes whoever waits, by lease.

A wait costs one read and no polling, however long it lasts: what changes comes with the feed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass

from tenure_admission.ports import FeedBookmark, LeaseFeed, LeaseReader
from tenure_admission.records import LeaseRecord, StoredLease
from tenure_admission.usecases.viewer import lease_not_found
from tenure_core.errors import DomainError
from tenure_core.identity.viewer import Viewer
from tenure_core.leases.states import ENDED, LeaseState
from tenure_core.timebase import Millis

Decode = Callable[[bytes], LeaseRecord]


@dataclass(frozen=True, slots=True)
class WaitedFor:
    """What ends a wait, besides the lease's end."""

    states: frozenset[LeaseState] = frozenset()
    until_change_decided: bool = False

    def met_by(self, record: LeaseRecord) -> bool:
        """Say whether the wait is over."""
        if record.lease.state in ENDED or record.lease.state in self.states:
            return True
        return self.until_change_decided and not (record.change and record.change.undecided)


@dataclass(frozen=True, slots=True)
class Waited:
    """The lease when a wait ended, and whether the time was over first."""

    lease: StoredLease
    timed_out: bool


class _Waiter:
    """One wait: the newest body that the feed brought, None for "look again"."""

    def __init__(self) -> None:
        self.woken = asyncio.Event()
        self.body: bytes | None = None

    def wake(self, body: bytes | None) -> None:
        """Hand over a body; the wait goes on with the newest one."""
        self.body = body
        self.woken.set()


class Waiting:
    """Who waits for which lease. `run()` belongs in a TaskGroup."""

    def __init__(self, reader: LeaseReader, feed: LeaseFeed, decode: Decode) -> None:
        self._reader = reader
        self._feed = feed
        self._decode = decode
        self._waiters: dict[str, set[_Waiter]] = {}

    async def run(self) -> None:
        """Follow the feed for ever; after a gap everyone looks again."""
        failures = 0
        while True:
            try:
                start = (await self._feed.now()).token()
                async with aclosing(self._feed.watch(start, lambda _id, _body: True)) as events:
                    self._wake_all()
                    async for event in events:
                        failures = 0
                        if not isinstance(event, FeedBookmark):
                            self._wake(event.lease_id, event.body)
            except DomainError:
                failures += 1
                await asyncio.sleep(min(2.0, 0.05 * 2**failures))

    def _wake(self, lease_id: str, body: bytes) -> None:
        for waiter in self._waiters.get(lease_id, ()):
            waiter.wake(body)

    def _wake_all(self) -> None:
        for waiters in self._waiters.values():
            for waiter in waiters:
                waiter.wake(None)

    async def wait(
        self, lease_id: str, viewer: Viewer, wanted: WaitedFor, timeout_ms: Millis
    ) -> Waited:
        """Return as soon as the lease is as wanted or has ended, or after the timeout.

        Raises NotFound LEASE_NOT_FOUND.
        """
        waiter = _Waiter()
        self._waiters.setdefault(lease_id, set()).add(waiter)
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                return Waited(await self._until(lease_id, viewer, wanted, waiter), timed_out=False)
        except TimeoutError:
            return Waited(await self._read(lease_id, viewer), timed_out=True)
        finally:
            self._waiters[lease_id].discard(waiter)
            if not self._waiters[lease_id]:
                del self._waiters[lease_id]

    async def _until(
        self, lease_id: str, viewer: Viewer, wanted: WaitedFor, waiter: _Waiter
    ) -> StoredLease:
        """Return the lease once it is as wanted; the feed may lag behind what was read."""
        version = 0
        while True:
            waiter.woken.clear()
            stored = self._stored(waiter.body) or await self._read(lease_id, viewer)
            record = self._decode(stored.body)
            if record.lease.version > version:
                version = record.lease.version
                if wanted.met_by(record):
                    return stored
            await waiter.woken.wait()

    def _stored(self, body: bytes | None) -> StoredLease | None:
        if body is None:
            return None
        lease = self._decode(body).lease
        spec = lease.spec
        return StoredLease(lease.id, spec.owner, spec.project, spec.pool, lease.state, body)

    async def _read(self, lease_id: str, viewer: Viewer) -> StoredLease:
        for stored in await self._reader.get([lease_id]):
            if viewer.sees(stored.owner, stored.project, stored.pool):
                return stored
        raise lease_not_found(lease_id)
