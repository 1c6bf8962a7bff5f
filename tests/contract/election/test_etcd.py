"""What the etcd layer promises beyond the port: restarts, wiped stores, lost leases and keys."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from tests.contract.election.etcd_use import (
    PREFIX,
    Gate,
    arrival,
    client_of,
    collect,
    elector_of,
    once_each,
    write_numbers,
)
from tests.contract.election.stores import TTL_S, EtcdStoreHandle

from tenure.etcd.v1 import etcd_pb2 as wire
from tenure_core.errors import NotFound, Stale
from tenure_runtime.election.elector import Leader
from tenure_runtime.election.etcd_connection import EtcdSettings

pytestmark = pytest.mark.etcd

SCOPE = "pool/gpu"


@pytest.mark.faults
async def test_a_watch_misses_nothing_and_repeats_nothing_across_kill_9_of_etcd(
    etcd_store: EtcdStoreHandle,
) -> None:
    async with (
        Gate(etcd_store.etcd.endpoint) as gate,
        client_of(EtcdSettings((f"127.0.0.1:{gate.port}",))) as reader,
        client_of(etcd_store.settings) as writer,
    ):
        seen: list[bytes] = []
        watching = asyncio.create_task(collect(reader, b"59", seen))
        await write_numbers(writer, range(20))
        await arrival(seen, b"19")
        for missed, live in ((range(20, 30), range(30, 40)), (range(40, 50), range(50, 60))):
            await etcd_store.kill()
            await gate.shut()
            await etcd_store.come_back()
            await write_numbers(writer, missed)  # while the reader cannot see it
            await gate.open()
            written = await write_numbers(writer, live)
            await arrival(seen, written[-1])
        await asyncio.wait_for(watching, 10)
        answer = await writer.range(PREFIX + b"n")
        assert once_each(seen) == [b"%d" % number for number in range(60)]
        assert len(seen) == answer.kvs[0].version, "as many events as there were writes"


@pytest.mark.faults
async def test_a_watch_of_compacted_history_says_so(etcd_store: EtcdStoreHandle) -> None:
    async with client_of(etcd_store.settings) as client:
        await write_numbers(client, range(5))
        revision = (await client.range(b"x")).header.revision
        await client._way.unary(
            "/etcdserverpb.KV/Compact",
            wire.LeaseRevokeRequest(id=revision),  # CompactionRequest: 1 is the revision
            wire.LeaseRevokeResponse,
        )
        with pytest.raises(Stale) as told:
            await collect(client, b"never", [])
        assert told.value.reason == "ETCD_HISTORY_LOST"


@pytest.mark.faults
async def test_a_wiped_etcd_is_noticed_by_watches_leaders_and_candidates(
    etcd_store: EtcdStoreHandle, tmp_path: Path
) -> None:
    async with (
        elector_of(etcd_store.settings) as first,
        elector_of(etcd_store.settings) as second,
        client_of(etcd_store.settings) as client,
    ):
        await write_numbers(client, range(30))
        leadership = await first.campaign(SCOPE, "a")
        waiting = asyncio.create_task(second.campaign(SCOPE, "b"))
        revision = (await client.range(b"x")).header.revision
        watching = asyncio.create_task(anext(client.watch(b"x", start_revision=revision + 1)))
        await asyncio.sleep(0.2)
        await etcd_store.kill()
        shutil.rmtree(tmp_path / "etcd" / "data")
        await etcd_store.come_back()
        with pytest.raises(Stale) as told:
            await asyncio.wait_for(watching, 5)
        assert told.value.reason == "ETCD_HISTORY_LOST"
        await asyncio.wait_for(leadership.lost.wait(), TTL_S + 1)
        assert not leadership.valid()
        successor = await asyncio.wait_for(waiting, TTL_S + 4)
        assert successor.valid()
        assert await first.leader(SCOPE) == Leader("b", successor.token)


async def test_a_candidate_whose_lease_ended_while_it_waited_does_not_believe_it_won(
    etcd_store: EtcdStoreHandle,
) -> None:
    async with (
        elector_of(etcd_store.settings) as first,
        elector_of(etcd_store.settings, ttl_s=60) as second,
        elector_of(etcd_store.settings) as third,
        client_of(etcd_store.settings) as client,
    ):
        leadership = await first.campaign(SCOPE, "a")
        waiting = asyncio.create_task(second.campaign(SCOPE, "b"))
        await asyncio.sleep(0.2)
        lease = second._keeper.lease
        assert lease is not None
        # Its next renewal is 20 s away and its own deadline 60 s: it cannot know.
        await client.revoke(lease.id)
        third_waiting = asyncio.create_task(third.campaign(SCOPE, "c"))
        await asyncio.sleep(0.2)
        assert lease.holds()
        await leadership.resign()
        winner = await asyncio.wait_for(third_waiting, 1)
        await asyncio.sleep(0.3)
        assert not waiting.done()
        assert await first.leader(SCOPE) == Leader("c", winner.token)
        await winner.resign()
        late = await asyncio.wait_for(waiting, 2)
        answer = await client.range(late.key)
        assert [kv.create_revision for kv in answer.kvs] == [late.token]
        assert late.lease is not lease


async def test_a_leader_whose_key_an_operator_deletes_is_told(etcd_store: EtcdStoreHandle) -> None:
    async with (
        elector_of(etcd_store.settings) as elector,
        client_of(etcd_store.settings) as client,
    ):
        leadership = await elector.campaign(SCOPE, "a")
        other = await elector.campaign("pool/cpu", "a")
        await client.delete(leadership.key)
        await asyncio.wait_for(leadership.lost.wait(), 1)
        assert (leadership.valid(), other.valid()) == (False, True)


@pytest.mark.faults
async def test_a_candidate_cancelled_while_etcd_is_away_does_not_win_when_it_is_back(
    etcd_store: EtcdStoreHandle,
) -> None:
    async with (
        elector_of(etcd_store.settings, ttl_s=20) as first,
        elector_of(etcd_store.settings, ttl_s=20) as second,
        elector_of(etcd_store.settings, ttl_s=20) as third,
    ):
        leadership = await first.campaign(SCOPE, "a")
        other = await second.campaign("pool/cpu", "b")
        waiting = asyncio.create_task(second.campaign(SCOPE, "b"))
        await asyncio.sleep(0.2)
        last = asyncio.create_task(third.campaign(SCOPE, "c"))
        await asyncio.sleep(0.2)
        await etcd_store.kill()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await etcd_store.come_back()
        await leadership.resign()
        # Its key goes with the next renewal, a third of the time to live away at most.
        winner = await asyncio.wait_for(last, 20 / 3 + 3)
        assert (winner.valid(), other.valid()) == (True, True)


async def test_a_lease_grant_that_etcd_forgot_is_not_found(etcd_store: EtcdStoreHandle) -> None:
    async with client_of(etcd_store.settings) as client:
        lease = await client.grant(30)
        await client.revoke(lease.id)
        assert await client.keep_alive(lease.id) is None
        await client.revoke(lease.id)
        with pytest.raises(NotFound) as refused:
            await client.put(b"k", b"v", lease=lease.id)
        assert refused.value.reason == "ETCD_LEASE_NOT_FOUND"
