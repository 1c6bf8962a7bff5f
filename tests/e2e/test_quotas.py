"""Quotas from the shell, on a real suite: what is refused waits, says why, and goes on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.cli import Cli, short_folder, up

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def tenure() -> Iterator[Cli]:
    """One suite with room for four leases at once."""
    with (
        short_folder("quota") as folder,
        up(Cli(folder / "data"), "--agents", "1", "--capacity", "cpu=4,memory=1Gi") as cli,
    ):
        yield cli


def explained(tenure: Cli, lease: str, reason: str, within_s: float = 20.0) -> Any:
    """Return the obstacle with a reason, once the explanation has it."""
    end = time.monotonic() + within_s
    while True:
        obstacles = tenure.json("lease", "explain", lease).get("obstacles", [])
        for obstacle in obstacles:
            if obstacle["reason"] == reason:
                return obstacle
        assert time.monotonic() < end, f"no {reason} among {obstacles}"
        time.sleep(0.2)


def test_what_a_quota_refuses_waits_says_why_and_goes_on_when_there_is_room(tenure: Cli) -> None:
    tenure("quota", "set", "project/team", "--cpu", "2")
    runs = tenure.create("--project", "team", "--cpu", "2", "--time", "2m", run="sleep 120")
    tenure.wait(runs, "active")
    waits = tenure.create("--project", "team", "--cpu", "1", "--time", "30s", run="exit 0")

    obstacle = explained(tenure, waits, "QUOTA_EXCEEDED")
    lowered = tenure.json("quota", "set", "project/team", "--cpu", "1")
    still = tenure.json("lease", "get", runs)["state"]
    shown = tenure("quota", "usage", "project/team").stdout
    tenure("lease", "cancel", runs)
    done = tenure.wait(waits)
    verified = tenure("quota", "verify").stdout

    assert obstacle["subject"] == "quotas/project-team"
    assert "allows project team cpu=2 at a time; 2 is charged" in obstacle["message"]
    assert "asks for 1" in obstacle["message"]
    assert lowered["usage"]["held_back_leases"] == [f"leases/{waits}"]
    assert still == "STATE_ACTIVE"
    assert f"Waiting for room under a quota: {waits}" in shown
    assert "cpu is above its limit" in shown
    assert done["state"] == "STATE_DONE"
    assert "is the sum over the charged leases" in verified


def test_a_waiting_lease_is_told_what_would_help_and_starts_when_it_is_done(tenure: Cli) -> None:
    tenure("pool", "create", "spare")
    tenure("pool", "set", "default", "--ordering", "priority:10/drf:project", "--weight", "a=2")
    runs = tenure.create("--cpu", "3", "--time", "5m", "--not-preemptible", run="sleep 120")
    tenure.wait(runs, "active")
    promised = tenure.create("--cpu", "2", "--time", "1m", "--not-preemptible", run="exit 0")
    tenure.wait(promised, "scheduled")
    waits = tenure.create("--nodes", "3", "--cpu", "1", "--time", "4m", run="exit 0")
    explained(tenure, waits, "WAITING_FOR_CAPACITY")

    told = tenure.json("lease", "explain", waits)
    said = tenure("lease", "explain", waits).stdout
    tenure("lease", "update", waits, "--nodes", str(told["remedies"][0]["node_count"]))
    done = tenure.wait(waits)
    tenure("lease", "cancel", runs)
    tenure("lease", "cancel", promised)
    policy = {each["name"]: each for each in tenure.json("pool", "policy", "list")}

    assert [remedy["kind"] for remedy in told["remedies"]] == ["KIND_FEWER_NODES"]
    assert told["remedies"][0]["node_count"] == 1
    assert "With 1 of 3 slots it would start now." in said
    assert "The queue goes by classes of 10 priorities, then by dominant share of each" in said
    assert "capacity        no [WAITING_FOR_CAPACITY]" in said
    assert done["state"] == "STATE_DONE"
    assert policy["policies/pool-default"]["ordering"] == "priority:10/drf:project"
    assert policy["policies/pool-default"]["weights"] == {"a": 2}


def test_quotas_are_listed_and_deleted_and_limits_at_creation_are_said_at_once(
    tenure: Cli,
) -> None:
    tenure(
        *("quota", "set", "owner/nobody", "--name", "night", "--memory", "1Gi"),
        *("--from", "2030-01-01T20:00Z", "--until", "2030-01-02T06:00Z"),
    )
    tenure(
        *("quota", "set", "project/class", "--cpu", "2", "--cpu-hours", "9", "--per", "week"),
        *("--weekly", "fri-sat,22:30,8h", "--zone", "Europe/Berlin"),
    )
    tenure("quota", "set", "project/shut", "--waiting", "0")

    listed = tenure("quota", "list", "owner/nobody").stdout
    class_ = tenure("quota", "list", "project/class").stdout
    refused = tenure("lease", "create", "--project", "shut", "--", "true", code=5)
    tenure("quota", "delete", "night")
    left = [quota["name"] for quota in tenure.json("quota", "list")]
    missing = tenure("quota", "delete", "night", code=3)
    wrong = tenure("quota", "set", "ann", "--cpu", "1", code=2)

    assert listed.splitlines()[1].split() == [
        *("night", "owner/nobody", "memory=1Gi"),
        *("2030-01-01", "20:00", "2030-01-02", "06:00"),
    ]
    assert class_.splitlines()[1].split() == [
        *("project-class", "project/class", "cpu=2", "cpu=9h/week"),
        *("fri,22:30,8h", "sat,22:30,8h", "Europe/Berlin"),
    ]
    assert "Quota project-shut allows project shut 0 leases that wait" in refused.stderr
    assert "LEASE_LIMIT_REACHED" in refused.stderr
    assert "night" not in left
    assert "quotas/project-shut" in left
    assert "QUOTA_NOT_FOUND" in missing.stderr
    assert "owner/NAME or project/NAME" in wrong.stderr


def test_what_may_not_wait_is_refused_at_creation_while_its_pool_is_cordoned(tenure: Cli) -> None:
    ask = ("lease", "create", "--immediate", "--", "true")
    tenure("pool", "set", "default", "--cordoned")
    end = time.monotonic() + 20
    # Admission looks at the pools every two seconds; until then the leader refuses.
    while not (refused := tenure(*ask, code=None)).returncode:
        assert time.monotonic() < end, "never refused"
        time.sleep(0.3)
    waits = tenure.create("--time", "5s")
    held = explained(tenure, waits, "POOL_CORDONED")
    tenure("pool", "set", "default", "--open")
    done = tenure.wait(waits)

    assert refused.returncode == 4
    assert "[POOL_CORDONED]" in refused.stderr
    assert held["message"] == "The pool takes no new leases at present."
    assert done["state"] == "STATE_DONE"
