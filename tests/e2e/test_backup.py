"""A backup taken while a workload runs brings back a suite that keeps every promise."""

from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest
from tests.support.cli import Cli, short_folder, up

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

AGENTS = ("--agents", "2", "--capacity", "cpu=2,memory=1Gi")


def test_what_was_acknowledged_before_a_backup_is_there_after_a_restore() -> None:
    with short_folder("backup") as folder:
        first, second = Cli(folder / "first"), Cli(folder / "second")
        file = folder / "suite.tar"
        acknowledged: list[str] = []
        stop = threading.Event()

        def submit() -> None:
            while not stop.is_set():
                acknowledged.append(first.create("--cpu", "1", "--time", "1m", run="sleep 0.5"))

        with up(first, *AGENTS):
            ended = first.create("--time", "5s", run="echo told")
            first.wait(ended)
            runs = first.create(
                "--cpu", "1", "--time", "9m", run="test $TENURE_ATTEMPT = 2 || sleep 500"
            )
            booked = first.create("--start", "+1h", "--cpu", "1", "--time", "5s", run="exit 0")
            first("quota", "set", "owner/operator", "--cpu", "3")
            first.wait(runs, "active")
            submitter = threading.Thread(target=submit)
            submitter.start()
            try:
                while len(acknowledged) < 4:
                    stop.wait(0.05)
                before = list(acknowledged)
                first("backup", str(file))
                refused = first("backup", str(file), code=4)
            finally:
                stop.set()
                submitter.join()
            gone_on = first.json("lease", "get", runs)
            first("lease", "cancel", runs)
        second("restore", str(file))
        with up(second, "--new-ports"):
            leases = second.json("lease", "list", "--all", "--limit", "1000")
            names = {lease["name"].removeprefix("leases/") for lease in leases}
            kept = second.json("lease", "get", ended)
            still_booked = second.json("lease", "get", booked)
            second("lease", "cancel", booked)
            done = {name: second.wait(name) for name in names - {booked}}
            sums = (second("quota", "verify").stdout, second("slottable", "verify").stdout)
            doctor = second("doctor").stdout
            again = second("run", "--", "echo", "new").stdout
            limits = second("quota", "list").stdout
            # Exits with 1 for a chain that does not go on from what was restored.
            chains = second.json("audit", "verify")

    assert "BACKUP_EXISTS" in refused.stderr
    assert gone_on["state"] == "STATE_ACTIVE"
    assert names >= {ended, runs, booked, *before}
    assert kept["state"] == "STATE_DONE"
    assert still_booked["state"] == "STATE_SCHEDULED"
    failed = {name: lease for name, lease in done.items() if lease["state"] != "STATE_DONE"}
    assert failed == {}
    assert done[runs]["attempt"] == 2  # its agent is a new one: it began again
    assert "PROBLEM" not in doctor
    assert again == "new\n"
    assert "owner-operator" in limits
    assert [each["breaches"] for each in chains] == [[]] * 5
    assert "The ledger is the sum over the charged leases.\n" in sums[0]
    assert sums[1].startswith("Nothing is held twice: ")


def test_a_backup_is_for_its_owner_only_and_needs_no_running_suite(tmp_path: Path) -> None:
    with short_folder("quiet") as folder:
        cli = Cli(folder / "data")
        with up(cli, "--agents", "1", "--capacity", "cpu=1"):
            lease = cli.create("--time", "5s")
            cli.wait(lease)
        cli("backup", str(folder / "b.tar"))
        mode = stat.S_IMODE((folder / "b.tar").stat().st_mode)
        cli("reset", "--yes")
        cli("restore", str(folder / "b.tar"))
        with up(cli):
            kept = cli.json("lease", "get", lease)["state"]
    assert mode == 0o600
    assert kept == "STATE_DONE"
