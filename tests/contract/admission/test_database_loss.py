"""PostgreSQL is killed under a running admission: nothing acknowledged is lost, and all goes on."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.contract.admission.harness import Caller, State, a_lease, on_postgres, request_id

from tenure.admission.v1 import admission_pb2 as calls
from tenure_core.errors import Unavailable
from tenure_runtime.embedded.postgres import EmbeddedPostgres
from tenure_runtime.rpc.client import RetryPolicy

pytestmark = [pytest.mark.postgres, pytest.mark.faults]

PATIENT = RetryPolicy(attempts=500, longest_ms=200)


async def follow(caller: Caller, token: str, last: str) -> list[tuple[str, int]]:
    """Follow the changes over reconnections until the lease `last` is cancelled."""
    seen: list[tuple[str, int]] = []
    while True:
        request = calls.WatchLeasesRequest(resume_token=token)
        try:
            async with caller.client.stream(caller.stub.WatchLeases, request) as stream:
                async for event in stream:
                    token = event.resume_token
                    if event.HasField("lease"):
                        seen.append((event.lease.name, event.lease.version))
                        if event.lease.name == last and event.lease.version == 2:
                            return seen
        except Unavailable:
            await asyncio.sleep(0.05)


@pytest.fixture
async def own_postgres(tmp_path: Path) -> AsyncIterator[EmbeddedPostgres]:
    """A server that a test may kill, gone with all it keeps when the test ends."""
    server = EmbeddedPostgres(tmp_path / "postgres")
    await server.start()
    try:
        yield server
    finally:
        await server.destroy()


async def test_kill_9_of_the_database_loses_nothing_acknowledged(
    own_postgres: EmbeddedPostgres,
) -> None:
    dsn = await own_postgres.ensure_database("admission")
    async with on_postgres(dsn) as admission:
        user = await admission.caller("user", default_timeout_s=60, retry=PATIENT)
        token = (await user(calls.ListLeasesRequest())).resume_token
        last = await user.create(lease_id="last")
        wait = calls.WaitLeaseRequest(name=last.name)
        wait.timeout.FromSeconds(60)
        stop = asyncio.Event()
        acknowledged: list[str] = []

        async def write() -> None:
            while not stop.is_set():
                lease = await user.create(a_lease(), request_id=request_id())
                acknowledged.append(lease.name)

        async with asyncio.TaskGroup() as group:
            following = group.create_task(follow(user, token, last.name))
            waiting = group.create_task(user(wait, timeout_s=60))
            writers = [group.create_task(write()) for _ in range(4)]
            await asyncio.sleep(0.3)
            assert own_postgres.pid is not None
            os.kill(own_postgres.pid, signal.SIGKILL)
            await own_postgres.restart()
            before = len(acknowledged)
            async with asyncio.timeout(30):
                while len(acknowledged) < before + 20:
                    await asyncio.sleep(0.05)
            stop.set()
            await asyncio.wait(writers)
            await user(calls.CancelLeaseRequest(name=last.name))

        waited = waiting.result()
        assert (waited.lease.state, waited.timed_out) == (State.STATE_CANCELLED, False)
        expected = sorted([(name, 1) for name in acknowledged] + [(last.name, 1), (last.name, 2)])
        assert sorted(following.result()) == expected
        stored = {last.name}
        request = calls.ListLeasesRequest(page_size=1_000)
        while True:
            page = await user(request)
            stored |= {lease.name for lease in page.leases}
            request.page_token = page.next_page_token
            if not page.next_page_token:
                break
        assert stored == {last.name, *acknowledged}
        assert await admission.store.quotas.drifts() == []
