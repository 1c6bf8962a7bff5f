"""One admission over a real gRPC server, on PostgreSQL and on the memory store."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.contract.admission.harness import Admission, in_memory, on_postgres


@pytest.fixture(params=["postgres", "memory"])
def dsn(request: pytest.FixtureRequest) -> str | None:
    """A fresh database, then none: the memory store needs none."""
    return None if request.param == "memory" else request.getfixturevalue("database_dsn")


@pytest.fixture
async def admission(dsn: str | None) -> AsyncIterator[Admission]:
    """Admission served by gRPC on a fresh PostgreSQL database, then on the memory store."""
    async with in_memory() if dsn is None else on_postgres(dsn) as started:
        yield started


@pytest.fixture
async def stored(database_dsn: str) -> AsyncIterator[Admission]:
    """Admission on PostgreSQL, for what only a database can show."""
    async with on_postgres(database_dsn) as started:
        yield started
