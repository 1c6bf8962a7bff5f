"""What people do with Tenure, from their shell, on a real suite."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.support.cli import Cli, short_folder, up

pytestmark = pytest.mark.timeout(180)

ALL = ("-n", "3", "--cpu", "2")
"""The whole pool: three agents of two processors."""


@pytest.fixture(scope="module")
def tenure() -> Iterator[Cli]:
    """One suite for all stories; each leaves the pool as it found it."""
    with (
        short_folder("stories") as folder,
        up(Cli(folder / "data"), "--agents", "3", "--capacity", "cpu=2,memory=2Gi") as cli,
    ):
        yield cli


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """A folder where the work of a story leaves what it has to say."""
    return tmp_path


def instant(lease: Any, field: str) -> float:
    return datetime.fromisoformat(lease[field]).timestamp()


def eventually(path: Path, within_s: float = 20.0) -> str:
    """Return what a file says once it says something."""
    end = time.monotonic() + within_s
    while not (path.exists() and path.read_text().strip()):
        assert time.monotonic() < end, f"{path.name} was not written"
        time.sleep(0.05)
    return path.read_text().strip()


def runs(pid: int) -> bool:
    return state_of(pid) not in ("", "Z")


def state_of(pid: int) -> str:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return stat.rpartition(")")[2].split()[0]


def stand_still(pids: list[int], within_s: float = 20.0) -> None:
    """Wait until all of these processes are stopped."""
    end = time.monotonic() + within_s
    while [state_of(pid) for pid in pids] != ["T"] * len(pids):
        assert time.monotonic() < end, [state_of(pid) for pid in pids]
        time.sleep(0.05)


def test_all_four_kinds_of_terms_are_kept(tenure: Cli) -> None:
    booked = tenure.create("--start", "+5s", "--time", "5s")
    by = tenure.create("--deadline", "+60s", "--time", "5s")
    at_once = tenure.create("--immediate", "--time", "5s")
    some_time = tenure.create("--time", "5s")

    done = [tenure.wait(lease) for lease in (booked, by, at_once, some_time)]

    assert [(lease["state"], lease["reason"]) for lease in done] == [
        ("STATE_DONE", "COMPLETED")
    ] * 4
    asked = datetime.fromisoformat(done[0]["terms"]["advance"]["start_time"]).timestamp()
    assert 0 <= instant(done[0], "start_time") - asked < 2


def test_an_immediate_lease_without_room_is_refused_and_says_why(tenure: Cli) -> None:
    whole = tenure.create(*ALL, "--time", "60s", "--not-preemptible", run="sleep 60")
    tenure.wait(whole, "active")
    refused = tenure.wait(tenure.create("--immediate", "--time", "5s"))
    tenure("lease", "cancel", whole)

    assert (refused["state"], refused["reason"]) == ("STATE_REJECTED", "NOT_AVAILABLE_NOW")
    assert refused["message"]


def test_a_gang_runs_on_several_nodes_at_once(tenure: Cli) -> None:
    line = "echo $TENURE_RANK of $TENURE_NODE_COUNT on $TENURE_NODE"
    ran = tenure("run", "-q", "-n", "3", "--spread", "--time", "10s", "--", "/bin/sh", "-c", line)

    words = sorted(said.split() for said in ran.stdout.splitlines())
    assert [word[:3] for word in words] == [[str(rank), "of", "3"] for rank in range(3)]
    assert len({word[4] for word in words}) == 3


def test_run_shows_output_while_it_comes_and_returns_the_exit_code(tenure: Cli) -> None:
    line = "echo first; sleep 4; echo last; exit 7"
    began = time.monotonic()
    process = tenure.begin("run", "-q", "--time", "20s", "--", "/bin/sh", "-c", line)
    assert process.stdout is not None
    assert process.stdout.readline() == "first\n"
    assert process.poll() is None, "the first line came only with the end"
    rest, _ = process.communicate(timeout=40)

    assert (rest, process.returncode) == ("last\n", 7)
    assert time.monotonic() - began >= 4


def test_a_chain_of_dependencies_runs_in_order(tenure: Cli) -> None:
    first = tenure.create("--time", "5s", run="sleep 1")
    second = tenure.create("--time", "5s", "--after", first, run="exit 1")
    third = tenure.create("--time", "5s", "--after-any", second)
    never = tenure.create("--time", "5s", "--after", second)

    one, two, three, four = (tenure.wait(lease) for lease in (first, second, third, never))

    assert [lease["state"] for lease in (one, two, three, four)] == [
        "STATE_DONE",
        "STATE_FAILED",
        "STATE_DONE",
        "STATE_REJECTED",
    ]
    assert four["reason"] == "DEPENDENCY_FAILED"
    assert instant(one, "end_time") <= instant(two, "start_time")
    assert instant(two, "end_time") <= instant(three, "start_time")


def test_work_that_fails_is_restarted_as_often_as_was_asked(tenure: Cli, notes: Path) -> None:
    line = f"echo $TENURE_ATTEMPT >> {notes}/log; [ $(wc -l < {notes}/log) -ge 2 ]"
    lucky = tenure.create("--time", "5s", "--on-failure", "restart", "--attempts", "3", run=line)
    hopeless = tenure.create(
        "--time", "5s", "--on-failure", "restart", "--attempts", "2", run="exit 3"
    )

    done, failed = tenure.wait(lucky), tenure.wait(hopeless)

    assert (done["state"], (notes / "log").read_text().split()) == ("STATE_DONE", ["1", "2"])
    assert (failed["state"], failed["attempt"], failed["exit_code"]) == ("STATE_FAILED", 2, 3)


def test_a_running_lease_that_is_cancelled_ends_with_all_its_processes(
    tenure: Cli, notes: Path
) -> None:
    line = f"sleep 300 & echo $! $$ > {notes}/pids; wait"
    lease = tenure.create("--time", "10m", run=line)
    pids = [int(word) for word in eventually(notes / "pids").split()]
    tenure("lease", "cancel", lease)
    ended = tenure.wait(lease)

    assert ended["state"] == "STATE_CANCELLED"
    assert [pid for pid in pids if runs(pid)] == []


def test_work_that_ignores_sigterm_is_killed_when_its_time_is_over(
    tenure: Cli, notes: Path
) -> None:
    line = f"trap '' TERM; echo $$ > {notes}/pid; while :; do sleep 1; done"
    lease = tenure.create("--time", "4s", "--grace", "1s", run=line)
    pid = int(eventually(notes / "pid"))
    ended = tenure.wait(lease)

    assert (ended["state"], ended["reason"]) == ("STATE_DONE", "TIME_OVER")
    assert not runs(pid)
    assert instant(ended, "end_time") - instant(ended, "start_time") < 8


def test_a_booking_suspends_what_runs_and_it_resumes_afterwards(tenure: Cli, notes: Path) -> None:
    line = f"echo $$ > {notes}/$TENURE_RANK; for i in $(seq 50); do sleep 0.2; done"
    works = tenure.create(*ALL, "--time", "60s", run=line)
    pids = [int(eventually(notes / str(rank))) for rank in range(3)]
    booked = tenure.create(*ALL, "--start", "+4s", "--time", "10s", run="sleep 6")
    stand_still(pids)
    suspended = tenure.json("lease", "get", works)
    first, second = tenure.wait(booked), tenure.wait(works)

    assert suspended["state"] in ("STATE_SUSPENDING", "STATE_SUSPENDED")
    assert (first["state"], second["state"]) == ("STATE_DONE", "STATE_DONE")
    assert (second["attempt"], second["preemption_count"]) == (1, 1)
    assert [int((notes / str(rank)).read_text()) for rank in range(3)] == pids


def test_more_time_is_granted_while_there_is_room_and_otherwise_countered(tenure: Cli) -> None:
    lease = tenure.create(*ALL, "--time", "60s", "--not-preemptible", run="sleep 300")
    tenure.wait(lease, "active")
    granted = tenure.json("lease", "update", lease, "--time", "90s")
    behind = tenure.create(*ALL, "--start", "+120s", "--time", "60s", run="true")
    tenure.wait(behind, "scheduled")
    refused = tenure("lease", "update", lease, "--time", "10m", code=None)
    present = tenure.json("lease", "get", lease)
    tenure("lease", "cancel", behind)
    tenure("lease", "cancel", lease)
    tenure.wait(lease)

    assert (granted["duration"], granted["pending_change"]["verdict"]) == ("90s", "VERDICT_GRANTED")
    assert refused.returncode != 0
    assert "CAPACITY_EXCEEDED" in refused.stderr
    assert present["duration"] == "90s"
    [offer] = present["pending_change"]["counter_offers"]
    assert 90 <= float(offer["duration"].removesuffix("s")) <= 125


def test_a_cordoned_agent_takes_nothing_new_until_it_is_uncordoned(tenure: Cli) -> None:
    tenure("agent", "cordon", "agent-2")
    spread = tenure.create("-n", "3", "--spread", "--time", "5s")
    two = tenure.wait(tenure.create("-n", "2", "--spread", "--time", "5s"))
    waits = tenure.json("lease", "get", spread)
    tenure("agent", "uncordon", "agent-2")
    three = tenure.wait(spread)

    assert two["state"] == "STATE_DONE"
    assert {p["node"] for p in two["placements"]} == {"nodes/agent-1", "nodes/agent-3"}
    assert waits["state"] in ("STATE_PENDING", "STATE_QUEUED")
    assert three["state"] == "STATE_DONE"
    assert "nodes/agent-2" in {p["node"] for p in three["placements"]}


def test_what_is_wrong_with_a_request_is_said_in_one_sentence(tenure: Cli) -> None:
    big = tenure("lease", "create", "-n", "99", "--cpu", "2", "--", "true", code=None)
    past = tenure("lease", "create", "--start", "2020-01-01T00:00:00Z", "--", "true", code=None)

    assert big.returncode != 0
    assert past.returncode != 0
    assert "could carry at most 3 such slots at once" in big.stderr
    assert len(big.stderr.splitlines()) == len(past.stderr.splitlines()) == 1
    assert "start_time" in past.stderr
