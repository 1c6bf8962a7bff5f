"""Two things booked at once by holding both first, on a real suite."""

from __future__ import annotations

import pytest
from tests.support.cli import Cli, short_folder, up

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


def test_several_are_held_and_taken_together_or_not_at_all() -> None:
    with (
        short_folder("holds") as folder,
        up(Cli(folder / "data"), "--agents", "1", "--capacity", "cpu=2,memory=1Gi") as tenure,
    ):
        tomorrow = ("--start", "+1d", "--time", "1h", "--cpu", "1")
        both = [tenure.create(*tomorrow, "--hold", "5m") for _ in range(2)]
        for lease in both:
            assert tenure.wait(lease, "scheduled")["state"] == "STATE_SCHEDULED"
        more = tenure.create(*tomorrow, "--hold", "5m")
        assert tenure.wait(more)["state"] == "STATE_REJECTED"
        refused = tenure("lease", "confirm", *both, more, code=None)
        assert refused.returncode != 0
        assert "LEASE_ENDED" in refused.stderr
        assert "unless it is confirmed" in tenure("lease", "explain", both[0]).stdout

        taken = tenure.json("lease", "confirm", *both)

        assert [lease["state"] for lease in taken] == ["STATE_SCHEDULED"] * 2
        assert not any("hold_expire_time" in lease for lease in taken)

        brief = tenure.create("--start", "+2d", "--time", "1h", "--cpu", "2", "--hold", "2s")
        over = tenure.wait(brief)
        assert (over["state"], over["reason"]) == ("STATE_CANCELLED", "HOLD_EXPIRED")
        free = tenure.create("--start", "+2d", "--time", "1h", "--cpu", "2")
        assert tenure.wait(free, "scheduled")["state"] == "STATE_SCHEDULED"

        view = ("--amounts", "cpu=2", "--from", "+1d", "--for", "3d", "--heat")
        shown = tenure("availability", *view).stdout
        assert "·" in shown.splitlines()[1]
        assert "█ 1, the most at any time" in shown
