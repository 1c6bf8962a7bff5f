"""One admission over a real gRPC server, on PostgreSQL and on the memory store."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.contract.admission.harness import Admission, on_postgres


@pytest.fixture
async def admission(database_dsn: str) -> AsyncIterator[Admission]:
    """Admission on a fresh PostgreSQL database, served by gRPC."""
    async with on_postgres(database_dsn) as started:
        yield started
