"""A watch on etcd keys that outlives members: no change left out, none told twice.

Decides when a watch goes on elsewhere, from where, and when it must give up.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from enum import IntEnum
from typing import Final

import grpc.aio

from tenure.etcd.v1 import etcd_pb2 as wire
from tenure_core.errors import Forbidden, Stale

from .etcd_connection import EtcdConnection, Member, Metadata, translated, was_cancelled
from .etcd_stream import ask, ended

_RANGE: Final = "/etcdserverpb.KV/Range"
_WATCH: Final = "/etcdserverpb.Watch/Watch"
_RESUME_PAUSE_S: Final = 0.05

# etcd's words; which of them an expired token gets depends on its release.
_REFUSALS: Final = (
    "permission denied",
    "invalid auth token",
    "auth store is old",
    "user name is empty",
)


class EventType(IntEnum):
    """What happened to a key (mvccpb.Event.EventType)."""

    PUT = 0
    DELETE = 1


class _Refused(Exception):
    """etcd ended a watch for want of a right."""


async def watch(
    way: EtcdConnection, key: bytes, range_end: bytes = b"", *, start_revision: int
) -> AsyncGenerator[Sequence[wire.Event]]:
    """Yield the changes from `start_revision` on, oldest first, none left out, none twice.

    Goes on at another member when one fails, from the first revision not yet seen, for as long
    as it takes. Never returns by itself. Raises Stale ETCD_HISTORY_LOST when the revisions wanted
    are compacted, or the store has been wiped and is younger than what was seen: read again and
    start over. Raises Forbidden ETCD_FORBIDDEN when the user may not read the keys.
    """
    wanted = start_revision
    refused = 0
    while True:
        member = way.member()
        sent: Metadata = ()
        try:
            sent = await way.metadata(member)
            create = wire.WatchCreateRequest(key=key, range_end=range_end, start_revision=wanted)
            once = _watch_once(way, member, sent, create)
            async with aclosing(once) as answers:
                async for events in answers:
                    refused = 0
                    fresh = [event for event in events if event.kv.mod_revision >= wanted]
                    if fresh:
                        wanted = fresh[-1].kv.mod_revision + 1
                        yield fresh
        except _Refused as error:
            # An expired token looks like a missing right; a fresh one tells them apart.
            refused += 1
            if refused > 1 or not way.forget_token(sent):
                raise Forbidden("ETCD_FORBIDDEN", f"etcd ended the watch: {error}") from None
        except grpc.aio.AioRpcError as error:
            if not way.judge(error, member, sent):
                raise translated(error) from None
        except asyncio.CancelledError:
            if was_cancelled() or not member.given_up.is_set():
                raise
        await asyncio.sleep(_RESUME_PAUSE_S)


async def _watch_once(
    way: EtcdConnection,
    member: Member,
    metadata: Metadata,
    create: wire.WatchCreateRequest,
) -> AsyncGenerator[Sequence[wire.Event]]:
    """Yield events from one stream at one member until either ends."""
    call = member.stream(_WATCH, wire.WatchRequest, wire.WatchResponse, metadata=metadata)
    given_up = asyncio.ensure_future(member.given_up.wait())
    reading: asyncio.Future[object] | None = None
    try:
        async with asyncio.timeout(way.settings.call_timeout_s):
            answer: object = await ask(call, wire.WatchRequest(create_request=create))
        while True:
            if not isinstance(answer, wire.WatchResponse):
                raise await ended(call)
            if answer.created and not answer.canceled:
                await _check_history(way, answer.header.revision, create.start_revision)
            if answer.canceled:
                _check_cancel(answer)
                return
            if answer.events:
                yield answer.events
            reading = asyncio.ensure_future(call.read())
            await asyncio.wait({reading, given_up}, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                return
            answer = reading.result()
    except TimeoutError:
        # The member takes no watch in time: it is stuck, whatever its connection says.
        way.give_up(member)
    finally:
        given_up.cancel()
        if reading is not None:
            reading.cancel()
        call.cancel()


async def _check_history(way: EtcdConnection, revision: int, wanted: int) -> None:
    """Raise Stale if the store has gone back behind what was seen: it has been wiped.

    A member may merely lag behind the one that was seen before, so a linearizable read decides.
    """
    if revision < wanted - 1:
        newest = await _newest_revision(way)
        if newest < wanted - 1:
            raise Stale(
                "ETCD_HISTORY_LOST",
                f"etcd is at revision {newest}, but {wanted - 1} was seen: it was wiped",
            )


async def _newest_revision(way: EtcdConnection) -> int:
    """Return the store's revision, linearizably."""
    request = wire.RangeRequest(key=b"\0", count_only=True)
    return (await way.unary(_RANGE, request, wire.RangeResponse)).header.revision


def _check_cancel(answer: wire.WatchResponse) -> None:
    """Raise for a watch that etcd ended for good; return for one that may be asked for again."""
    if answer.compact_revision:
        raise Stale(
            "ETCD_HISTORY_LOST",
            f"etcd keeps nothing older than revision {answer.compact_revision}",
            oldest_revision=answer.compact_revision,
        )
    if any(reason in answer.cancel_reason for reason in _REFUSALS):
        raise _Refused(answer.cancel_reason)
