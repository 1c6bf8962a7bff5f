"""Elections in etcd: the lowest create revision below a scope's name leads it.

The recipe and the key layout are those of etcd's own election service (`name/` and the lease's
number in hexadecimal; server/etcdserver/api/v3election, client/v3/concurrency/election.go), so
`etcdctl elect` and other clients can look on. A replica has one lease and any number of elections
on it. Decides how leadership is won, held and given back; what to do with it is its user's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Final, TypeVar

import structlog

from tenure.etcd.v1 import etcd_pb2 as wire
from tenure_core.errors import DomainError, NotFound, Stale, Unavailable, WrongState
from tenure_core.timebase import Clock
from tenure_runtime.clocks import BootClock

from .elector import Leader, check_scope
from .etcd_client import EtcdClient, SortOrder, SortTarget, created_at, prefix_end
from .etcd_connection import EtcdSettings
from .etcd_lease import LeaseKeeper, ReplicaLease
from .etcd_watch import EventType

_log = structlog.get_logger(__name__)
_Result = TypeVar("_Result")

NAME_PREFIX: Final = "tenure/election/"
"""What an election's name begins with; the scope follows: `tenure/election/pool/gpu`."""

_STORE_AWAY_PAUSE_S: Final = 0.3
_PARTING_TIMEOUT_S: Final = 2.0


class EtcdLeadership:
    """Leadership of one scope, held by a key on the replica's lease."""

    def __init__(self, scope: str, token: int, lease: ReplicaLease, elector: EtcdElector) -> None:
        self.scope: Final = scope
        self.token: Final = token
        self.lost: Final = asyncio.Event()
        self.lease: Final = lease
        self.key: Final = _key(scope, lease.id)
        self._elector = elector

    def valid(self) -> bool:
        """Say whether this replica leads, by its own clock and without asking (see the port)."""
        return not self.lost.is_set() and self.lease.holds()

    async def resign(self) -> None:
        """Give the scope back (see the port)."""
        if not self.lost.is_set():
            await self._elector.resign(self)


class EtcdElector:
    """A replica's elections in etcd. Use it in one event loop; `close` gives everything back.

    `ttl_s` is how long a silent leader blocks its scope; etcd grants no less than 1.5 times its
    election time-out (2 s with its defaults).
    """

    def __init__(
        self, settings: EtcdSettings, *, ttl_s: int = 5, clock: Clock | None = None
    ) -> None:
        clock = clock or BootClock()
        self._client = EtcdClient(settings, clock)
        self._keeper = LeaseKeeper(self._client, ttl_s=ttl_s, clock=clock, chores=self._tidy)
        self._entered: dict[str, EtcdLeadership | None] = {}
        self._unwanted: set[bytes] = set()
        self._deleting = asyncio.Lock()
        self._guards: set[asyncio.Task[None]] = set()

    async def campaign(self, scope: str, value: str) -> EtcdLeadership:
        """Wait until this replica leads `scope` (see the port)."""
        check_scope(scope)
        if scope in self._entered:
            raise WrongState("ALREADY_CANDIDATE", f"this replica runs for {scope} already")
        self._entered[scope] = None
        try:
            while True:
                lease = await self._patiently(self._keeper.held)
                leadership = await lease.unless_ended(self._stand(scope, value, lease))
                if leadership is not None:
                    return leadership
        except BaseException:
            await self._withdraw(scope)
            raise

    async def leader(self, scope: str) -> Leader | None:
        """Return the present leader of `scope`, or None (see the port)."""
        check_scope(scope)
        return (await self._leader(scope))[0]

    async def observe(self, scope: str) -> AsyncIterator[Leader | None]:
        """Yield the leader of `scope` and its changes (see the port)."""
        check_scope(scope)
        name = _name(scope)
        last, revision = await self._patiently(lambda: self._leader(scope))
        yield last
        while True:
            changes = self._client.watch(name, prefix_end(name), start_revision=revision + 1)
            with suppress(Stale):
                async with aclosing(changes) as batches:
                    async for _ in batches:
                        now, revision = await self._patiently(lambda: self._leader(scope))
                        if now != last:
                            last = now
                            yield now
            now, revision = await self._patiently(lambda: self._leader(scope))
            if now != last:
                last = now
                yield now

    async def resign(self, leadership: EtcdLeadership) -> None:
        """End `leadership` here first, then in the store."""
        self._end(leadership, "resigned")
        await self._discard(leadership.key)

    async def close(self) -> None:
        """Resign everything and close the connection (see the port)."""
        for leadership in [each for each in self._entered.values() if each is not None]:
            self._end(leadership, "closed")
        for task in self._guards:
            task.cancel()
        await asyncio.gather(*self._guards, return_exceptions=True)
        with suppress(DomainError, TimeoutError):
            async with asyncio.timeout(_PARTING_TIMEOUT_S):
                await self._keeper.end()
        await self._client.close()

    async def _stand(self, scope: str, value: str, lease: ReplicaLease) -> EtcdLeadership | None:
        """Run for `scope` with one lease; None if the candidacy came to nothing: start over."""
        key = _key(scope, lease.id)
        if key in self._unwanted:
            await self._patiently(self._tidy)
        try:
            token = await self._patiently(lambda: self._put_candidate(key, value, lease.id))
        except NotFound:
            lease.ended.set()  # etcd does not know it (any more).
            return None
        await self._wait_for_predecessors(_name(scope), token)
        # The lease may have run out during the wait, and with it our key: being the lowest of the
        # keys that are left then means nothing.
        answer = await self._patiently(lambda: self._client.range(key))
        if not answer.kvs or answer.kvs[0].create_revision != token or not lease.holds():
            return None
        leadership = EtcdLeadership(scope, token, lease, self)
        self._entered[scope] = leadership
        self._start_guard(leadership, answer.header.revision)
        _log.info("election.won", scope=scope, token=token, lease=f"{lease.id:x}")
        return leadership

    async def _put_candidate(self, key: bytes, value: str, lease_id: int) -> int:
        """Write the candidate's key unless it is there, and return its create revision.

        Repeating it after a lost answer finds the key and returns the same revision.
        """
        put = wire.PutRequest(key=key, value=value.encode(), lease=lease_id)
        answer = await self._client.transact(
            [created_at(key, 0)],
            [wire.RequestOp(request_put=put)],
            [wire.RequestOp(request_put=put), wire.RequestOp(request_range=_one(key))],
        )
        if answer.succeeded:
            return answer.header.revision
        return answer.responses[1].response_range.kvs[0].create_revision

    async def _wait_for_predecessors(self, name: bytes, token: int) -> None:
        """Wait until no candidate came before us; watches the nearest one only."""
        while True:
            answer = await self._patiently(
                lambda: self._client.range(
                    name,
                    prefix_end(name),
                    limit=1,
                    order=SortOrder.DESCEND,
                    target=SortTarget.CREATE,
                    max_create_revision=token - 1,
                )
            )
            if not answer.kvs:
                return
            await self._until_deleted(answer.kvs[0].key, answer.header.revision + 1)

    async def _until_deleted(self, key: bytes, start_revision: int) -> None:
        """Wait until `key` is deleted, or history is lost and somebody must look again."""
        changes = self._client.watch(key, start_revision=start_revision)
        with suppress(Stale):
            async with aclosing(changes) as batches:
                async for events in batches:
                    if any(event.type == EventType.DELETE for event in events):
                        return

    def _start_guard(self, leadership: EtcdLeadership, revision: int) -> None:
        task = asyncio.create_task(self._guard(leadership, revision))
        self._guards.add(task)
        task.add_done_callback(self._guards.discard)

    async def _guard(self, leadership: EtcdLeadership, revision: int) -> None:
        """End the leadership when its key is deleted under it or its lease ends."""
        key = leadership.key

        async def key_gone() -> bool:
            since = revision
            while True:
                await self._until_deleted(key, since + 1)
                answer = await self._patiently(lambda: self._client.range(key))
                since = answer.header.revision
                if not answer.kvs or answer.kvs[0].create_revision != leadership.token:
                    return True

        gone = await leadership.lease.unless_ended(key_gone())
        self._end(leadership, "key deleted" if gone else "lease ended")

    def _end(self, leadership: EtcdLeadership, why: str) -> None:
        """Latch the end of a leadership and make room for a new candidacy."""
        if leadership.lost.is_set():
            return
        leadership.lost.set()
        if self._entered.get(leadership.scope) is leadership:
            del self._entered[leadership.scope]
        _log.info("election.ended", scope=leadership.scope, token=leadership.token, why=why)

    async def _withdraw(self, scope: str) -> None:
        """Take a candidacy back, also one of which we do not know whether it was written."""
        del self._entered[scope]
        if self._keeper.lease is not None:
            await self._discard(_key(scope, self._keeper.lease.id))

    async def _discard(self, key: bytes) -> None:
        """Delete a key of ours now if that goes quickly, and again after the next renewal.

        A key left behind would win in our name, because the lease lives on. The second time catches
        a store that was away, and a write of ours that was still under way.
        """
        self._unwanted.add(key)
        with suppress(DomainError, TimeoutError):
            async with asyncio.timeout(_PARTING_TIMEOUT_S), self._deleting:
                await self._client.delete(key)

    async def _tidy(self) -> None:
        """Delete the keys that are no longer wanted."""
        async with self._deleting:
            for key in list(self._unwanted):
                await self._client.delete(key)
                self._unwanted.discard(key)

    async def _leader(self, scope: str) -> tuple[Leader | None, int]:
        """Return the leader of `scope` and the revision at which that was so."""
        name = _name(scope)
        answer = await self._client.range(
            name, prefix_end(name), limit=1, order=SortOrder.ASCEND, target=SortTarget.CREATE
        )
        if not answer.kvs:
            return None, answer.header.revision
        first = answer.kvs[0]
        return Leader(first.value.decode(), first.create_revision), answer.header.revision

    async def _patiently(self, call: Callable[[], Awaitable[_Result]]) -> _Result:
        """Repeat `call` for as long as etcd is away."""
        while True:
            try:
                return await call()
            except Unavailable as error:
                _log.warning("election.store_away", error=error.message)
                await asyncio.sleep(_STORE_AWAY_PAUSE_S)


def _name(scope: str) -> bytes:
    """Return the prefix of a scope's candidates, closing slash included."""
    return f"{NAME_PREFIX}{scope}/".encode()


def _key(scope: str, lease_id: int) -> bytes:
    """Return a candidate's key: the election's name and the lease in hexadecimal."""
    return _name(scope) + f"{lease_id:x}".encode()


def _one(key: bytes) -> wire.RangeRequest:
    return wire.RangeRequest(key=key)
