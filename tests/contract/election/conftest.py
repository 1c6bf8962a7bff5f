"""Servers for the election suite: one PostgreSQL a session, an etcd a test."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.contract.election.stores import EtcdStoreHandle, FixedStore, RowStoreHandle, Store

from tenure_runtime.embedded.etcd import EmbeddedEtcd, find_etcd
from tenure_runtime.embedded.postgres import EmbeddedPostgres


@pytest.fixture(scope="session")
def election_postgres() -> Iterator[EmbeddedPostgres]:
    folder = Path(tempfile.mkdtemp(prefix="tenure-election-"))
    folder.chmod(0o711)
    postgres = EmbeddedPostgres(folder / "pg")
    asyncio.run(postgres.start())
    yield postgres
    asyncio.run(postgres.destroy())
    shutil.rmtree(folder)


@pytest_asyncio.fixture
async def row_store(election_postgres: EmbeddedPostgres) -> RowStoreHandle:
    dsn = await election_postgres.ensure_database(f"e_{uuid.uuid4().hex}")
    return RowStoreHandle(election_postgres, dsn)


@pytest_asyncio.fixture
async def etcd_store(tmp_path: Path) -> AsyncIterator[EtcdStoreHandle]:
    if find_etcd() is None:
        pytest.skip("no etcd program on the PATH (Debian: apt-get install etcd-server)")
    async with EmbeddedEtcd(tmp_path / "etcd") as etcd:
        yield EtcdStoreHandle(etcd)


_LASTING = [
    pytest.param("row_store", marks=pytest.mark.postgres, id="row"),
    pytest.param("etcd_store", marks=pytest.mark.etcd, id="etcd"),
]


@pytest.fixture(params=_LASTING)
def lasting_store(request: pytest.FixtureRequest) -> Store:
    return request.getfixturevalue(request.param)


@pytest.fixture(params=[pytest.param("fixed", id="fixed"), *_LASTING])
def store(request: pytest.FixtureRequest) -> Store:
    if request.param == "fixed":
        return FixedStore()
    return request.getfixturevalue(request.param)
