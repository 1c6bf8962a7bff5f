"""Three etcd members on this machine, and certificates for mutual TLS."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from pathlib import Path
from typing import Self

from tenure_runtime.embedded.etcd import EmbeddedEtcd, EtcdPorts


class EtcdCluster:
    """Three members that elect a leader among themselves; as an async context manager."""

    def __init__(self, folder: Path) -> None:
        ports = {f"m{number}": EtcdPorts.free() for number in range(3)}
        peers = ",".join(f"{name}=http://127.0.0.1:{each.peer}" for name, each in ports.items())
        slow = ("--heartbeat-interval", "100", "--election-timeout", "1000")
        self.members = [
            EmbeddedEtcd(
                folder / name,
                ports=each,
                arguments=("--name", name, "--initial-cluster", peers, *slow),
            )
            for name, each in ports.items()
        ]

    async def __aenter__(self) -> Self:
        await asyncio.gather(*(member.start(wait=False) for member in self.members))
        await asyncio.gather(*(member.wait_healthy() for member in self.members))
        return self

    async def __aexit__(self, *_: object) -> None:
        for member in self.members:  # A polite stop hands over to each other and takes seconds.
            if member.pid is not None:
                await kill(member)
            await member.stop()

    @property
    def endpoints(self) -> tuple[str, ...]:
        return tuple(member.endpoint for member in self.members)

    def at(self, endpoint: str) -> EmbeddedEtcd:
        return next(member for member in self.members if member.endpoint == endpoint)


async def kill(member: EmbeddedEtcd) -> None:
    assert member.pid is not None
    os.kill(member.pid, signal.SIGKILL)
    await member.wait_ended()


class Certificates:
    """A private authority with a certificate for servers on 127.0.0.1 and one for clients."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=test authority"),
        )
        # The client's has no common name: etcd would take one for the user and ask no password.
        self._issue("server", "/CN=etcd", "subjectAltName=IP:127.0.0.1")
        self._issue("client", "/O=tenure", "extendedKeyUsage=clientAuth")

    def _issue(self, name: str, subject: str, extension: str) -> None:
        (self.folder / f"{name}.ext").write_text(extension + "\n")
        self._openssl(
            *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", subject),
        )
        self._openssl(
            *("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key"),
            *("-CAcreateserial", "-days", "2", "-extfile", f"{name}.ext", "-out", f"{name}.pem"),
        )

    def _openssl(self, *words: str) -> None:
        subprocess.run(["openssl", *words], cwd=self.folder, check=True, capture_output=True)

    def read(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    def server_arguments(self) -> tuple[str, ...]:
        at = self.folder
        return (
            *("--cert-file", f"{at}/server.pem", "--key-file", f"{at}/server.key"),
            *("--trusted-ca-file", f"{at}/ca.pem", "--client-cert-auth"),
        )
