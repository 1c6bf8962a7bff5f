"""kill -9 of agents during a workload: work goes on or ends in time, and runs once at a time."""

from __future__ import annotations

import pytest
from tests.support.storm import LOST, Storm, final_checks
from tests.support.suite import FAST, running_suite

from tenure.admission.v1 import lease_pb2 as lpb

pytestmark = [pytest.mark.faults, pytest.mark.timeout(240)]


async def test_kill_9_of_an_agent_that_comes_back_loses_nothing() -> None:
    async with running_suite() as running:
        storm = Storm(running)
        storm.begin()
        await storm.under_load()
        for agent in ("agent-1", "agent-3"):
            killed = running.kill(agent)
            await running.runs_again(agent, killed)
            await storm.moves_on()
        await storm.ended()
        await final_checks(storm, may_fail=LOST)


async def test_kill_9_of_an_agent_that_stays_dead_moves_its_work_once_it_has_ended() -> None:
    async with running_suite() as running:
        await running.start_mortal_agent("agent-4")
        storm = Storm(running)
        storm.begin()
        await storm.busy_on("agent-4")
        running.kill("agent-4")
        await storm.ended()
        runs = await final_checks(storm, may_fail=LOST)
        there = [run for run in runs if run.node == "agent-4"]
        moved = {run.lease for run in there if storm.state.known[run.lease].attempt > run.attempt}
        assert moved, "no work was lost with the agent: nothing was shown"
        fence_ms = int(FAST["registry"]["TENURE_FENCE_MS"])
        for first in there:
            again = [r for r in runs if r.lease == first.lease and r.attempt > first.attempt]
            assert all(first.end is not None and first.end <= r.start for r in again), fence_ms
        states = {storm.state.known[name].state for name in moved}
        assert lpb.Lease.STATE_DONE in states
