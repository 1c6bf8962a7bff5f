"""Parts of the suite are killed and paused at random during a workload; two schedulers compete.

Meanwhile owners cancel and extend what they have.

A seed names one course of events; `TENURE_SEEDS=7,8,9` plays others.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal

import pytest
from tests.support.storm import LATE, LOST, Storm, final_checks
from tests.support.suite import RunningSuite, running_suite

pytestmark = [pytest.mark.faults, pytest.mark.etcd, pytest.mark.timeout(300)]

SEEDS = [int(seed) for seed in os.environ.get("TENURE_SEEDS", "3").split(",")]
BLOWS = 8
PARTS = (
    "admission",
    "slottable",
    "registry",
    "scheduler",
    "scheduler-2",
    "postgres",
    "etcd",
    "agent-1",
    "agent-2",
    "agent-3",
    "agent-4",
)


@pytest.mark.parametrize("seed", SEEDS)
async def test_whatever_is_killed_or_paused_every_promise_holds_afterwards(seed: int) -> None:
    rng = random.Random(seed)
    print(f"seed {seed}")
    async with running_suite() as running:
        await running.start_replica("scheduler", 2)
        storm = Storm(running, count=36)
        storm.begin()
        await storm.under_load(2)
        owner = asyncio.create_task(storm.fickle_owner(random.Random(seed)))
        for _ in range(BLOWS):
            await _strike(running, rng)
            print(storm.counts())
            await asyncio.sleep(rng.uniform(0.1, 3.0))
        owner.cancel()
        await asyncio.gather(owner, return_exceptions=True)
        await storm.ended()
        await final_checks(storm, may_fail=LATE | LOST)


async def _strike(running: RunningSuite, rng: random.Random) -> None:
    """Kill a part, or pause it for longer than any patience of its neighbours."""
    name = rng.choice(PARTS)
    pauses = rng.random() < 0.3
    pause_s = rng.uniform(1.0, 6.0)
    if not running.runs(name):
        return
    print("pause" if pauses else "kill", name)
    pid = running.kill(name, signal.SIGSTOP if pauses else signal.SIGKILL)
    if pauses:
        await asyncio.sleep(pause_s)
        os.kill(pid, signal.SIGCONT)
