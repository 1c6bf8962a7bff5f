"""An elastic group on one computer: a master, workers by its queue, a killed master, the end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.cli import Cli
from tests.support.suite import RunningSuite, running_suite, until
from tests.tidy.source_reasons import REPOSITORY

from tenure_runtime.embedded.detached import DetachedProcesses

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

QUICK = {"autoscaler": {"TENURE_DECIDE_PERIOD_S": "0.5"}}
APPLICATION = REPOSITORY / "examples" / "elastic" / "queue_app.py"
JOBS = 60


async def said(cli: Cli, *arguments: str) -> Any:
    return json.loads((await asyncio.to_thread(cli, *arguments, "-o", "json")).stdout)


async def rules(cli: Cli) -> list[str]:
    told = await said(cli, "machine", "decisions", "--group", "farm", "--limit", "200")
    return [each["rule"] for each in reversed(told)]


def orders(suite: RunningSuite) -> dict[str, dict[str, Any]]:
    """Return what the application of each machine that runs was told."""
    found = {}
    processes = DetachedProcesses(suite.folder / "machines")
    for path in (suite.folder / "machines").glob("farm-*/agent/application/order.json"):
        process = processes.read(path.parents[2].name)
        if process is not None and processes.runs(process):
            found[path.parents[2].name] = json.loads(path.read_text())
    return found


def masters(suite: RunningSuite) -> list[str]:
    return [
        name
        for name, order in orders(suite).items()
        if order.get("is_master") and order["kind"] == "KIND_START"
    ]


async def test_a_queue_is_worked_off_though_its_master_is_killed_and_the_group_ends() -> None:
    async with running_suite(agents=0, services=QUICK) as suite:
        cli, work = Cli(suite.folder), suite.folder / "work"
        await asyncio.to_thread(
            cli, "machine", "group", "create", "farm", "--pool", "farm", "--min", "1", "--max", "3",
            "--machine", "cpu=1,memory=256Mi", "--application",
            f"{sys.executable} {APPLICATION} {work}",
            "--drain-lower", "2s", "--drain-upper", "6s", "--interval", "3s",
            "--in-window", "3s", "--in-cooldown", "3s",
        )  # fmt: skip

        async def seen(holds: Callable[[list[str]], bool], what: str) -> None:
            async def look() -> bool:
                return holds(await rules(cli))

            await until(look, 60, what)

        async def master_serves() -> bool:
            return len(masters(suite)) == 1 and (work / "todo").is_dir()

        await until(master_serves, 30, "a master is told to serve")
        first = masters(suite)
        for number in range(JOBS):
            (work / "todo" / f"job-{number:03}").write_text("sleep 1")
        await seen(lambda told: "DRAINS_TOO_SLOWLY" in told, "workers are bought")

        async def three_work() -> bool:
            told = orders(suite).values()
            return sum("is_master" not in each for each in told) == 3

        await until(three_work, 30, "three workers are told to work")
        before = orders(suite).keys()
        await suite.runs_again("autoscaler", suite.kill("autoscaler"))
        assert orders(suite).keys() == before
        await seen(lambda told: told.count("MASTER_RUNS") == 2, "the next leader has taken over")
        process = suite.folder / "machines" / first[0] / "process.json"
        os.kill(json.loads(process.read_text())["pid"], signal.SIGKILL)

        async def another_serves() -> bool:
            found = masters(suite)
            assert len(found) <= 1
            return bool(found) and found != first

        await until(another_serves, 60, "another master serves")

        async def all_done() -> bool:
            return len(list((work / "done").iterdir())) == JOBS

        await until(all_done, 90, "all jobs are done")
        await seen(lambda told: "DRAINS_QUICKLY" in told, "workers are given up")

        async def some_sleep() -> bool:
            return "STATE_SUSPENDED" in {m["state"] for m in await said(cli, "machine", "list")}

        await until(some_sleep, 30, "workers sleep")
        await asyncio.to_thread(cli, "machine", "group", "set", "farm", "--min", "0", "--max", "0")

        async def all_gone() -> bool:
            found = await said(cli, "machine", "list")
            return {each["state"] for each in found} <= {"STATE_REMOVED", "STATE_LOST"}

        await until(all_gone, 60, "all machines are gone")
        await asyncio.to_thread(cli, "machine", "group", "delete", "farm")
        assert (await said(cli, "machine", "group", "list")) == []
        assert not list((work / "todo").iterdir())
        told = await rules(cli)
        assert [r for r in told if r in ("MASTER_LOST", "MASTER_RUNS")] == [
            "MASTER_RUNS",
            "MASTER_RUNS",
            "MASTER_LOST",
            "MASTER_RUNS",
        ]
