"""What a suite's folder remembers from one `up` to the next, and who may use it meanwhile."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tenure_cli.embedded.layout import SERVICES, SuiteState, free_ports, read_state, write_state
from tenure_cli.embedded.suite import Suite, SuiteOptions
from tenure_core.errors import WrongState
from tenure_runtime.embedded.log_stream import LogStream
from tenure_runtime.embedded.processes import lock_data_folder


@pytest.mark.parametrize(
    ("agents", "capacity", "wanted"),
    [
        (None, None, (5, "cpu=2,memory=1Gi")),
        (3, None, (3, "cpu=2,memory=1Gi")),
        (None, "cpu=8", (5, "cpu=8")),
        (None, "", (5, "")),
    ],
)
def test_what_is_not_said_at_up_is_as_it_was(
    tmp_path: Path, agents: int | None, capacity: str | None, wanted: tuple[int, str]
) -> None:
    ports = free_ports(SERVICES)
    write_state(tmp_path, SuiteState(ports, agents=5, capacity="cpu=2,memory=1Gi"))
    suite = Suite(SuiteOptions(tmp_path, agents=agents, agent_capacity=capacity), LogStream(None))
    suite._lock.release()
    assert (suite.state.agents, suite.state.capacity) == wanted
    assert suite.state.ports == ports


def test_ports_that_are_kept_are_none_that_connections_are_given() -> None:
    kept = [port for _ in range(20) for port in free_ports(SERVICES).values()]
    assert min(kept) >= 20_000
    assert max(kept) < 32_000
    assert len(set(kept)) > len(SERVICES), "two suites that start at once choose different ones"


def test_a_state_written_before_capacities_were_kept_is_read(tmp_path: Path) -> None:
    (tmp_path / "suite.json").write_text('{"ports": {"admission": 1}, "agents": 2}')
    assert read_state(tmp_path) == SuiteState({"admission": 1}, agents=2)


def test_a_second_detached_up_says_who_is_there_and_shows_nothing_of_its_log(
    tmp_path: Path,
) -> None:
    log = tmp_path / "up.log"
    log.write_text("Tenure is up: what the first one said\n")
    lock = lock_data_folder(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "tenure_cli", "up", "--detach", "--data", str(tmp_path)],
        capture_output=True,
        text=True,
    )
    lock.release()
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (4, "", 1)
    assert done.stderr.endswith("[DATA_FOLDER_IN_USE]\n")
    assert log.read_text() == "Tenure is up: what the first one said\n"


def test_a_detached_up_that_fails_ends_with_the_sentence_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "up.log").write_text("tenure: an older failure [OLD]\n")
    (tmp_path / "keys").write_text("a file where a folder should be")
    done = subprocess.run(
        [sys.executable, "-m", "tenure_cli", "up", "--detach", "--data", str(tmp_path)],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith("tenure: ")
    assert done.stderr.endswith(" [SYSTEM_ERROR]\n")


def test_a_state_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "suite.json").write_text('{"ports": ')

    with pytest.raises(WrongState) as refused:
        read_state(tmp_path)

    assert refused.value.reason == "SUITE_STATE_DAMAGED"
    assert str(tmp_path / "suite.json") in refused.value.message
