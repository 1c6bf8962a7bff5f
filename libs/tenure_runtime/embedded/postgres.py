"""Runs a private PostgreSQL for one data folder: makes it, starts it, watches it, stops it.

The server is a direct child that dies with us, listens on a unix socket in a 0700 folder and on no
TCP port, and asks for a generated password. Durability is left as PostgreSQL ships it (fsync on).
Where the files lie is `postgres_placement`'s decision, which programs run is `postgres_binaries`',
how a new cluster is made is `postgres_cluster`'s.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote, urlencode

import asyncpg

from . import child, postgres_placement
from .folder_lock import FolderLock
from .log_file import open_log, rotate
from .postgres_binaries import Binaries, find_binaries, readable_by
from .postgres_cluster import make_cluster, not_started, spawn_program

SUPERUSER: Final = "tenure"

START_TIMEOUT_S: Final = 60.0
"""How long a start may take, recovery and old children that still leave included."""

_STOP_STEPS: Final = ((signal.SIGINT, 20.0), (signal.SIGQUIT, 5.0))
_RETRY_S: Final = 0.25
_DATABASE: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}")

# For a small machine that runs everything: little memory, no parallel workers, no replication,
# long checkpoints. Nothing here weakens what a commit promises.
_SETTINGS: Final = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "1GB",
    "checkpoint_timeout": "15min",
    "max_parallel_workers_per_gather": "0",
    "max_worker_processes": "4",
    "random_page_cost": "1.1",
    "jit": "off",
    "log_checkpoints": "off",
    "log_line_prefix": "%m [%p] ",
    "timezone": "UTC",
    "log_timezone": "UTC",
}


def running_dsn(data_dir: Path, database: str) -> str:
    """Return the address of a server that another process runs for `data_dir`; empty for none."""
    placement = postgres_placement.known(data_dir)
    sockets = None if placement is None else placement.sockets_in_use()
    if placement is None or sockets is None:
        return ""
    return _dsn(placement.password(), sockets, database)


def _dsn(password: str, sockets: Path, database: str) -> str:
    where = urlencode({"host": str(sockets), "port": "5432"})
    return f"postgresql://{SUPERUSER}:{quote(password, safe='')}@/{quote(database)}?{where}"


class EmbeddedPostgres:
    """A private PostgreSQL for `data_dir`, as an async context manager or by `start` and `stop`.

    `binaries` names a folder with `initdb` and `postgres`; without it they are looked for. `user`
    is who the server runs as when we are root (PostgreSQL refuses root itself); name an account of
    its own where other daemons also run as nobody. `settings` are server settings that win over
    ours. Not bound to an event loop: it may be started in one and stopped in another, but start it
    from a thread that lives as long as the server should.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        binaries: Path | None = None,
        user: str = "nobody",
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._data_dir = Path(data_dir)
        self._named_binaries = binaries
        self._user = user
        self._settings = {**_SETTINGS, **(settings or {})}
        self._placement: postgres_placement.Placement | None = None
        self._binaries: Binaries | None = None
        self._sockets: Path | None = None
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
    def version(self) -> str:
        """Return the release that runs, for example 18.6."""
        assert self._binaries is not None, "start() finds the programs"
        return self._binaries.version

    @property
    def binaries(self) -> Path:
        """Return the folder of the programs that run, for `psql` and `pg_dump` beside it."""
        assert self._binaries is not None, "start() finds the programs"
        return self._binaries.folder

    def dsn(self, database: str = "postgres") -> str:
        """Return the address of one database for asyncpg, password included: do not log it."""
        assert self._placement is not None and self._sockets is not None, "start() comes first"
        return _dsn(self._placement.password(), self._sockets, database)

    async def start(self) -> None:
        """Make the cluster if there is none, start the server and wait until it answers.

        Does nothing if it runs. Raises WrongState POSTGRES_IN_USE when another process holds the
        data folder, POSTGRES_MAJOR_MISMATCH when only another major release is at hand, and
        Unavailable POSTGRES_NOT_STARTED with the end of its log when it does not come up.
        """
        if self.pid is not None:
            return
        placement = postgres_placement.place(self._data_dir, self._user)
        self._placement = placement
        self._take_lock(placement)
        try:
            self._binaries = self._usable_binaries(placement)
            self._sockets = self._sockets or placement.socket_folder()
            if placement.major() is None:
                await make_cluster(placement, self._binaries, SUPERUSER)
            await self._start_server(placement, self._binaries)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop the server: fast shutdown, then immediate, then SIGKILL. Idempotent."""
        if self._process is not None:
            await child.stop(self._process, _STOP_STEPS)
            self._process = None
        if self._sockets is not None and self._placement is not None:
            if self._placement.home not in self._sockets.parents:
                shutil.rmtree(self._sockets, ignore_errors=True)
            self._sockets = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    async def wait_ended(self) -> int:
        """Return the server's exit code once it has ended, be it by a crash or by `stop`."""
        process = self._process
        assert process is not None, "start() comes first"
        while not await child.ended(process, 60.0):
            pass
        return process.returncode

    async def restart(self) -> None:
        """Start again after a crash (or stop and start), at the same address.

        After kill -9 of the server its old children need up to some seconds to leave; starts are
        repeated until they have.
        """
        placement, binaries = self._placement, self._binaries
        assert placement is not None and binaries is not None, "start() comes first"
        if self._process is not None:
            await child.stop(self._process, _STOP_STEPS)
        await self._start_server(placement, binaries)

    async def ensure_database(self, name: str) -> str:
        """Create the database unless it exists, and return its address.

        `name` matches [a-z_][a-z0-9_]{0,62}. Safe when several callers do it at once.
        """
        if not _DATABASE.fullmatch(name):
            raise ValueError(f"a database is named [a-z_][a-z0-9_]{{0,62}}, not {name!r}")
        connection = await asyncpg.connect(self.dsn())
        try:
            known = await connection.fetchval("SELECT 1 FROM pg_database WHERE datname = $1", name)
            if known is None:
                await connection.execute(f'CREATE DATABASE "{name}"')
        except (asyncpg.DuplicateDatabaseError, asyncpg.UniqueViolationError):
            pass  # Another caller was faster.
        finally:
            await connection.close()
        return self.dsn(name)

    async def destroy(self) -> None:
        """Stop the server and delete everything it keeps, wherever that lies."""
        await self.stop()
        placement = self._placement or postgres_placement.place(self._data_dir, self._user)
        self._take_lock(placement)
        postgres_placement.remove(placement)
        await self.stop()
        self._placement = None

    def _take_lock(self, placement: postgres_placement.Placement) -> None:
        self._lock = self._lock or FolderLock(placement.data_dir)
        self._lock.take(
            "POSTGRES_IN_USE",
            f"the database in {placement.data_dir} is run by another process; stop that first",
        )

    def _usable_binaries(self, placement: postgres_placement.Placement) -> Binaries:
        binaries = find_binaries(self._named_binaries, major=placement.major())
        if placement.run_as is None:
            return binaries
        return readable_by(binaries, placement.run_as, postgres_placement.store)

    async def _start_server(
        self, placement: postgres_placement.Placement, binaries: Binaries
    ) -> None:
        """Start the server, repeating while a predecessor's processes are still leaving."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + START_TIMEOUT_S
        rotate(placement.log)
        command = [
            *(binaries.program("postgres"), "-D", str(placement.cluster)),
            *("-c", f"unix_socket_directories={self._sockets}"),
        ]
        # Workers for asynchronous reads (18 and later) bring nothing at this size.
        ours = {"io_method": "sync"} if binaries.major >= 18 else {}
        for name, value in (ours | self._settings).items():
            command += ["-c", f"{name}={value}"]
        while loop.time() < deadline:
            with open_log(placement.log) as log:
                self._process = spawn_program(command, log, placement, signal.SIGINT)
            if await self._answers(self._process, deadline):
                return
            await child.stop(self._process, ())
            await asyncio.sleep(_RETRY_S)
        raise not_started(f"PostgreSQL did not start within {START_TIMEOUT_S:g} s", placement.log)

    async def _answers(self, process: subprocess.Popen[bytes], deadline: float) -> bool:
        """Wait until the server takes a connection; False if it ends first or time runs out."""
        loop = asyncio.get_running_loop()
        while process.poll() is None and loop.time() < deadline:
            try:
                connection = await asyncpg.connect(self.dsn(), timeout=5)
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                await asyncio.sleep(0.02)
                continue
            await connection.close()
            return process.poll() is None
        return False
