"""Fresh PostgreSQL databases for tests: one server a test session, one database a test.

The server runs without fsync: tests that pull the plug start their own.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from tenure_core.errors import Unavailable
from tenure_runtime.ids import RandomIds
from tenure_runtime.postgres.pool import Pool, PoolOptions, open_pool


def _programs() -> Path:
    """Return the folder with `initdb` and `postgres`: the setting, the wheel, the system's."""
    named = os.environ.get("TENURE_POSTGRES_BIN")
    found = [Path(named)] if named else []
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for folder in found:
        if (folder / "initdb").exists():
            return folder
    pytest.fail("no PostgreSQL programs: set TENURE_POSTGRES_BIN, or apt-get install postgresql")


class Server:
    """A private server on 127.0.0.1 with a free port, as an unprivileged user when we are root."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._bin = _programs()
        self._as_root = os.geteuid() == 0
        self._process: subprocess.Popen[bytes] | None = None
        self.port = _free_port()

    def start(self) -> None:
        if self._as_root:
            nobody = pwd.getpwnam("nobody")
            os.chown(self._folder, nobody.pw_uid, nobody.pw_gid)
        data = self._folder / "data"
        self._run("initdb", "-D", str(data), "-A", "trust", "-U", "tenure", "-N", "-E", "UTF8",
                  "--locale=C")  # fmt: skip
        options = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": str(self._folder),
            "fsync": "off",
            "max_connections": 200,
            "shared_buffers": "32MB",
        }
        flags = [part for key, value in options.items() for part in ("-c", f"{key}={value}")]
        self._process = subprocess.Popen(
            [str(self._bin / "postgres"), "-D", str(data), *flags],
            stdout=subprocess.DEVNULL,
            stderr=(self._folder / "log").open("wb"),
            **self._user(),
        )

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(2)
            self._process.wait(20)

    def dsn(self, database: str = "postgres") -> str:
        return f"postgresql://tenure@127.0.0.1:{self.port}/{database}"

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [str(self._bin / program), *arguments], check=True, capture_output=True, **self._user()
        )

    def _user(self) -> dict:
        return {"user": "nobody", "group": "nogroup", "cwd": "/"} if self._as_root else {}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """One PostgreSQL server for the whole session."""
    folder = Path(tempfile.mkdtemp(prefix="tenure-test-pg-", dir="/tmp"))
    folder.chmod(0o755)
    server = Server(folder)
    server.start()
    try:
        asyncio.run(_until_up(server.dsn()))
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


async def _until_up(dsn: str) -> None:
    end = time.monotonic() + 30
    while True:
        try:
            connection = await asyncpg.connect(dsn)
        except (OSError, asyncpg.CannotConnectNowError):
            if time.monotonic() > end:
                raise
            await asyncio.sleep(0.05)
        else:
            await connection.close()
            return


@pytest.fixture
async def database_dsn(postgres_server: Server) -> AsyncIterator[str]:
    """The DSN of a fresh database that is dropped after the test."""
    name = f"test_{RandomIds().short(10)}"
    admin = await asyncpg.connect(postgres_server.dsn())
    try:
        await admin.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        yield postgres_server.dsn(name)
        await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await admin.close()


async def open_test_pool(dsn: str, schema: str, size_max: int = 8) -> Pool:
    """Open a pool on `schema` (made by `migrate`, which the caller runs)."""
    try:
        return await open_pool(PoolOptions(dsn, schema, size_max=size_max, wait_s=10))
    except Unavailable as error:
        pytest.fail(str(error))
