"""Certificates and authorities that are renewed on disk come into use without a restart."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support import echo
from tests.support.echo import METHODS, SERVICE, Echo, EchoStub, text
from tests.support.servers import Served, serving

from tenure_runtime.clocks import SystemClock
from tenure_runtime.embedded.authority import CertificateCabinet, read_certificate, span_of
from tenure_runtime.embedded.authority_plan import CertificateTerms
from tenure_runtime.rpc import renewing
from tenure_runtime.rpc.client import Client, RetryPolicy, connect
from tenure_runtime.rpc.identity import Role
from tenure_runtime.rpc.peer import Peer
from tenure_runtime.rpc.server import ServerOptions

PEERS = [Peer(Role.SERVICE, "echo"), Peer(Role.USER, "user")]
HOUR = 3_600_000
TERMS = CertificateTerms(authority_ms=10 * HOUR, certificate_ms=2 * HOUR, overlap_ms=HOUR)


class World:
    """A server and a client over one cabinet whose time the test sets."""

    def __init__(self, served: Served, client: Client, cabinet: CertificateCabinet) -> None:
        self.served = served
        self.client = client
        self.cabinet = cabinet

    async def ask(self) -> str:
        return (await self.client.call(EchoStub(self.client.channel).Echo, text("hello"))).value

    def serial(self) -> int:
        """Return the number of the certificate that the server shows."""
        files = self.cabinet.files("user")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(files.authority)
        assert files.certificate is not None
        context.load_cert_chain(files.certificate, files.private_key)
        with (
            context.wrap_socket(_socket(self.served.port), server_hostname="127.0.0.1") as secure,
        ):
            shown = secure.getpeercert()
            assert shown is not None
            return int(str(shown["serialNumber"]), 16)

    def on_disk(self, name: str) -> int:
        file = self.cabinet.files(name).certificate
        assert file is not None
        certificate = read_certificate(file)
        assert certificate is not None
        return certificate.serial_number


def _socket(port: int) -> Any:
    import socket

    return socket.create_connection(("127.0.0.1", port), 5)


@asynccontextmanager
async def world(
    folder: Path,
    handlers: Echo | None = None,
    terms: CertificateTerms = TERMS,
    ago_ms: int = HOUR * 3 // 2,
) -> AsyncIterator[World]:
    """Serve with certificates that were made some time ago and are due to be renewed now."""
    cabinet = CertificateCabinet(folder, terms)
    cabinet.renew(PEERS, SystemClock().now_ms() - ago_ms)
    options = ServerOptions("echo", tls=cabinet.files("echo"))
    serve = serving(echo.register, handlers or Echo(), SERVICE, methods=METHODS, options=options)
    async with serve as served:
        retry = RetryPolicy(attempts=1)
        key, tls = served.keys["user"], cabinet.files("user")
        async with connect(served.target, api_key=key, tls=tls, retry=retry) as client:
            yield World(served, client, cabinet)


@pytest.fixture(autouse=True)
def always_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewing, "LOOK_S", 0.0)


async def test_server_and_client_take_a_renewed_certificate(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        assert await it.ask() == "hello"
        first, before = it.on_disk("echo"), it.client.channel.current()
        assert await asyncio.to_thread(it.serial) == first

        made = it.cabinet.renew(PEERS, SystemClock().now_ms())

        assert made == ["echo", "user"]
        assert await asyncio.to_thread(it.serial) == it.on_disk("echo") != first
        assert await it.ask() == "hello"
        assert it.client.channel.current() is not before


async def test_a_new_authority_follows_while_both_are_trusted(tmp_path: Path) -> None:
    now = SystemClock().now_ms()
    lasting = CertificateTerms(
        authority_ms=10 * HOUR, certificate_ms=10 * HOUR, overlap_ms=HOUR, early_ms=1_000
    )
    made = {}
    async with world(tmp_path, terms=lasting, ago_ms=8 * HOUR) as it:
        for minutes in (0, 300, 399, 401, 450, 470, 480):
            names = it.cabinet.renew(PEERS, now - 8 * HOUR + minutes * 60_000)
            trusted = len((tmp_path / "authority.pem").read_text().split("BEGIN")) - 1
            made[minutes] = (trusted, names)
            assert await it.ask() == "hello", f"after {minutes} minutes"

    assert made == {
        **dict.fromkeys((0, 300, 399), (1, [])),
        401: (2, ["echo", "user"]),  # they end as soon as the old one, which still signs
        **dict.fromkeys((450, 480), (2, [])),
        470: (2, ["echo", "user"]),  # signed by the new one
    }


async def test_calls_under_way_end_on_the_channel_they_began_on(tmp_path: Path) -> None:
    go_on = asyncio.Event()

    async def tail(_: str, __: Any) -> AsyncIterator[str]:
        yield "before"
        await go_on.wait()
        yield "after"

    async with world(tmp_path, Echo(tail=tail)) as it:
        async with it.client.stream(EchoStub(it.client.channel).Tail, text("x")) as stream:
            heard = [(await anext(stream)).value]
            it.cabinet.renew(PEERS, SystemClock().now_ms())
            assert await it.ask() == "hello"
            go_on.set()
            heard += [message.value async for message in stream]

        assert heard == ["before", "after"]
        await asyncio.wait_for(_no_others(it.client.channel), 5)


async def _no_others(channel: Any) -> None:
    while channel._retired:
        await asyncio.sleep(0.01)


async def test_a_pair_that_does_not_fit_is_left_alone_until_it_does(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        assert await it.ask() == "hello"
        used = it.on_disk("echo")
        key = tmp_path / "echo.key"
        fitting, other = key.read_text(), (tmp_path / "user.key").read_text()
        key.write_text(other)
        assert await asyncio.to_thread(it.serial) == used
        key.write_text(fitting)
        it.cabinet.renew(PEERS, SystemClock().now_ms())
        assert await asyncio.to_thread(it.serial) == it.on_disk("echo") != used


def test_what_is_damaged_is_made_again(tmp_path: Path) -> None:
    cabinet, now = CertificateCabinet(tmp_path, TERMS), SystemClock().now_ms()
    assert cabinet.renew(PEERS, now) == ["echo", "user"]
    assert cabinet.renew(PEERS, now) == []
    (tmp_path / "user.crt").write_text("")
    (tmp_path / "echo.key").write_text((tmp_path / "user.key").read_text())
    assert cabinet.renew(PEERS, now) == ["echo", "user"]
    (tmp_path / "authority" / "1.key").unlink()
    assert cabinet.renew(PEERS, now) == ["echo", "user"]
    assert cabinet.renew(PEERS, now) == []
    assert cabinet.renew(PEERS, now + 100 * HOUR) == ["echo", "user"]
    assert [file.name for file in (tmp_path / "authority").glob("*.crt")] == ["2.crt"]
    assert {oct(each.stat().st_mode)[-3:] for each in tmp_path.rglob("*.key")} == {"600"}
    assert {oct(each.stat().st_mode)[-3:] for each in tmp_path.rglob("authority")} == {"700"}


def test_a_certificate_never_outlives_its_authority(tmp_path: Path) -> None:
    short = CertificateTerms(authority_ms=HOUR, certificate_ms=2 * HOUR)
    cabinet = CertificateCabinet(tmp_path, short)
    cabinet.renew(PEERS, 1_900_000_000_000)
    file, authority = cabinet.files("user").certificate, cabinet.files("user").authority
    assert file is not None and authority is not None
    issued, issuer = read_certificate(file), read_certificate(authority)
    assert issued is not None and issuer is not None
    assert span_of(issued) == span_of(issuer)
