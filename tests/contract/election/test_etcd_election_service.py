"""etcd's own election service understands our keys, and we understand its."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc.aio
import pytest
import pytest_asyncio
from tests.contract.election.etcd_use import client_of, elector_of
from tests.contract.election.stores import EtcdStoreHandle

from tenure.etcd.v1 import etcd_pb2 as wire
from tenure_runtime.election.elector import Leader
from tenure_runtime.election.etcd import NAME_PREFIX

pytestmark = pytest.mark.etcd

SCOPE = "pool/gpu"
NAME = (NAME_PREFIX + SCOPE).encode()


class ElectionService:
    """v3electionpb.Election, with messages of the same shape as ours where that does."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    async def _call(self, method: str, request: bytes) -> bytes:
        return await self._channel.unary_unary(f"/v3electionpb.Election/{method}")(request)

    async def campaign(self, lease: int, value: bytes) -> None:
        # CampaignRequest { bytes name = 1; int64 lease = 2; bytes value = 3 }
        first = wire.KeyValue(key=NAME, create_revision=lease).SerializeToString()
        await self._call("Campaign", first + b"\x1a" + bytes([len(value)]) + value)

    async def leader(self) -> tuple[bytes, bytes, int]:
        # LeaderRequest { bytes name = 1 } → LeaderResponse { header = 1; KeyValue kv = 2 }
        request = wire.DeleteRangeRequest(key=NAME).SerializeToString()
        (kv,) = wire.RangeResponse.FromString(await self._call("Leader", request)).kvs
        return kv.key, kv.value, kv.create_revision

    async def resign(self, key: bytes, revision: int, lease: int) -> None:
        # ResignRequest { leader = 1 { name = 1; key = 2; int64 rev = 3; int64 lease = 4 } }
        leader = wire.RangeRequest(key=NAME, range_end=key, limit=revision, revision=lease)
        await self._call("Resign", wire.RequestOp(request_range=leader).SerializeToString())


@pytest_asyncio.fixture
async def service(etcd_store: EtcdStoreHandle) -> AsyncIterator[ElectionService]:
    async with grpc.aio.insecure_channel(etcd_store.etcd.endpoint) as channel:
        yield ElectionService(channel)


async def test_it_names_our_leader_and_can_make_it_resign(
    etcd_store: EtcdStoreHandle, service: ElectionService
) -> None:
    async with elector_of(etcd_store.settings) as elector:
        leadership = await elector.campaign(SCOPE, "ours")
        assert await service.leader() == (leadership.key, b"ours", leadership.token)
        await service.resign(leadership.key, leadership.token, leadership.lease.id)
        await asyncio.wait_for(leadership.lost.wait(), 2)
        assert not leadership.valid()


async def test_its_candidates_and_ours_queue_in_one_line(
    etcd_store: EtcdStoreHandle, service: ElectionService
) -> None:
    async with (
        elector_of(etcd_store.settings) as first,
        elector_of(etcd_store.settings) as third,
        client_of(etcd_store.settings) as client,
    ):
        ours = await first.campaign(SCOPE, "first")
        lease = (await client.grant(60)).id
        theirs = asyncio.create_task(service.campaign(lease, b"second"))
        while len((await client.range(NAME + b"/", NAME + b"0")).kvs) < 2:
            await asyncio.sleep(0.02)
        last = asyncio.create_task(third.campaign(SCOPE, "third"))
        await asyncio.sleep(0.2)
        assert (theirs.done(), last.done()) == (False, False)
        await ours.resign()
        await asyncio.wait_for(theirs, 2)
        leader = await first.leader(SCOPE)
        assert leader is not None
        assert (leader.value, last.done()) == ("second", False)
        await client.revoke(lease)
        leadership = await asyncio.wait_for(last, 2)
        assert await first.leader(SCOPE) == Leader("third", leadership.token)
