"""Mutual TLS between a server and its clients: who gets through, and what stays outside."""

from __future__ import annotations

import asyncio
import socket
import ssl
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support import echo
from tests.support.certificates import certified
from tests.support.echo import METHODS, SERVICE, Echo, EchoStub, text
from tests.support.servers import Served, serving

from tenure_core.errors import DomainError, Forbidden, Unauthenticated, Unavailable, WrongState
from tenure_runtime.embedded.authority_plan import CertificateTerms
from tenure_runtime.rpc.client import RetryPolicy, connect
from tenure_runtime.rpc.identity import Credential, Identity, Role
from tenure_runtime.rpc.peer import Peer, peer_of, vouched
from tenure_runtime.rpc.server import ServerOptions, TlsFiles
from tenure_runtime.rpc.tls import TlsReader
from tenure_runtime.settings import ServiceSettings, SettingsRefused

ONCE = RetryPolicy(attempts=1)
TLS_1_2_CIPHERS = {"ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384"}


@asynccontextmanager
async def echoing(tls: TlsFiles) -> AsyncIterator[Served]:
    options = ServerOptions("echo", tls=tls)
    async with serving(echo.register, Echo(), SERVICE, methods=METHODS, options=options) as served:
        yield served


async def ask(served: Served, tls: TlsFiles | None, key: str = "user") -> str:
    """Return what one call over a new connection came to: `hello`, or the reason of its refusal."""
    async with connect(served.target, api_key=served.keys[key], tls=tls, retry=ONCE) as client:
        try:
            call = client.call(EchoStub(client.channel).Echo, text("hello"), timeout_s=5)
            return (await call).value
        except DomainError as error:
            return error.reason


async def test_only_clients_with_a_certificate_of_the_authority_are_served(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    user = certified(ours, "user", "user")
    stranger = certified(theirs, "user", "user")
    trusting = TlsFiles(stranger.certificate, stranger.private_key, user.authority)
    async with echoing(certified(ours, "service", "echo")) as served:
        assert await ask(served, user) == "hello"
        for refused in (None, TlsFiles(authority=user.authority), trusting, stranger):
            assert await ask(served, refused) == "UNAVAILABLE"


async def test_a_certificate_that_has_ended_or_not_begun_is_refused(tmp_path: Path) -> None:
    short = CertificateTerms(certificate_ms=60_000, early_ms=1_000)
    ended = certified(tmp_path, "user", "user", terms=short, later_ms=-300_000)
    async with echoing(certified(tmp_path, "service", "echo")) as served:
        assert await ask(served, ended) == "UNAVAILABLE"
        early = certified(tmp_path, "user", "all", terms=short, later_ms=300_000)
        assert await ask(served, early, "all") == "UNAVAILABLE"


async def test_an_agents_certificate_does_not_pass_for_a_server(tmp_path: Path) -> None:
    user = certified(tmp_path, "user", "user")
    async with echoing(certified(tmp_path, "agent", "a1")) as served:
        assert await ask(served, user) == "UNAVAILABLE"


async def test_key_and_certificate_must_be_of_the_same_caller(tmp_path: Path) -> None:
    async with echoing(certified(tmp_path, "service", "echo")) as served:
        outcomes = {
            (role, name, key): await ask(served, certified(tmp_path, role, name), key)
            for role, name, key in (
                ("user", "user", "user"),
                ("agent", "agent", "agent"),
                ("agent", "agent", "service"),  # a stolen key
                ("user", "user", "operator"),
                ("agent", "user", "user"),  # the name of another role
                ("user", "all", "all"),
            )
        }

    assert outcomes == {
        ("user", "user", "user"): "hello",
        ("agent", "agent", "agent"): "hello",
        ("agent", "agent", "service"): "CERTIFICATE_MISMATCH",
        ("user", "user", "operator"): "CERTIFICATE_MISMATCH",
        ("agent", "user", "user"): "CERTIFICATE_MISMATCH",
        ("user", "all", "all"): "hello",
    }


@pytest.mark.parametrize(
    ("role", "left"),
    [
        (Role.USER, {Role.USER}),
        (Role.OPERATOR, {Role.OPERATOR, Role.USER}),
        (Role.SERVICE, {Role.SERVICE}),
        (Role.AGENT, {Role.AGENT}),
    ],
)
def test_a_certificate_stands_for_its_role_only(role: Role, left: set[Role]) -> None:
    everything = Identity("x", frozenset(Role))

    assert vouched(everything, Peer(role, "x")) == Identity("x", frozenset(left))
    lacking = Identity("x", frozenset(Role) - left)
    if lacking.roles:
        with pytest.raises(Forbidden) as refused:
            vouched(lacking, Peer(role, "x"))
        assert refused.value.reason == "CERTIFICATE_MISMATCH"


@pytest.mark.parametrize(
    ("credential", "roles", "fits"),
    [
        (Credential.API_KEY, {Role.USER}, {Role.USER, Role.OPERATOR}),
        (Credential.OIDC, {Role.OPERATOR}, {Role.USER, Role.OPERATOR}),
        (Credential.TOKEN, {Role.USER}, {Role.USER, Role.OPERATOR}),
        (Credential.TOKEN, {Role.SERVICE}, set()),
        (Credential.TOKEN, {Role.AGENT, Role.USER}, set()),
    ],
)
def test_who_is_known_by_a_credential_of_its_own_needs_the_certificate_of_any_person(
    credential: Credential, roles: set[Role], fits: set[Role]
) -> None:
    ann = Identity("ann", frozenset(roles), credential=credential, ends=7)

    def gets_through(role: Role) -> bool:
        try:
            return vouched(ann, Peer(role, "bob")) == ann
        except Forbidden:
            return False

    asked = (Role.USER, Role.OPERATOR, Role.SERVICE, Role.AGENT)
    assert {role for role in asked if gets_through(role)} == fits


def test_a_token_of_a_service_keeps_its_end_and_its_scope_beside_a_certificate() -> None:
    token = Identity("slottable", frozenset({Role.SERVICE}), credential=Credential.TOKEN, ends=7)

    seen = vouched(token, Peer(Role.SERVICE, "slottable"))

    assert (seen, seen.ends, seen.credential) == (token, 7, Credential.TOKEN)


def test_a_certificate_names_its_caller_by_uri_or_by_dns_name() -> None:
    by_uri = {"peer_uri": [b"spiffe://tenure/service/admission"], "peer_dns": [b"localhost"]}
    by_dns = {"peer_dns": [b"tenure-registry", b"rack-1.node-2.agent.id.tenure"]}

    assert peer_of(by_uri) == Peer(Role.SERVICE, "admission")
    assert peer_of(by_dns) == Peer(Role.AGENT, "rack-1.node-2")


@pytest.mark.parametrize(
    "auth",
    [
        {},
        {"peer_uri": [b"spiffe://elsewhere/service/admission"]},
        {"peer_uri": [b"spiffe://tenure/king/arthur"]},
        {"peer_uri": [b"spiffe://tenure/service/admission/x"]},
        {"peer_uri": [b"spiffe://tenure/service/\xff"]},
        {"peer_uri": [b"spiffe://tenure/user/ada", b"spiffe://tenure/user/bob"]},
        {"peer_uri": [b"spiffe://tenure/user/ada"], "peer_dns": [b"ada.operator.id.tenure"]},
        {"peer_dns": [b"spiffe://tenure/service/admission"]},
        {"x509_common_name": [b"admission"]},
    ],
)
def test_a_certificate_that_names_nobody_or_several_is_refused(
    auth: dict[str, list[bytes]],
) -> None:
    with pytest.raises(Unauthenticated) as refused:
        peer_of(auth)
    assert refused.value.reason == "CERTIFICATE_NAMES_NOBODY"


@dataclass
class Shaker:
    """Shakes hands as OpenSSL does, with versions and ciphers that gRPC's clients do not offer."""

    port: int
    tls: TlsFiles

    async def __call__(
        self, least: ssl.TLSVersion, most: ssl.TLSVersion, ciphers: str = "", *, shows: bool = True
    ) -> str:
        """Return the version and cipher agreed on; empty when the server breaks off."""
        return await asyncio.to_thread(self._shake, least, most, ciphers, shows)

    def _shake(self, least: ssl.TLSVersion, most: ssl.TLSVersion, ciphers: str, shows: bool) -> str:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(self.tls.authority)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # that is what is tested
            context.minimum_version, context.maximum_version = least, most
        context.set_ciphers(f"{ciphers or 'ALL:COMPLEMENTOFALL'}:@SECLEVEL=0")
        context.set_alpn_protocols(["h2"])
        if shows:
            assert self.tls.certificate is not None
            context.load_cert_chain(self.tls.certificate, self.tls.private_key)
        try:
            with (
                socket.create_connection(("127.0.0.1", self.port), 5) as plain,
                context.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
            ):
                # Of TLS 1.3 a client learns with the first bytes whether its certificate was taken.
                if not secure.recv(1):
                    return ""
                agreed = secure.cipher()
                assert agreed is not None
                return f"{secure.version()} {agreed[0]}"
        except OSError:
            return ""


async def test_only_tls_1_2_and_newer_with_sane_ciphers_is_spoken(tmp_path: Path) -> None:
    version = ssl.TLSVersion
    async with echoing(certified(tmp_path, "service", "echo")) as served:
        shake = Shaker(served.port, certified(tmp_path, "user", "user"))
        assert await shake(version.TLSv1, version.TLSv1) == ""
        assert await shake(version.TLSv1_1, version.TLSv1_1) == ""
        assert await shake(version.TLSv1_2, version.TLSv1_3) == "TLSv1.3 TLS_AES_256_GCM_SHA384"
        assert await shake(version.TLSv1_2, version.TLSv1_3, shows=False) == ""
        assert await shake(version.TLSv1_2, version.TLSv1_2, shows=False) == ""
        offered = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        offered.set_ciphers("ALL:COMPLEMENTOFALL:@SECLEVEL=0")
        names = {each["name"] for each in offered.get_ciphers() if each["protocol"] != "TLSv1.3"}
        assert len(names) > 50
        agreed = {
            name for name in names if await shake(version.TLSv1_2, version.TLSv1_2, name) != ""
        }
        assert agreed == TLS_1_2_CIPHERS


async def test_without_an_authority_the_server_alone_shows_a_certificate(tmp_path: Path) -> None:
    files = certified(tmp_path, "service", "echo")
    async with echoing(TlsFiles(files.certificate, files.private_key)) as served:
        assert await ask(served, TlsFiles(authority=files.authority)) == "hello"


def test_files_that_cannot_be_used_are_refused_with_the_reason(tmp_path: Path) -> None:
    one, other = certified(tmp_path, "user", "one"), certified(tmp_path, "user", "other")
    assert one.certificate is not None and one.private_key is not None
    mixed = TlsFiles(one.certificate, other.private_key, one.authority)
    missing = TlsFiles(one.certificate, tmp_path / "none.key", one.authority)
    for files, problem in ((mixed, "are no pair"), (missing, "none.key: No such file")):
        with pytest.raises(WrongState, match=problem) as refused:
            TlsReader(files).read()
        assert refused.value.reason == "TLS_FILES_REFUSED"
    one.private_key.chmod(0o604)
    with pytest.raises(WrongState, match="must not be readable by everybody"):
        TlsReader(one).read()


def test_a_certificate_without_its_key_is_refused() -> None:
    with pytest.raises(SettingsRefused, match="set together"):
        ServiceSettings.load(tls_certificate="server.pem")
    settings = ServiceSettings.load(tls_authority="ca.pem")
    assert settings.tls is None
    assert settings.client_tls == TlsFiles(authority=Path("ca.pem"))


@pytest.mark.parametrize("listen", ["0.0.0.0:7001", "[::]:7001", "10.1.2.3:0", "tenure.example:7"])
def test_plain_text_for_other_machines_takes_a_setting(listen: str) -> None:
    with pytest.raises(SettingsRefused, match="can be reached from other machines"):
        ServiceSettings.load(listen=listen)
    assert ServiceSettings.load(listen=listen, plaintext=True).tls is None
    pair = {"tls_certificate": "a.crt", "tls_private_key": "a.key"}
    assert ServiceSettings.load(listen=listen, **pair).tls is not None


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "localhost:7001", "[::1]:0", "127.9.9.9:1"])
def test_plain_text_on_the_loopback_address_takes_none(listen: str) -> None:
    assert ServiceSettings.load(listen=listen).tls is None


async def test_a_server_that_cannot_be_reached_is_unavailable(tmp_path: Path) -> None:
    async with connect("127.0.0.1:1", tls=certified(tmp_path, "user", "u"), retry=ONCE) as client:
        with pytest.raises(Unavailable):
            await client.call(EchoStub(client.channel).Echo, text("x"), timeout_s=2)
