"""kill -9 of each service during a workload of real processes: nothing lost, nothing twice."""

from __future__ import annotations

import pytest
from tests.support.storm import LATE, Storm, final_checks
from tests.support.suite import running_suite

pytestmark = [pytest.mark.faults, pytest.mark.timeout(240)]


@pytest.mark.parametrize(
    "service", ["admission", "slottable", "registry", "scheduler", "autoscaler"]
)
async def test_kill_9_of_a_service_loses_nothing_and_repeats_nothing(service: str) -> None:
    async with running_suite() as running:
        storm = Storm(running)
        storm.begin()
        await storm.under_load()
        killed = running.kill(service)
        await running.runs_again(service, killed)
        await storm.moves_on()
        killed = running.kill(service)
        await running.runs_again(service, killed)
        await storm.ended()
        await final_checks(storm, may_fail=LATE)
