"""A drain that is cut short: the next `up` takes work again."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest
from tests.support.cli import Cli, short_folder, up

pytestmark = pytest.mark.timeout(240)


def test_a_suite_killed_while_it_drained_takes_work_when_it_is_up_again() -> None:
    with short_folder("drain") as folder:
        cli = Cli(folder / "data")
        with up(cli, "--agents", "2", "--capacity", "cpu=1"):
            # A person's own cordon is not the drain's to undo.
            cli("agent", "cordon", "agent-2")
            cli.wait(cli.create("--time", "60s", run="sleep 50"), "active")
            down = cli.begin("down", "--drain")
            note = folder / "data" / "drain.json"
            limit = time.monotonic() + 60
            while _cordoned(cli) != {"agent-1", "agent-2"}:
                assert time.monotonic() < limit
            os.kill(json.loads((folder / "data" / "suite.json").read_text())["pid"], signal.SIGKILL)
            down.communicate(timeout=60)
        with up(cli):
            cordoned = _cordoned(cli)
            ran = cli("run", "-q", "--time", "5s", "--", "echo", "ran").stdout
        wish_is_gone = not (folder / "data" / "down.wish").exists()

    assert cordoned == {"agent-2"}
    assert ran == "ran\n"
    assert not note.exists()
    assert wish_is_gone


def _cordoned(cli: Cli) -> set[str]:
    agents = cli.json("agent", "list")
    return {each["name"].removeprefix("agents/") for each in agents if each.get("cordoned")}
