"""The examples do what they say."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tenure.client import LeaseState

EXAMPLES = Path(__file__).parents[3] / "examples" / "python"
SHOWN = {
    "run_and_wait.py": (
        ["--", sys.executable, "-c", "print('ran')"],
        "ran\n",
    ),
    "hold_two_nodes.py": ([], "held: agent-1 and agent-2\nthen: cancelled\n"),
    "squares.py": ([], "[0, 1, 4, 9, 16]\n"),
    "class_on_tuesdays.py": ([], "Tuesday 09:00 scheduled booked\n" * 4),
    "watch_changes.py": ([], "its last state: done\n"),
}


def environment(suite):
    return {**os.environ, "TENURE_DATA": str(suite.folder)}


def test_every_example_is_here():
    assert {file.name for file in EXAMPLES.glob("*.py")} == {
        *SHOWN,
        "story.py",
        "machine_provider.py",
    }


def test_the_conformance_story_is_told_in_python(suite):
    story = (EXAMPLES.parent / "story.tsv").read_text(encoding="utf-8").partition("\n")[2]
    done = subprocess.run(
        [sys.executable, EXAMPLES / "story.py"],
        capture_output=True,
        text=True,
        timeout=100,
        env={
            **os.environ,
            **suite.environment(),
            "STORY_RUN": "pytest",
        },
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, story), done.stderr


@pytest.mark.parametrize("name", SHOWN)
def test_an_example_prints_what_it_should(suite, name):
    arguments, shown = SHOWN[name]
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, *arguments],
        capture_output=True,
        text=True,
        timeout=90,
        env=environment(suite),
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, shown), done.stderr


def test_ctrl_c_gives_back_what_was_held(suite, plane):
    script = textwrap.dedent(
        """
        import time
        from tenure.client import connect
        with connect() as plane, plane.hold(cpu=1, labels={"ctrl": "c"}, within_s=30) as lease:
            print(lease.id, flush=True)
            time.sleep(60)
        """
    )
    with subprocess.Popen(
        [sys.executable, "-c", script],
        env=environment(suite),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        lease_id = process.stdout.readline().strip()
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=30)
    assert "KeyboardInterrupt" in told
    assert plane.lease(lease_id).wait(within_s=30).state is LeaseState.CANCELLED


def test_ctrl_c_gives_back_what_was_waited_for(suite, plane):
    script = textwrap.dedent(
        """
        from datetime import timedelta
        from tenure.client import connect
        with connect() as plane:
            print("ready", flush=True)
            with plane.hold(cpu=1, start=timedelta(hours=9), labels={"ctrl": "wait"}):
                pass
        """
    )
    with subprocess.Popen(
        [sys.executable, "-c", script],
        env=environment(suite),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        for change in plane.watch(relist=True):
            if change.lease.labels.get("ctrl") == "wait":
                if change.lease.state is LeaseState.SCHEDULED:
                    process.send_signal(signal.SIGINT)
                if change.lease.ended:
                    assert change.lease.state is LeaseState.CANCELLED
                    break
        _, told = process.communicate(timeout=30)
    assert "KeyboardInterrupt" in told
