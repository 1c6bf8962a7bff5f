"""The database goes away under a registry with agents connected, and comes back."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.contract.registry.conftest import QUICK, World, beating
from tests.support.fake_agent import start

from tenure.registry.v1 import agent_pb2
from tenure_core.errors import DomainError
from tenure_runtime.embedded.postgres import EmbeddedPostgres


@pytest.fixture
async def own_postgres() -> AsyncIterator[EmbeddedPostgres]:
    """A server that the test may kill."""
    folder = Path(tempfile.mkdtemp(prefix="tenure-test-pg-", dir="/tmp"))
    server = EmbeddedPostgres(folder, settings={"shared_buffers": "16MB"})
    try:
        await server.start()
        yield server
    finally:
        await server.destroy()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.faults
async def test_a_database_that_is_killed_stops_no_work_and_loses_no_agent(
    own_postgres: EmbeddedPostgres, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        world = World(await own_postgres.ensure_database("registry"), tmp_path, stack)
        await world.start(**{**QUICK, "replica_loss_ms": 60_000})
        stack.push_async_callback(world.stop_all)
        agent = await world.joined("a1")
        await world.dispatch(start("a1", "before"))
        before = await agent.command()
        assert own_postgres.pid is not None
        os.kill(own_postgres.pid, signal.SIGKILL)
        async with asyncio.timeout(30):
            # Well over the loss time: each beat has its answer all the same.
            for _ in range(30):
                await agent.answered_beat()
                await asyncio.sleep(0.04)
        with pytest.raises(DomainError):
            await world.dispatch(start("a1", "meanwhile"), timeout_s=0.5)
        async with beating(agent):
            await own_postgres.restart()
            async with asyncio.timeout(30):
                while True:
                    try:
                        reasons = await world.dispatch(start("a1", "after"), timeout_s=1.0)
                        break
                    except DomainError:
                        await asyncio.sleep(0.1)
        assert reasons == [""]
        async with beating(agent):
            assert (await agent.command()).lease == "leases/after"
        assert await agent.report(agent.about(before, "STARTED")) == 1
        stored = await world.get("a1")
        assert stored.session == agent.session.session
        assert stored.state == agent_pb2.Agent.STATE_ALIVE
