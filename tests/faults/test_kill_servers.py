"""kill -9 of PostgreSQL and of etcd during a workload: every promise holds afterwards."""

from __future__ import annotations

import pytest
from tests.support.storm import LATE, Storm, final_checks
from tests.support.suite import running_suite

pytestmark = [pytest.mark.faults, pytest.mark.timeout(240)]


async def _killed_twice(name: str) -> None:
    async with running_suite() as running:
        storm = Storm(running)
        storm.begin()
        await storm.under_load()
        killed = running.kill(name)
        await running.runs_again(name, killed)
        await storm.moves_on()
        killed = running.kill(name)
        await running.runs_again(name, killed)
        await storm.ended()
        await final_checks(storm, may_fail=LATE)


async def test_kill_9_of_postgresql_loses_nothing_that_was_acknowledged() -> None:
    await _killed_twice("postgres")


@pytest.mark.etcd
async def test_kill_9_of_etcd_delays_elections_and_loses_nothing() -> None:
    await _killed_twice("etcd")
