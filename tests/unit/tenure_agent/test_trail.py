"""A trail tells what ran, also when a guardian could not write its end."""

from __future__ import annotations

import json
from pathlib import Path

from tenure_agent.guardian.trail import Moment, Trail
from tenure_core.trails import runs_of


def test_lines_are_what_the_checker_reads(tmp_path: Path) -> None:
    path = tmp_path / "trail.jsonl"
    trail = Trail(str(path), "lease1", 2, 0, "n1")
    assert not trail.is_open()
    for event, at in (("start", 10), ("suspend", 20), ("resume", 30)):
        trail.append(event, 7, Moment(at, at))
    assert trail.is_open()
    assert not Trail(str(path), "lease1", 2, 1, "n1").is_open()
    trail.append("end", 7, Moment(40, 40), 3)
    assert not trail.is_open()

    (run,) = runs_of(json.loads(line) for line in path.read_text().splitlines())
    assert (run.lease, run.attempt, run.rank, run.node) == ("lease1", 2, 0, "n1")
    assert (run.start, run.end, run.exit_code) == (10, 40, 3)
    assert run.stretches == ((10, 20), (30, 40))


def test_what_wakes_only_to_end_is_not_moving(tmp_path: Path) -> None:
    path = tmp_path / "trail.jsonl"
    trail = Trail(str(path), "lease1", 1, 0, "n1")
    for event, at in (("start", 10), ("suspend", 20), ("wake", 30), ("end", 40)):
        trail.append(event, 7, Moment(at, at))

    (run,) = runs_of(json.loads(line) for line in path.read_text().splitlines())
    assert (run.start, run.end, run.stretches) == (10, 40, ((10, 20),))
