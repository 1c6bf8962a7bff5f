"""Losses that are rare and must still be survived: a wiped etcd, work that is to be kept."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from pathlib import Path

import pytest
from tests.support.owner import Owner
from tests.support.suite import FAST, RunningSuite, running_suite, until

from tenure.registry.v1 import agent_pb2, registry_pb2
from tenure.registry.v1.registry_pb2_grpc import RegistryServiceStub
from tenure.scheduler.v1 import scheduler_pb2 as spb
from tenure.scheduler.v1.scheduler_pb2_grpc import SchedulerServiceStub
from tenure.type.v1 import work_pb2
from tenure_cli.demo.verifying import read_trails
from tenure_core.errors import DomainError
from tenure_core.trails import doubles, mixed_attempts

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]


async def _epoch(running: RunningSuite) -> int:
    """Return the epoch under which the scheduler leads, 0 when it does not."""
    async with running.client("scheduler") as client:
        stub = SchedulerServiceStub(client.channel)
        try:
            request = spb.GetLeaderRequest(pool="default")
            return (await client.call(stub.GetLeader, request, timeout_s=2)).epoch
        except DomainError:
            return 0


def _shell(line: str) -> work_pb2.Work:
    return work_pb2.Work(command=["/bin/sh", "-c", line])


@pytest.mark.etcd
async def test_epochs_go_on_growing_when_etcd_loses_everything() -> None:
    async with running_suite(agents=1) as running, running.client("admission") as client:
        owner = Owner(client)
        await owner.submit("before", work=_shell("sleep 8"))
        await owner.until_state("before", "active")
        first = await _epoch(running)
        # The running member holds its files open; the next one finds nothing.
        shutil.rmtree(running.folder / "etcd" / "data")
        killed = running.kill("etcd")
        await running.runs_again("etcd", killed)

        async def leads_anew() -> bool:
            return await _epoch(running) > first

        await until(leads_anew, 30.0, "the scheduler leads under a newer epoch")
        await owner.submit("after", work=_shell("exit 0"))
        after = await owner.until_state("after", "done", within_s=30)
        before = await owner.until_state("before", "done", within_s=30)

        assert (before.attempt, before.reason) == (1, "COMPLETED")
        assert (after.attempt, after.reason) == (1, "COMPLETED")


async def test_work_to_be_kept_outlives_its_agent_and_is_never_placed_anew() -> None:
    async with running_suite(agents=2) as running, running.client("admission") as client:
        await running.start_mortal_agent("agent-1")
        await running.start_mortal_agent("agent-2")
        owner = Owner(client)
        note = running.folder / "note"
        note.touch()
        note.chmod(0o666)
        await owner.submit(
            "kept",
            amounts={"cpu": 4_000},
            on_loss=work_pb2.ON_LOSS_KEEP,
            work=_shell(f"echo $$ > {note}; sleep 12; echo over >> {note}"),
        )
        placed = await owner.until_state("kept", "active")
        agent = placed.placements[0].node.removeprefix("nodes/")
        running.kill(agent)
        await _until_lost(running, agent)
        await asyncio.sleep(int(FAST["registry"]["TENURE_FENCE_MS"]) / 1_000)
        pid = int(note.read_text().split()[0])
        os.kill(pid, 0)
        still = await owner.lease("kept")
        await running.start_mortal_agent(agent)
        done = await owner.until_state("kept", "done", within_s=40)

        assert (still.state, still.attempt) == (placed.state, 1)
        assert (done.attempt, done.reason, note.read_text().split()[1]) == (1, "COMPLETED", "over")
        runs = read_trails(running.folder / "agents")
        assert [(run.lease, run.node, run.exit_code) for run in runs] == [("kept", agent, 0)]


async def _until_lost(running: RunningSuite, agent: str) -> None:
    async with running.client("registry") as client:
        stub = RegistryServiceStub(client.channel)
        request = registry_pb2.GetAgentRequest(name=f"agents/{agent}")

        async def lost() -> bool:
            answer = await client.call(stub.GetAgent, request)
            return answer.agent.state == agent_pb2.Agent.STATE_LOST

        await until(lost, 30.0, f"{agent} is lost")


async def test_a_frozen_agent_is_given_up_only_once_its_work_has_ended() -> None:
    """The agent is stopped, not killed: it cannot end its work itself, and does not know later."""
    async with running_suite(agents=2) as running, running.client("admission") as client:
        owner = Owner(client)
        note = running.folder / "note"
        note.touch()
        note.chmod(0o666)
        line = f"echo $TENURE_NODE >> {note}; sleep 6"
        await owner.submit("moves", amounts={"cpu": 4_000}, work=_shell(line))
        placed = await owner.until_state("moves", "active")
        agent = placed.placements[0].node.removeprefix("nodes/")
        pid = running.kill(agent, signal.SIGSTOP)
        try:
            done = await owner.until_state("moves", "done", within_s=40)
        finally:
            os.kill(pid, signal.SIGCONT)
        runs = read_trails(running.folder / "agents")

        assert done.attempt == 2
        assert len(set(_words(note))) == 2
        assert [*doubles(runs), *mixed_attempts(runs)] == []


def _words(path: Path) -> list[str]:
    return path.read_text().split()
