"""The application beside an agent: what it says goes up once, what it is told counts by epoch."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.suite import until

from tenure.registry.v1 import application_pb2 as pb
from tenure_agent.application import Application
from tenure_agent.ledger import Ledger

WAITS = f"{sys.executable} -c 'import time; time.sleep(600)'"


@asynccontextmanager
async def running(folder: Path, command: str = WAITS) -> AsyncIterator[Application]:
    ledger = Ledger.open(folder)
    application = Application(command, folder / "application", ledger, dict(os.environ))
    task = asyncio.create_task(application.run())

    async def begun() -> bool:
        return (folder / "application" / "output.log").exists()

    await until(begun, 10, "it is started")
    try:
        yield application
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        ledger.close()


def write(folder: Path, text: str) -> None:
    new = folder / "application" / "new"
    new.write_text(text)
    new.replace(folder / "application" / "report.json")


def order(epoch: int, master_epoch: int) -> pb.ApplicationOrder:
    return pb.ApplicationOrder(
        agent="agents/a", scope="group/g", epoch=epoch, master_epoch=master_epoch,
        kind=pb.ApplicationOrder.KIND_START,
    )  # fmt: skip


async def test_each_word_of_the_application_is_sent_once(tmp_path: Path) -> None:
    async with running(tmp_path) as application:
        assert application.report() is None
        write(tmp_path, '{"state": "STATE_READY", "in_flight": 0, "newer_field": 1}')
        said = application.report()
        assert said == pb.ApplicationReport(state=pb.ApplicationReport.STATE_READY, in_flight=0)
        assert application.report() is None
        write(tmp_path, '{"state": "STATE_READY", "in_flight": 0}')
        assert application.report() == said


async def test_p07_what_does_not_parse_is_not_sent_and_what_comes_after_is(tmp_path: Path) -> None:
    async with running(tmp_path) as application:
        for text in ("{", "[1]", '{"state": "NO_SUCH"}', '{"threads": "many"}', "x" * 20_000):
            write(tmp_path, text)
            assert application.report() is None, text
        write(tmp_path, '{"state": "STATE_RUNNING"}')
        assert application.report() == pb.ApplicationReport(
            state=pb.ApplicationReport.STATE_RUNNING
        )


async def test_p23_an_order_older_than_one_seen_is_not_handed_on(tmp_path: Path) -> None:
    told = tmp_path / "application" / "order.json"
    async with running(tmp_path) as application:
        await application.take(order(7, 2))
        await application.take(order(6, 3))
        assert json.loads(told.read_text())["master_epoch"] == "2"
    async with running(tmp_path) as application:

        async def cleared() -> bool:
            return not told.exists()

        await until(cleared, 10, "what an earlier process was told is gone")
        await application.take(order(6, 3))
        assert not told.exists()
        await application.take(order(8, 4))
        assert json.loads(told.read_text())["master_epoch"] == "4"


async def test_an_application_that_has_ended_is_in_error(tmp_path: Path) -> None:
    async with running(tmp_path, "true") as application:

        async def failed() -> bool:
            said = application.report()
            return said is not None and said.state == pb.ApplicationReport.STATE_ERROR

        await until(failed, 10, "it is reported as in error")


async def test_the_application_ends_with_its_agent(tmp_path: Path) -> None:
    async with running(tmp_path, "sh -c 'echo $$ > pid; exec sleep 600'"):
        path = tmp_path / "application" / "pid"

        async def started() -> bool:
            return path.exists() and bool(path.read_text())

        await until(started, 10, "it runs")
        pid = int(path.read_text())
        assert Path(f"/proc/{pid}").exists()
    assert not Path(f"/proc/{pid}").exists()
