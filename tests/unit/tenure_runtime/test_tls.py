"""Mutual TLS between a server and its clients."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from tests.support import echo
from tests.support.echo import METHODS, SERVICE, Echo, EchoStub, text
from tests.support.servers import serving

from tenure_core.errors import Unavailable
from tenure_runtime.rpc.client import RetryPolicy, connect
from tenure_runtime.rpc.server import ServerOptions, TlsFiles
from tenure_runtime.settings import ServiceSettings, SettingsRefused


def openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def authority(folder: Path, name: str) -> None:
    openssl(folder, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
            "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.pem", "-days", "2",
            "-subj", f"/CN={name}")  # fmt: skip


def signed(folder: Path, name: str, by: str) -> TlsFiles:
    (folder / "extensions").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    openssl(folder, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
            "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")  # fmt: skip
    openssl(folder, "x509", "-req", "-in", f"{name}.csr", "-CA", f"{by}.pem", "-CAkey",
            f"{by}.key", "-CAcreateserial", "-out", f"{name}.pem", "-days", "2",
            "-extfile", "extensions")  # fmt: skip
    return TlsFiles(folder / f"{name}.pem", folder / f"{name}.key", folder / "ca.pem")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl program")
    authority(tmp_path, "ca")
    authority(tmp_path, "stranger-ca")
    return tmp_path


async def test_only_clients_with_a_certificate_of_the_authority_are_served(folder: Path) -> None:
    server = signed(folder, "server", "ca")
    options = ServerOptions("echo", tls=server)
    serve = serving(echo.register, Echo(), SERVICE, methods=METHODS, options=options)
    async with serve as served:
        key = served.keys["all"]

        async def ask(tls: TlsFiles | None) -> str:
            retry = RetryPolicy(attempts=1)
            async with connect(served.target, api_key=key, tls=tls, retry=retry) as client:
                return (await client.call(EchoStub(client.channel).Echo, text("hello"))).value

        assert await ask(signed(folder, "client", "ca")) == "hello"
        for refused in (
            None,
            TlsFiles(authority=folder / "ca.pem"),
            signed(folder, "stranger", "stranger-ca"),
            TlsFiles(authority=folder / "stranger-ca.pem"),
        ):
            with pytest.raises(Unavailable):
                await ask(refused)


async def test_without_an_authority_the_server_alone_shows_a_certificate(folder: Path) -> None:
    files = signed(folder, "server", "ca")
    options = ServerOptions("echo", tls=TlsFiles(files.certificate, files.private_key))
    serve = serving(echo.register, Echo(), SERVICE, methods=METHODS, options=options)
    async with serve as served:
        tls = TlsFiles(authority=folder / "ca.pem")
        async with connect(served.target, api_key=served.keys["all"], tls=tls) as client:
            assert (await client.call(EchoStub(client.channel).Echo, text("x"))).value == "x"


def test_a_certificate_without_its_key_is_refused() -> None:
    with pytest.raises(SettingsRefused, match="set together"):
        ServiceSettings.load(tls_certificate="server.pem")
    settings = ServiceSettings.load(tls_authority="ca.pem")
    assert settings.tls is None
    assert settings.client_tls == TlsFiles(authority=Path("ca.pem"))
