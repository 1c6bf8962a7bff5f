"""This release and the one before it work together, on one database, while work goes on."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.support.storm import LATE, Storm, final_checks
from tests.support.suite import RunningSuite, running_suite
from tests.upgrade.previous import of, previous_release, that_goes_back

from tenure_cli.embedded.suite import Suite
from tenure_runtime.embedded.processes import ChildSpec

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SERVICES = ("admission", "slottable", "registry", "scheduler", "autoscaler")
BACKWARDS = ("scheduler", "agent-1", "autoscaler", "registry", "agent-2", "slottable", "admission")


class Mixed(Suite):
    """A suite whose parts named in `old` run the previous release's code."""

    def __init__(self, release: Path, old: Sequence[str], *given: Any) -> None:
        super().__init__(*given)
        self.release, self.old = release, set(old)

    def _service(self, name: str) -> ChildSpec:
        return self._of_its_release(super()._service(name))

    def agent(self, name: str) -> ChildSpec:
        return self._of_its_release(super().agent(name))

    def _of_its_release(self, child: ChildSpec) -> ChildSpec:
        return of(self.release, child) if child.name in self.old else child

    async def roll(self, name: str) -> None:
        """Have a part run the other release."""
        self.old ^= {name}
        await self.processes.stop(name)
        is_agent = name in self.agent_names()
        await self.processes.start(self.agent(name) if is_agent else self._service(name))


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return previous_release(tmp_path_factory.mktemp("previous"))


async def rolled(running: RunningSuite, order: Sequence[str]) -> None:
    """Roll parts of the suite in this order while a storm goes on, and hold every promise."""
    storm = Storm(running, count=50)
    storm.begin()
    await storm.under_load(2)
    for name in order:
        await running.suite.roll(name)
        await storm.moves_on(3)
        print(name, storm.counts())
    await storm.ended()
    await final_checks(storm, may_fail=LATE)


@pytest.mark.parametrize("first", ["services", "agents"])
async def test_a_suite_is_upgraded_part_by_part_while_work_goes_on(
    release: Path, first: str
) -> None:
    agents = [f"agent-{number}" for number in range(1, 5)]
    make = partial(Mixed, release, (*SERVICES, *agents))
    async with running_suite(make=make) as running:
        order = (*SERVICES, *agents) if first == "services" else (*agents, *reversed(SERVICES))
        await rolled(running, order)


async def test_a_suite_goes_back_to_the_previous_release_while_work_goes_on(release: Path) -> None:
    older = that_goes_back(release)
    async with running_suite(make=partial(Mixed, older, ())) as running:
        await rolled(running, BACKWARDS)
