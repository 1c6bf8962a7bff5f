"""Two schedulers on one pool with a real etcd: one leads, and only one ever changes anything."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from tests.support.storm import LATE, Storm, final_checks
from tests.support.suite import RunningSuite, running_suite, until

from tenure.admission.v1 import admission_pb2 as apb
from tenure.scheduler.v1 import scheduler_pb2 as spb
from tenure.scheduler.v1.scheduler_pb2_grpc import SchedulerServiceStub
from tenure_core.errors import DomainError
from tenure_runtime.postgres.pool import PoolOptions, open_pool

pytestmark = [pytest.mark.faults, pytest.mark.etcd, pytest.mark.timeout(240)]

TTL_S = 3
FIRST, SECOND = "scheduler", "scheduler-2"


@dataclass(frozen=True)
class Leader:
    """Who leads, by its own word."""

    replica: str
    epoch: int


@asynccontextmanager
async def two_schedulers() -> AsyncIterator[RunningSuite]:
    services = {
        "scheduler": {"TENURE_ELECTION_TTL_S": str(TTL_S), "TENURE_POOLS_PERIOD_S": "1"},
    }
    async with running_suite(services=services) as running:
        await running.start_replica("scheduler", 2)
        yield running


async def word_of(running: RunningSuite, replica: str) -> Leader | None:
    """Return what a replica says of itself: the epoch under which it leads, or None."""
    async with running.client(replica) as client:
        stub = SchedulerServiceStub(client.channel)
        request = spb.GetLeaderRequest(pool="pools/default")
        try:
            answer = await client.call(stub.GetLeader, request, timeout_s=1, retry=False)
        except DomainError:
            return None
    return Leader(replica, answer.epoch) if answer.epoch else None


async def leading(running: RunningSuite) -> tuple[Leader, str]:
    """Return the leader and the name of the other replica."""
    found: list[Leader] = []

    async def one_leads() -> bool:
        words = [await word_of(running, FIRST), await word_of(running, SECOND)]
        found[:] = [word for word in words if word is not None]
        return len(found) == 1

    await until(one_leads, 20.0, "one of two replicas leads")
    return found[0], SECOND if found[0].replica == FIRST else FIRST


async def takes_over(running: RunningSuite, other: str, before: Leader) -> Leader:
    """Wait until the other replica leads under a later epoch, and return its word."""
    found: list[Leader] = []

    async def leads() -> bool:
        word = await word_of(running, other)
        found[:] = [word] if word is not None else []
        return bool(found)

    await until(leads, 3 * TTL_S + 10.0, f"{other} leads")
    assert found[0].epoch > before.epoch
    return found[0]


async def test_when_the_leader_is_killed_the_other_leads_within_ttl_plus_a_second() -> None:
    async with two_schedulers() as running:
        before, other = await leading(running)
        storm = Storm(running)
        storm.begin()
        await storm.under_load()
        killed_at = time.monotonic()
        running.kill(before.replica if before.replica == SECOND else FIRST)
        await takes_over(running, other, before)
        took_s = time.monotonic() - killed_at
        await storm.ended()
        await final_checks(storm, may_fail=LATE)
        assert took_s <= TTL_S + 1, f"the other led after {took_s:.2f} s"


async def done_under(running: RunningSuite, epoch: int) -> set[tuple[str, ...]]:
    """Return every transition and command that bears the epoch."""
    async with running.connect() as connection:
        client, stub = await connection.admission()
        leases = (await client.call(stub.ListLeases, apb.ListLeasesRequest(page_size=1_000))).leases
    recorded = {
        ("transition", entry.transition_id)
        for lease in leases
        for entry in lease.history
        if entry.transition_id.startswith(f"{epoch}.")
    }
    pool = await open_pool(PoolOptions(running.dsn(), "registry", size_max=1))
    try:
        rows = await pool.fetch("SELECT command_id FROM commands WHERE epoch = $1", epoch)
    finally:
        await pool.close()
    return recorded | {("command", row["command_id"]) for row in rows}


async def test_a_leader_stopped_past_its_time_changes_nothing_when_it_goes_on() -> None:
    async with two_schedulers() as running:
        before, other = await leading(running)
        storm = Storm(running, count=36)
        storm.begin()
        await storm.under_load()
        stopped = running.kill(before.replica, signal.SIGSTOP)
        try:
            after = await takes_over(running, other, before)
            fenced = await done_under(running, before.epoch)
            assert any(kind == "command" for kind, *_ in fenced), "it led nothing before"
            await storm.moves_on()
        finally:
            os.kill(stopped, signal.SIGCONT)
        await until(
            lambda: "leader.stepped_down" in _said_by(running, before.replica),
            20.0,
            "the old leader steps down",
        )
        await storm.moves_on()
        assert await word_of(running, before.replica) is None
        assert await word_of(running, other) == after
        await storm.ended()
        assert await done_under(running, before.epoch) == fenced
        assert await done_under(running, after.epoch), "the new leader did nothing"
        await final_checks(storm, may_fail=LATE)


async def test_leaders_stopped_in_turn_never_undo_one_another() -> None:
    async with two_schedulers() as running:
        storm = Storm(running, count=36)
        storm.begin()
        await storm.under_load()
        fences: dict[int, set[tuple[str, ...]]] = {}
        for _ in range(2):
            before, other = await leading(running)
            stopped = running.kill(before.replica, signal.SIGSTOP)
            try:
                await takes_over(running, other, before)
                fences[before.epoch] = await done_under(running, before.epoch)
            finally:
                os.kill(stopped, signal.SIGCONT)
            await asyncio.wait_for(storm.moves_on(2), 60)
        await storm.ended()
        for epoch, fenced in fences.items():
            assert await done_under(running, epoch) == fenced
        await final_checks(storm, may_fail=LATE)


def _said_by(running: RunningSuite, name: str) -> str:
    return (running.folder / "logs" / f"{name}.log").read_text(errors="replace")
