"""A class every Tuesday, on a real suite: shown, booked, moved, given up in part, exported."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from tests.support.cli import Cli, short_folder, up

from tenure_runtime.clocks import SystemClock

pytestmark = pytest.mark.timeout(180)

TODAY = datetime.fromtimestamp(SystemClock().now_ms() / 1_000, UTC)
FIRST = (TODAY + timedelta(days=8)).replace(hour=9, minute=0, second=0, microsecond=0)
RULE = ("--rule", "FREQ=WEEKLY;COUNT=4", "--first", f"{FIRST:%Y-%m-%dT%H:%M}")
ZONE = ("--zone", "Africa/Lagos")  # An hour ahead of UTC, all year.


def day(weeks: int) -> str:
    return f"{FIRST + timedelta(weeks=weeks):%Y-%m-%d}"


def test_a_class_is_booked_changed_in_part_and_exported() -> None:
    with (
        short_folder("series") as folder,
        up(Cli(folder / "data"), "--agents", "1", "--capacity", "cpu=2,memory=1Gi") as tenure,
    ):
        shape = ("--cpu", "2", "--time", "2h")
        preview = tenure.json("series", "create", "class", *RULE, *ZONE, *shape, "--dry-run")
        assert [(each["free"], each["note"]) for each in preview] == [(True, "")] * 4
        assert tenure.json("series", "list") == []

        out = ("--except", day(1), "--yes")
        made = tenure.json("series", "create", "class", *RULE, *ZONE, *shape, *out)
        assert [lease["state"] for lease in made] == ["STATE_SCHEDULED"] * 3
        starts = [lease["terms"]["advance"]["start_time"] for lease in made]
        assert starts == [f"{day(weeks)}T08:00:00Z" for weeks in (0, 2, 3)]

        others = ("series", "create", "other", *RULE, *ZONE, *shape, "--yes")
        refused = tenure.json(*others, "--all-or-none", code=5)
        assert [lease["state"] for lease in refused].count("STATE_REJECTED") == 3
        assert not any(lease["state"] == "STATE_SCHEDULED" for lease in refused)
        again = tenure("series", "create", "class", *RULE, *ZONE, *shape, "--yes", code=4).stderr
        assert "LEASE_EXISTS" in again

        moved = tenure.json("series", "update", "class", "--from", day(2), "--shift", "+30m")
        assert [line["change"] for line in moved] == ["granted", "granted"]
        tenure("series", "cancel", "class", "--only", day(3))
        shown = tenure.json("series", "show", "class")
        assert [lease["terms"]["advance"]["start_time"] for lease in shown] == [
            f"{day(0)}T08:00:00Z",
            f"{day(2)}T08:30:00Z",
            f"{day(3)}T08:30:00Z",
        ]
        text = tenure("series", "export", "class").stdout
        assert text.count("BEGIN:VEVENT") == 3
        nobody = tenure("series", "cancel", "class", "--only", day(1), code=2).stderr
        assert "no occurrence" in nobody
        endless = tenure("series", "create", "x", "--rule", "FREQ=DAILY", *RULE[2:], code=4)
        assert "rule: say how often or until when it recurs: COUNT=… or UNTIL=…" in endless.stderr
