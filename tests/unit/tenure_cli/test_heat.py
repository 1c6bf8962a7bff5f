"""Free slots as a map of days and hours."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from tenure_cli.heat import fewest_by_hour, heat_map
from tenure_core.timebase import HOUR_MS, MINUTE_MS, Interval


def at(hour: int, minute: int = 0, day: int = 1) -> int:
    return round(datetime(2026, 12, day, hour, minute, tzinfo=UTC).timestamp() * 1_000)


def test_a_cell_shows_what_is_free_throughout_its_hour() -> None:
    windows = [
        (Interval(at(20), at(21, 30)), 8),
        (Interval(at(21, 30), at(21, 31)), 0),
        (Interval(at(21, 31), at(23)), 4),
        (Interval(at(23), at(2, day=2)), 2),
    ]

    assert heat_map(windows, 1, UTC) == [
        "               00    03    06    09    12    15    18    21",
        "Tue 2026-12-01 " + " " * 40 + "█ · ▒ ░",
        "Wed 2026-12-02 ░ ░",
        "· nothing free   ░▒▓ some   █ 8, the most at any time; in all of the hour",
    ]


def test_hours_with_less_than_is_wanted_count_as_full() -> None:
    windows = [(Interval(at(0), at(1)), 4), (Interval(at(1), at(2)), 3)]
    lines = heat_map(windows, 4, UTC)
    assert lines[1] == "Tue 2026-12-01 █ ·"
    assert lines[2].startswith("· fewer than are wanted free")


def test_an_hour_that_clocks_show_twice_is_one_cell() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    begin = round(datetime(2026, 10, 25, 0, 0, tzinfo=UTC).timestamp() * 1_000)
    windows = [
        (Interval(begin, begin + HOUR_MS + 30 * MINUTE_MS), 5),
        (Interval(begin + HOUR_MS + 30 * MINUTE_MS, begin + 3 * HOUR_MS), 1),
    ]
    cells = fewest_by_hour(windows, berlin)
    assert {hour: slots for (_, hour), slots in cells.items()} == {2: 1, 3: 1}
