"""A thin etcd v3 client on grpc.aio: leases, reads, writes, transactions, watches.

Decides how etcd's calls look from asyncio. Which member is asked and with which token is
`etcd_connection`'s business, how a watch goes on `etcd_watch`'s, what keys mean the elector's.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from tenure.etcd.v1 import etcd_pb2 as wire
from tenure_core.errors import NotFound
from tenure_core.timebase import SECOND_MS, Clock, Millis

from .etcd_connection import (
    EtcdConnection,
    EtcdSettings,
    Member,
    Metadata,
)
from .etcd_stream import ask
from .etcd_watch import watch

_RANGE: Final = "/etcdserverpb.KV/Range"
_TXN: Final = "/etcdserverpb.KV/Txn"
_PUT: Final = "/etcdserverpb.KV/Put"
_DELETE: Final = "/etcdserverpb.KV/DeleteRange"
_GRANT: Final = "/etcdserverpb.Lease/LeaseGrant"
_REVOKE: Final = "/etcdserverpb.Lease/LeaseRevoke"
_KEEP_ALIVE: Final = "/etcdserverpb.Lease/LeaseKeepAlive"


class SortOrder(IntEnum):
    """In which order keys are returned (RangeRequest.SortOrder)."""

    NONE = 0
    ASCEND = 1
    DESCEND = 2


class SortTarget(IntEnum):
    """What keys are ordered by (RangeRequest.SortTarget)."""

    KEY = 0
    CREATE = 2


class CompareTarget(IntEnum):
    """What a condition looks at (Compare.CompareTarget); the result compared is always equality."""

    CREATE = 1


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease as granted: its number, its time to live, and until when it surely holds.

    `until_ms` is the moment before the answered request was sent plus the time to live, by the
    client's clock: etcd counts from later, so it cannot have ended before.
    """

    id: int
    ttl_s: int
    until_ms: Millis


def prefix_end(prefix: bytes) -> bytes:
    """Return the end, exclusive, of the range of all keys that begin with `prefix`."""
    shortened = prefix.rstrip(b"\xff")
    return shortened[:-1] + bytes([shortened[-1] + 1]) if shortened else b"\0"


def created_at(key: bytes, revision: int) -> wire.Compare:
    """Return the condition that `key` came into being at `revision`; 0: that it does not exist."""
    return wire.Compare(target=CompareTarget.CREATE, key=key, create_revision=revision)


class EtcdClient:
    """etcd's calls. Each is repeated on other members until `patience_s`; then Unavailable."""

    def __init__(self, settings: EtcdSettings, clock: Clock) -> None:
        self._way = EtcdConnection(settings)
        self._clock = clock

    async def close(self) -> None:
        """Close the connection; watches end."""
        await self._way.close()

    async def grant(self, ttl_s: int) -> Lease:
        """Return a new lease; the server may grant a longer time than asked for."""
        request = wire.LeaseGrantRequest(ttl=ttl_s)
        sent_ms = self._clock.now_ms()
        answer = await self._way.unary(_GRANT, request, wire.LeaseGrantResponse)
        return Lease(answer.id, answer.ttl, sent_ms + answer.ttl * SECOND_MS)

    async def keep_alive(self, lease_id: int) -> Lease | None:
        """Renew the lease once and return it as it is then, or None if it has ended."""
        request = wire.LeaseKeepAliveRequest(id=lease_id)

        async def attempt(member: Member, metadata: Metadata) -> Lease | None:
            sent_ms = self._clock.now_ms()
            call = member.stream(
                _KEEP_ALIVE,
                wire.LeaseKeepAliveRequest,
                wire.LeaseKeepAliveResponse,
                metadata=metadata,
                timeout_s=self._way.settings.call_timeout_s,
            )
            answer = await ask(call, request)
            assert isinstance(answer, wire.LeaseKeepAliveResponse)
            call.cancel()
            if answer.ttl <= 0:
                return None
            return Lease(answer.id, answer.ttl, sent_ms + answer.ttl * SECOND_MS)

        return await self._way.repeat(attempt)

    async def revoke(self, lease_id: int) -> None:
        """End the lease and delete its keys; a lease that has ended already is fine."""
        request = wire.LeaseRevokeRequest(id=lease_id)
        with suppress(NotFound):
            await self._way.unary(_REVOKE, request, wire.LeaseRevokeResponse)

    async def range(
        self,
        key: bytes,
        range_end: bytes = b"",
        *,
        limit: int = 0,
        order: SortOrder = SortOrder.NONE,
        target: SortTarget = SortTarget.KEY,
        max_create_revision: int = 0,
    ) -> wire.RangeResponse:
        """Read keys, linearizably: what was committed before the call is seen."""
        request = wire.RangeRequest(
            key=key,
            range_end=range_end,
            limit=limit,
            sort_order=order,
            sort_target=target,
            max_create_revision=max_create_revision,
        )
        return await self._way.unary(_RANGE, request, wire.RangeResponse)

    async def put(self, key: bytes, value: bytes, *, lease: int = 0) -> int:
        """Write one key and return the store's revision. May be done twice if an answer is lost."""
        request = wire.PutRequest(key=key, value=value, lease=lease)
        answer = await self._way.unary(_PUT, request, wire.PutResponse)
        return answer.header.revision

    async def delete(self, key: bytes) -> None:
        """Delete one key; one that does not exist is fine."""
        request = wire.DeleteRangeRequest(key=key)
        await self._way.unary(_DELETE, request, wire.DeleteRangeResponse)

    async def transact(
        self,
        compare: Sequence[wire.Compare],
        success: Sequence[wire.RequestOp],
        failure: Sequence[wire.RequestOp] = (),
    ) -> wire.TxnResponse:
        """Do `success` if all conditions hold, else `failure`.

        An answer may be lost and the transaction repeated: the conditions must make that harmless.
        """
        request = wire.TxnRequest(compare=compare, success=success, failure=failure)
        return await self._way.unary(_TXN, request, wire.TxnResponse)

    def watch(
        self, key: bytes, range_end: bytes = b"", *, start_revision: int
    ) -> AsyncGenerator[Sequence[wire.Event]]:
        """Return the changes of a key or range from `start_revision` on: see `etcd_watch`."""
        return watch(self._way, key, range_end, start_revision=start_revision)
