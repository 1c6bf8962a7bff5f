"""Runs a private etcd for one data folder, when the machine has an `etcd` program.

The server is a direct child that dies with us and listens on free loopback ports, which are kept
for the next start. Elections and leader discovery are all it is used for; losing its data costs an
election, never a lease (epochs come from PostgreSQL).
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tenure_core.errors import NotFound, Unavailable

from . import child
from .folder_lock import FolderLock
from .log_file import end_of_log, open_log, rotate

START_TIMEOUT_S: Final = 30.0
_STOP_STEPS: Final = ((signal.SIGTERM, 10.0),)
_RETRY_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class EtcdPorts:
    """The loopback ports of one member: clients, other members, and the plain health page."""

    client: int
    peer: int
    health: int

    @classmethod
    def free(cls) -> EtcdPorts:
        """Return three ports that are free at the moment."""
        holders = [socket.socket() for _ in range(3)]
        try:
            for holder in holders:
                holder.bind(("127.0.0.1", 0))
            return cls(*(holder.getsockname()[1] for holder in holders))
        finally:
            for holder in holders:
                holder.close()


def find_etcd(named: Path | None = None) -> str | None:
    """Return the path of the etcd program, named or on the PATH, or None."""
    return shutil.which(str(named) if named else "etcd")


class EmbeddedEtcd:
    """A private etcd member for `data_dir`, as an async context manager or by `start` and `stop`.

    `arguments` are added to the command line and win over ours (a larger cluster, certificates).
    Start it from a thread that lives as long as the server should.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        program: Path | None = None,
        ports: EtcdPorts | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        self._data_dir = Path(data_dir)
        self._program = program
        self._ports = ports
        self._arguments = tuple(arguments)
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: FolderLock | None = None

    async def __aenter__(self) -> Self:
        """Start the server."""
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the server."""
        await self.stop()

    @property
    def pid(self) -> int | None:
        """Return the server's process id while it runs."""
        return self._process.pid if self._process and self._process.poll() is None else None

    @property
    def endpoint(self) -> str:
        """Return `host:port` for clients; the same after a restart."""
        assert self._ports is not None, "start() chooses the ports"
        return f"127.0.0.1:{self._ports.client}"

    async def start(self, *, wait: bool = True) -> None:
        """Start the server and, if `wait`, do not return before it is healthy.

        Does nothing if it runs. Raises NotFound ETCD_NOT_FOUND without a program, WrongState
        ETCD_IN_USE when another process holds the folder, and Unavailable ETCD_NOT_STARTED with
        the end of its log when it does not become healthy.
        """
        if self.pid is not None:
            return
        program = find_etcd(self._program)
        if program is None:
            raise NotFound("ETCD_NOT_FOUND", f"no program {self._program or 'etcd'} was found")
        self._data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = self._lock or FolderLock(self._data_dir)
        self._lock.take("ETCD_IN_USE", f"the etcd in {self._data_dir} is run by another process")
        rotate(self._log)
        try:
            await self._start(program, wait=wait)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop the server: SIGTERM, then SIGKILL. Idempotent."""
        if self._process is not None:
            await child.stop(self._process, _STOP_STEPS)
            self._process = None
        if self._lock is not None:
            self._lock.release()

    async def wait_ended(self) -> int:
        """Return the server's exit code once it has ended, be it by a crash or by `stop`."""
        process = self._process
        assert process is not None, "start() comes first"
        while not await child.ended(process, 60.0):
            pass
        return process.returncode

    async def wait_healthy(self) -> None:
        """Wait until the server is part of a cluster with a leader."""
        if not await self._healthy(asyncio.get_running_loop().time() + START_TIMEOUT_S):
            raise self._not_started()

    async def restart(self) -> None:
        """Start again after a crash (or stop and start), at the same address."""
        await self.stop()
        await self.start()

    async def destroy(self) -> None:
        """Stop the server and delete everything it keeps."""
        await self.stop()
        shutil.rmtree(self._data_dir, ignore_errors=True)

    @property
    def _log(self) -> Path:
        return self._data_dir / "etcd.log"

    async def _start(self, program: str, *, wait: bool) -> None:
        """Start, repeating while a predecessor of ours still holds the ports."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + START_TIMEOUT_S
        fixed = self._ports is not None
        self._ports = self._ports or self._recorded_ports() or EtcdPorts.free()
        while loop.time() < deadline:
            with open_log(self._log) as log:
                self._process = child.spawn(
                    self._command(program, self._ports),
                    output=log,
                    environment={"PATH": "/usr/bin:/bin"},
                    folder=self._data_dir,
                )
            if not wait:
                return
            if await self._healthy(deadline):
                self._record_ports(self._ports)
                return
            await child.stop(self._process, _STOP_STEPS)
            await asyncio.sleep(_RETRY_S)
            if not fixed and loop.time() > deadline - START_TIMEOUT_S * 0.8:
                # Not a predecessor on its way out: somebody else took the port of last time.
                self._ports = EtcdPorts.free()
        raise self._not_started()

    def _command(self, program: str, ports: EtcdPorts) -> list[str]:
        client, peer = f"http://127.0.0.1:{ports.client}", f"http://127.0.0.1:{ports.peer}"
        return [
            program,
            *("--name", "tenure", "--data-dir", str(self._data_dir / "data")),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"tenure={peer}"),
            *("--listen-metrics-urls", f"http://127.0.0.1:{ports.health}"),
            *("--heartbeat-interval", "50", "--election-timeout", "500"),
            *("--auto-compaction-mode", "revision", "--auto-compaction-retention", "10000"),
            *("--logger", "zap", "--log-level", "warn", "--log-outputs", "stderr"),
            *self._arguments,
        ]

    async def _healthy(self, deadline: float) -> bool:
        """Wait for the health page to say yes; False if the server ends first or time runs out."""
        assert self._process is not None and self._ports is not None
        loop = asyncio.get_running_loop()
        while self._process.poll() is None and loop.time() < deadline:
            if await _says_healthy(self._ports.health):
                return self._process.poll() is None
            await asyncio.sleep(0.02)
        return False

    def _recorded_ports(self) -> EtcdPorts | None:
        try:
            return EtcdPorts(**json.loads((self._data_dir / "ports.json").read_text()))
        except FileNotFoundError:
            return None

    def _record_ports(self, ports: EtcdPorts) -> None:
        (self._data_dir / "ports.json").write_text(json.dumps(asdict(ports)) + "\n")

    def _not_started(self) -> Unavailable:
        message = f"etcd did not start. The end of {self._log}:\n{end_of_log(self._log)}"
        return Unavailable("ETCD_NOT_STARTED", message)


async def _says_healthy(port: int) -> bool:
    """Ask etcd's health page, which does a linearizable read, once."""
    try:
        async with asyncio.timeout(2.0):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(b"GET /health HTTP/1.0\r\n\r\n")
                return b'"health":"true"' in await reader.read()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return False
