"""Three etcd members: any of them may die or freeze without loss."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.contract.election.etcd_cluster import EtcdCluster, kill
from tests.contract.election.etcd_use import (
    PREFIX,
    arrival,
    client_of,
    collect,
    elector_of,
    once_each,
    write_numbers,
)

from tenure_runtime.election.etcd_connection import EtcdSettings
from tenure_runtime.embedded.etcd import find_etcd

pytestmark = pytest.mark.etcd

SCOPE = "pool/gpu"


@pytest_asyncio.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[EtcdCluster]:
    if find_etcd() is None:
        pytest.skip("no etcd program on the PATH (Debian: apt-get install etcd-server)")
    async with EtcdCluster(tmp_path) as cluster:
        yield cluster


@pytest.mark.faults
async def test_killing_the_connected_member_of_three_costs_no_event_no_write_and_no_leadership(
    cluster: EtcdCluster,
) -> None:
    settings = EtcdSettings(cluster.endpoints)
    async with (
        elector_of(settings, ttl_s=6) as elector,
        client_of(settings) as reader,
        client_of(settings) as writer,
    ):
        leadership = await elector.campaign(SCOPE, "a")
        seen: list[bytes] = []
        watching = asyncio.create_task(collect(reader, b"99", seen))
        await write_numbers(writer, range(30))
        await arrival(seen, b"29")
        connected = cluster.at(reader._way.member().endpoint)
        await kill(connected)
        await write_numbers(writer, range(30, 70))
        await connected.start()
        # Now the others, one after the other: the raft leader is among them.
        for member in cluster.members:
            if member is not connected:
                await kill(member)
                await write_numbers(writer, [70])
                await member.start()
        await write_numbers(writer, range(71, 100))
        await asyncio.wait_for(watching, 10)
        assert once_each(seen) == [b"%d" % number for number in range(100)]
        assert len(seen) == (await writer.range(PREFIX + b"n")).kvs[0].version
        assert leadership.valid()


@pytest.mark.faults
async def test_a_connected_member_that_freezes_is_left_for_another(cluster: EtcdCluster) -> None:
    settings = EtcdSettings(cluster.endpoints)
    async with (
        elector_of(settings, ttl_s=6) as first,
        elector_of(settings, ttl_s=6) as second,
    ):
        leadership = await first.campaign(SCOPE, "a")
        waiting = asyncio.create_task(second.campaign(SCOPE, "b"))
        await asyncio.sleep(0.3)
        frozen = cluster.at(second._client._way.member().endpoint)
        assert frozen.pid is not None
        os.kill(frozen.pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(8)
            assert (leadership.valid(), waiting.done()) == (True, False)
            await leadership.resign()
            successor = await asyncio.wait_for(waiting, 5)
            assert successor.valid()
        finally:
            os.kill(frozen.pid, signal.SIGCONT)
