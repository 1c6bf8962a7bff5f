"""What the etcd layer promises beyond the port: members, restarts, wiped stores, TLS, tokens."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from tests.contract.election.etcd_cluster import Certificates, EtcdCluster, kill
from tests.contract.election.stores import TTL_S, EtcdStoreHandle

from tenure.etcd.v1 import etcd_pb2 as wire
from tenure_core.errors import Forbidden, NotFound, Stale
from tenure_runtime.clocks import BootClock
from tenure_runtime.election.elector import Leader
from tenure_runtime.election.etcd import EtcdElector
from tenure_runtime.election.etcd_client import EtcdClient, prefix_end
from tenure_runtime.election.etcd_connection import EtcdSettings
from tenure_runtime.election.etcd_watch import EventType
from tenure_runtime.embedded.etcd import EmbeddedEtcd, EtcdPorts, find_etcd

pytestmark = pytest.mark.etcd

SCOPE = "pool/gpu"
PREFIX = b"numbers/"


@asynccontextmanager
async def client_of(settings: EtcdSettings) -> AsyncIterator[EtcdClient]:
    client = EtcdClient(settings, BootClock())
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def elector_of(settings: EtcdSettings, *, ttl_s: int = TTL_S) -> AsyncIterator[EtcdElector]:
    elector = EtcdElector(settings, ttl_s=ttl_s)
    try:
        yield elector
    finally:
        await elector.close()


@pytest_asyncio.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[EtcdCluster]:
    if find_etcd() is None:
        pytest.skip("no etcd program on the PATH (Debian: apt-get install etcd-server)")
    async with EtcdCluster(tmp_path) as cluster:
        yield cluster


async def collect(client: EtcdClient, until: bytes, seen: list[bytes]) -> None:
    """Append the value of each change below PREFIX, up to the value `until`."""
    watch = client.watch(PREFIX, prefix_end(PREFIX), start_revision=1)
    async with aclosing(watch) as batches:
        async for events in batches:
            seen.extend(event.kv.value for event in events)
            if seen[-1] == until:
                return


async def write_numbers(client: EtcdClient, numbers: Sequence[int]) -> list[bytes]:
    """Put each number under one key; a repeat after a lost answer shows up as a double."""
    for number in numbers:
        await client.put(PREFIX + b"n", b"%d" % number)
    return [b"%d" % number for number in numbers]


def once_each(values: Sequence[bytes]) -> list[bytes]:
    return list(dict.fromkeys(values))


@pytest.mark.faults
async def test_a_watch_misses_nothing_and_repeats_nothing_across_kill_9_of_etcd(
    etcd_store: EtcdStoreHandle,
) -> None:
    async with client_of(etcd_store.settings) as reader, client_of(etcd_store.settings) as writer:
        seen: list[bytes] = []
        watching = asyncio.create_task(collect(reader, b"59", seen))
        await write_numbers(writer, range(20))
        for part in (range(20, 40), range(40, 60)):
            await etcd_store.kill()
            await etcd_store.come_back()
            await write_numbers(writer, part)
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


async def _add_user(client: EtcdClient, name: str, password: str, role: str) -> None:
    """Make a user; these requests have the shape of a login: 1 the name, 2 a text."""

    async def auth(method: str, one: str = "", two: str = "") -> None:
        request = wire.AuthenticateRequest(name=one, password=two)
        path = f"/etcdserverpb.Auth/{method}"
        await client._way.unary(path, request, wire.AuthenticateResponse)

    if role != "root":
        await auth("RoleAdd", role)
        # RoleGrantPermissionRequest { name = 1; perm = 2 { permType = 1; key = 2; range_end = 3 } }
        key = "tenure/"
        permission = "\x08\x02\x12" + chr(len(key)) + key + "\x1a" + chr(len(key)) + "tenure0"
        await auth("RoleGrantPermission", role, permission)
    await auth("UserAdd", name, password)
    await auth("UserGrantRole", name, role)


@pytest_asyncio.fixture
async def secured(tmp_path: Path) -> AsyncIterator[EtcdSettings]:
    """An etcd with mutual TLS, passwords, and tokens that live for 4 s (etcd allows no less)."""
    if find_etcd() is None or shutil.which("openssl") is None:
        pytest.skip("no etcd or no openssl program (Debian: apt-get install etcd-server openssl)")
    certificates = Certificates(tmp_path / "tls")
    ports = EtcdPorts.free()
    url = f"https://127.0.0.1:{ports.client}"
    arguments = (
        *("--listen-client-urls", url, "--advertise-client-urls", url),
        *certificates.server_arguments(),
        *("--auth-token-ttl", "4"),
    )
    async with EmbeddedEtcd(tmp_path / "etcd", ports=ports, arguments=arguments) as etcd:
        open_settings = EtcdSettings(
            (etcd.endpoint,),
            ca=certificates.read("ca.pem"),
            certificate=certificates.read("client.pem"),
            private_key=certificates.read("client.key"),
        )
        async with client_of(open_settings) as client:
            await _add_user(client, "root", "root's word", "root")
            await _add_user(client, "tenure", "our word", "elections")
            await client._way.unary(
                "/etcdserverpb.Auth/AuthEnable",
                wire.AuthenticateRequest(),
                wire.AuthenticateResponse,
            )
        yield EtcdSettings(
            open_settings.endpoints,
            ca=open_settings.ca,
            certificate=open_settings.certificate,
            private_key=open_settings.private_key,
            user="tenure",
            password="our word",
        )


@pytest.mark.faults
async def test_elections_go_on_over_mutual_tls_when_tokens_expire(secured: EtcdSettings) -> None:
    # Nothing is asked for longer than a token lives (renewals come each 5 s), so each is expired.
    async with elector_of(secured, ttl_s=15) as first, elector_of(secured, ttl_s=15) as second:
        leadership = await first.campaign(SCOPE, "a")
        waiting = asyncio.create_task(second.campaign(SCOPE, "b"))
        began = time.monotonic()
        while time.monotonic() - began < 17:
            assert (leadership.valid(), waiting.done()) == (True, False)
            await asyncio.sleep(0.25)
        await leadership.resign()
        successor = await asyncio.wait_for(waiting, 2)
        assert successor.valid()


async def test_a_watch_may_begin_with_an_expired_token(secured: EtcdSettings) -> None:
    async with client_of(secured) as client:
        revision = await client.put(b"tenure/x", b"1")
        await asyncio.sleep(6)
        changes = client.watch(b"tenure/x", start_revision=revision)
        async with aclosing(changes) as batches:
            events = await asyncio.wait_for(anext(batches), 3)
        assert [(event.type, event.kv.value) for event in events] == [(EventType.PUT, b"1")]


async def test_a_wrong_password_or_a_missing_right_is_said_at_once(secured: EtcdSettings) -> None:
    wrong = EtcdSettings(
        secured.endpoints,
        ca=secured.ca,
        certificate=secured.certificate,
        private_key=secured.private_key,
        user="tenure",
        password="guess",
    )
    async with client_of(wrong) as client:
        with pytest.raises(Forbidden, match="authentication failed"):
            await client.range(b"tenure/x")
    async with client_of(secured) as client:
        with pytest.raises(Forbidden, match="permission denied"):
            await client.put(b"elsewhere", b"1")
        with pytest.raises(Forbidden, match="permission denied"):
            await asyncio.wait_for(anext(client.watch(b"elsewhere", start_revision=1)), 5)


async def test_a_server_of_another_authority_is_not_talked_to(
    secured: EtcdSettings, tmp_path: Path
) -> None:
    others = Certificates(tmp_path / "others")
    settings = EtcdSettings(secured.endpoints, ca=others.read("ca.pem"), patience_s=1.0)
    elector = EtcdElector(settings, ttl_s=TTL_S)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(elector.campaign(SCOPE, "a"), 3)
    await elector.close()
