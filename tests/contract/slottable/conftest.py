"""The use cases of slottable over each of its stores."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.contract.slottable.stores import memory_usecases, postgres_usecases

from tenure_slottable.usecases import SlotTableUseCases


@pytest.fixture
async def memory() -> AsyncIterator[SlotTableUseCases]:
    async with memory_usecases() as usecases:
        yield usecases


@pytest.fixture
async def postgres(database_dsn: str) -> AsyncIterator[SlotTableUseCases]:
    async with postgres_usecases(database_dsn) as usecases:
        yield usecases


@pytest.fixture(params=["memory", pytest.param("postgres", marks=pytest.mark.postgres)])
def table(request: pytest.FixtureRequest) -> SlotTableUseCases:
    made: SlotTableUseCases = request.getfixturevalue(request.param)
    return made
