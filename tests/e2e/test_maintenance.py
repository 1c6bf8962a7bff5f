"""Maintenance from the shell: who has to move is shown first, and moves; the table adds up."""

from __future__ import annotations

import time

import pytest
from tests.support.cli import Cli, short_folder, up

pytestmark = pytest.mark.timeout(180)


def nodes_of(tenure: Cli, lease: str) -> set[str]:
    placements = tenure.json("lease", "get", lease)["placements"]
    return {placement["node"].removeprefix("nodes/") for placement in placements}


def test_a_booking_moves_out_of_the_way_of_maintenance() -> None:
    with (
        short_folder("upkeep") as folder,
        up(Cli(folder / "data"), "--agents", "2", "--capacity", "cpu=2,memory=1Gi") as tenure,
    ):
        booked = tenure.create("--start", "+1h", "-n", "2", "--cpu", "1", "--time", "30m")
        tenure.wait(booked, "scheduled")
        [before] = nodes_of(tenure, booked)
        window = ("maintenance", "create", before, "--start", "+50m", "--time", "1h")

        preview = tenure(*window, "--dry-run").stdout
        assert preview.count(booked) == 2
        assert "2 reservations would have to move; nothing was changed." in preview
        assert tenure.json("maintenance", "list") == []
        assert "say --yes" in tenure(*window, code=2).stderr

        tenure(*window, "--message", "new disks", "--yes")
        [listed] = tenure.json("maintenance", "list")
        assert (listed["nodes"], listed["message"]) == ([f"nodes/{before}"], "new disks")
        end = time.monotonic() + 20
        while before in nodes_of(tenure, booked):
            assert time.monotonic() < end, "the booking stayed"
            time.sleep(0.2)
        assert tenure.json("lease", "get", booked)["state"] == "STATE_SCHEDULED"

        verified = tenure("slottable", "verify").stdout
        assert "3 reservations on 2 nodes add up to what there is" in verified
        tenure("maintenance", "end", listed["name"])
        assert tenure.json("maintenance", "list") == []
        assert int(tenure.json("slottable", "status")["reservation_count"]) == 2
