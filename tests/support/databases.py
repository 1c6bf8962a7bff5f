"""Fresh PostgreSQL databases for tests: one server a test session, one database a test.

The fixtures are made known to all tests by `tests/conftest.py`. The server runs without fsync:
tests that pull the plug, and benches, start their own `EmbeddedPostgres`.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tenure_runtime.embedded.postgres import EmbeddedPostgres
    from tenure_runtime.postgres.pool import Pool

_SETTINGS = {"fsync": "off", "synchronous_commit": "off", "shared_buffers": "32MB"}


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[EmbeddedPostgres]:
    """One private PostgreSQL server for the whole session."""
    from tenure_runtime.embedded.postgres import EmbeddedPostgres

    folder = Path(tempfile.mkdtemp(prefix="tenure-test-pg-", dir="/tmp"))
    server = EmbeddedPostgres(folder, settings=_SETTINGS)
    try:
        asyncio.run(server.start())
        yield server
    finally:
        asyncio.run(server.destroy())
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
async def database_dsn(postgres_server: EmbeddedPostgres) -> AsyncIterator[str]:
    """The DSN of a fresh database that is dropped after the test."""
    import asyncpg

    from tenure_runtime.ids import RandomIds

    name = f"test_{RandomIds().short(10)}"
    admin = await asyncpg.connect(postgres_server.dsn())
    try:
        await admin.execute(f"CREATE DATABASE {name} TEMPLATE template0 STRATEGY file_copy")
        yield postgres_server.dsn(name)
        await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await admin.close()


async def open_test_pool(dsn: str, schema: str, size_max: int = 8) -> Pool:
    """Open a pool on `schema`; the caller runs `migrate` and closes it."""
    from tenure_runtime.postgres.pool import PoolOptions, open_pool

    return await open_pool(PoolOptions(dsn, schema, size_max=size_max, wait_s=10))
