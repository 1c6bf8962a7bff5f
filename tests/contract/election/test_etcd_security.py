"""Mutual TLS, passwords and short-lived tokens."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest
import pytest_asyncio
from tests.contract.election.etcd_cluster import Certificates
from tests.contract.election.etcd_use import (
    client_of,
    elector_of,
)
from tests.contract.election.stores import TTL_S

from tenure.etcd.v1 import etcd_pb2 as wire
from tenure_core.errors import Forbidden
from tenure_runtime.election.elector import Leader
from tenure_runtime.election.etcd import EtcdElector
from tenure_runtime.election.etcd_client import EtcdClient
from tenure_runtime.election.etcd_connection import EtcdSettings
from tenure_runtime.election.etcd_watch import EventType
from tenure_runtime.embedded.etcd import EmbeddedEtcd, EtcdPorts, find_etcd

pytestmark = pytest.mark.etcd

SCOPE = "pool/gpu"


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
            (f"https://{etcd.endpoint}",),
            ca=open_settings.ca,
            certificate=open_settings.certificate,
            private_key=open_settings.private_key,
            user="tenure",
            password="our word",
        )


@pytest.mark.faults
async def test_elections_go_on_over_mutual_tls_when_tokens_expire(secured: EtcdSettings) -> None:
    # etcd 3.4 asks for no token when a lease is renewed, so between two looks at the leader the
    # token dies of disuse (after 4 s, which etcd checks each second).
    async with elector_of(secured, ttl_s=15) as first, elector_of(secured, ttl_s=15) as second:
        leadership = await first.campaign(SCOPE, "a")
        waiting = asyncio.create_task(second.campaign(SCOPE, "b"))
        tokens = {first._client._way._token}
        for _ in range(2):
            await asyncio.sleep(6)
            assert await first.leader(SCOPE) == Leader("a", leadership.token)
            assert (leadership.valid(), waiting.done()) == (True, False)
            tokens.add(first._client._way._token)
        assert len(tokens) == 3, "no token expired: the test shows nothing"
        await asyncio.sleep(6)
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
