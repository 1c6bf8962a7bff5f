"""The private PostgreSQL: durable, closed to others, gone with its parent, back after a crash."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import psutil
import pytest

from tenure_core.errors import DomainError
from tenure_runtime.embedded import postgres_placement
from tenure_runtime.embedded.child import RunAs
from tenure_runtime.embedded.postgres import EmbeddedPostgres
from tenure_runtime.embedded.postgres_binaries import can_reach, find_binaries, readable_by

pytestmark = pytest.mark.postgres


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """A folder that other users can pass through, short enough for a socket."""
    folder = Path(tempfile.mkdtemp(prefix="tenure-test-"))
    folder.chmod(0o711)
    yield folder / "pg"
    shutil.rmtree(folder, ignore_errors=True)


@contextlib.asynccontextmanager
async def connected(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()


async def test_what_was_committed_survives_kill_9_and_the_next_start(data_dir: Path) -> None:
    async with EmbeddedPostgres(data_dir) as postgres:
        dsn = await postgres.ensure_database("book")
        async with connected(dsn) as connection:
            await connection.execute("CREATE TABLE kept (n int)")
            await connection.execute("INSERT INTO kept SELECT generate_series(1, 500)")
        assert postgres.pid is not None
        os.kill(postgres.pid, signal.SIGKILL)
        assert await postgres.wait_ended() == -signal.SIGKILL
        await postgres.restart()
        assert await postgres.ensure_database("book") == dsn
        async with connected(dsn) as connection:
            assert await connection.fetchval("SELECT count(*) FROM kept") == 500
    again = EmbeddedPostgres(data_dir)
    async with again, connected(again.dsn("book")) as connection:
        assert await connection.fetchval("SELECT count(*) FROM kept") == 500
        assert await connection.fetchval("SHOW fsync") == "on"


async def test_it_listens_on_a_closed_socket_only_and_asks_for_the_password(
    data_dir: Path,
) -> None:
    async with EmbeddedPostgres(data_dir) as postgres:
        assert postgres.pid is not None
        server = psutil.Process(postgres.pid)
        assert [each for each in server.net_connections() if each.family != socket.AF_UNIX] == []
        folder = postgres._sockets
        assert folder is not None
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE((data_dir / "password").stat().st_mode) == 0o600
        assert stat.S_IMODE((data_dir / "postgres.log").stat().st_mode) == 0o600
        if os.geteuid() == 0:
            assert server.username() == "nobody"
            assert folder.stat().st_uid == pwd.getpwnam("nobody").pw_uid
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(
                user="tenure", password="guess", host=str(folder), database="postgres"
            )


async def test_a_path_too_long_for_a_socket_gets_a_short_one_that_is_removed(
    data_dir: Path,
) -> None:
    postgres = EmbeddedPostgres(data_dir / ("long" * 30))
    data_dir.mkdir(mode=0o711)
    async with postgres:
        sockets = postgres._sockets
        assert sockets is not None
        assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
        async with connected(postgres.dsn()) as connection:
            assert await connection.fetchval("SELECT 1") == 1
    assert not sockets.exists()


async def test_a_second_start_on_the_same_folder_is_refused(data_dir: Path) -> None:
    async with EmbeddedPostgres(data_dir) as first:
        with pytest.raises(DomainError) as refused:
            await EmbeddedPostgres(data_dir).start()
        assert refused.value.reason == "POSTGRES_IN_USE"
        async with connected(first.dsn()) as connection:
            assert await connection.fetchval("SELECT 1") == 1


async def test_databases_are_made_once_however_many_ask_at_once(data_dir: Path) -> None:
    async with EmbeddedPostgres(data_dir) as postgres:
        asked = await asyncio.gather(*(postgres.ensure_database("shared") for _ in range(4)))
        assert asked == [postgres.dsn("shared")] * 4
        with pytest.raises(ValueError, match="a database is named"):
            await postgres.ensure_database('x"; DROP DATABASE shared')


async def test_another_major_releases_data_is_refused_in_a_sentence(data_dir: Path) -> None:
    async with EmbeddedPostgres(data_dir):
        pass
    placement = postgres_placement.place(data_dir, "nobody")
    (placement.cluster / "PG_VERSION").write_text("9\n")
    with pytest.raises(DomainError, match="written by PostgreSQL 9") as refused:
        await EmbeddedPostgres(data_dir).start()
    assert refused.value.reason == "POSTGRES_MAJOR_MISMATCH"


async def test_data_that_vanished_is_not_replaced_by_an_empty_database(data_dir: Path) -> None:
    async with EmbeddedPostgres(data_dir):
        pass
    shutil.rmtree(postgres_placement.place(data_dir, "nobody").home)
    with pytest.raises(DomainError) as refused:
        await EmbeddedPostgres(data_dir).start()
    assert refused.value.reason == "POSTGRES_DATA_MISSING"


async def test_a_start_that_fails_shows_the_end_of_the_log(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure_runtime.embedded.postgres.START_TIMEOUT_S", 1.0)
    with pytest.raises(DomainError, match="unrecognized configuration parameter") as refused:
        await EmbeddedPostgres(data_dir, settings={"no_such_setting": "1"}).start()
    assert refused.value.reason == "POSTGRES_NOT_STARTED"


async def test_destroy_leaves_nothing_and_the_next_start_is_empty(data_dir: Path) -> None:
    async with EmbeddedPostgres(data_dir) as postgres:
        await postgres.ensure_database("old")
        await postgres.destroy()
    assert sorted(path.name for path in data_dir.iterdir()) == ["lock"]
    async with EmbeddedPostgres(data_dir) as postgres, connected(postgres.dsn()) as connection:
        names = await connection.fetch("SELECT datname FROM pg_database WHERE datname = 'old'")
        assert names == []


_PARENT = """
import asyncio, sys
from pathlib import Path
from tenure_runtime.embedded.postgres import EmbeddedPostgres

async def main():
    postgres = EmbeddedPostgres(Path(sys.argv[1]))
    await postgres.start()
    print(postgres.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.faults
async def test_the_server_ends_when_its_parent_is_killed_and_the_next_start_waits_for_it(
    data_dir: Path,
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _PARENT, str(data_dir)], stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        server = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    async with EmbeddedPostgres(data_dir) as postgres:
        assert postgres.pid not in (None, server.pid)
        # Nobody may have reaped it yet, but it has ended.
        assert not server.is_running() or server.status() == psutil.STATUS_ZOMBIE


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as another user")
async def test_data_below_a_closed_folder_of_roots_is_kept_elsewhere_and_nothing_is_opened(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    postgres = EmbeddedPostgres(home / "pg")
    try:
        await postgres.start()
        placement = postgres_placement.place(home / "pg", "nobody")
        assert home not in placement.home.parents
        assert stat.S_IMODE(placement.home.stat().st_mode) == 0o700
        assert stat.S_IMODE(home.stat().st_mode) == 0o700
        async with connected(postgres.dsn()) as connection:
            assert await connection.fetchval("SELECT 1") == 1
    finally:
        await postgres.destroy()
    assert not placement.home.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as another user")
async def test_programs_in_a_closed_home_run_from_a_readable_copy(
    tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = find_binaries().folder.parent.parent
    home = tmp_path / "home"
    shutil.copytree(package, home / package.name, symlinks=True)
    shutil.copytree(f"{package}.libs", home / f"{package.name}.libs", symlinks=True)
    home.chmod(0o700)
    binaries = home / package.name / "pginstall" / "bin"
    shelf = data_dir.parent / "shelf"
    shelf.mkdir(mode=0o711)
    monkeypatch.setattr(postgres_placement, "store", lambda: shelf)
    async with EmbeddedPostgres(data_dir, binaries=binaries) as postgres:
        assert shelf in postgres.binaries.parents
        async with connected(postgres.dsn()) as connection:
            assert await connection.fetchval("SELECT 1") == 1
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    nobody = RunAs("nobody", 65534, 65534)
    hidden = find_binaries(binaries)
    assert not can_reach(hidden.folder, nobody)
    assert readable_by(hidden, nobody, lambda: shelf) == readable_by(hidden, nobody, lambda: shelf)


def test_a_folder_without_programs_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(DomainError, match=str(tmp_path)) as refused:
        find_binaries(tmp_path)
    assert refused.value.reason == "POSTGRES_NOT_FOUND"
