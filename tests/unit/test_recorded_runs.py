"""The alert rules on runs of real processes, which tests/e2e/test_alerts.py kept."""

from __future__ import annotations

import subprocess

import pytest
from tests.support.recording import RULES, Recording, promtool


def test_prometheus_takes_the_rules() -> None:
    done = subprocess.run(
        [promtool(), "check", "rules", str(RULES)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("run", "alerts"),
    [("without_trouble", set()), ("etcd_hangs", {"TenurePoolWithoutLeader"})],
)
def test_a_run_sets_off_what_is_wrong_and_nothing_else(run: str, alerts: set[str]) -> None:
    assert Recording.load(run).firing() == alerts


def test_a_trouble_that_passes_at_once_sets_off_nothing() -> None:
    """A leader that is away for a minute is what elections are for."""
    recording = Recording.load("etcd_hangs")
    with_leader = Recording.load("without_trouble").scrapes[-1]
    recording.scrapes = [recording.scrapes[0], *[with_leader] * 3]

    assert recording.firing() == set()
