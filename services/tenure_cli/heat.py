"""Free slots over days as a picture of letters: a line for each day, a cell for each hour.

Decides what a cell shows: the fewest slots that are free at any instant of its hour, so that what
looks free is free throughout.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, tzinfo
from typing import Final

from tenure_core.timebase import HOUR_MS, Interval, Millis

NONE: Final = "·"
SHADES: Final = "░▒▓█"

Windows = Sequence[tuple[Interval, int]]
"""Spans that follow one another, each with the slots free in it."""


def heat_map(windows: Windows, wanted: int, zone: tzinfo | None) -> list[str]:
    """Return the lines of the map; hours with fewer than `wanted` slots free count as full."""
    cells = fewest_by_hour(windows, zone)
    most = max((slots for _, slots in windows), default=0)
    days = sorted({day for day, _ in cells})
    head = "".join(f"{hour:02d}    " for hour in range(0, 24, 3)).rstrip()
    lines = [f"{'':15}{head}"]
    for day in days:
        shown = "".join(f"{shade(cells.get((day, hour)), wanted, most)} " for hour in range(24))
        lines.append(f"{day:%a %Y-%m-%d} {shown}".rstrip())
    return [*lines, legend(wanted, most)]


def fewest_by_hour(windows: Windows, zone: tzinfo | None) -> dict[tuple[date, int], int]:
    """Return the fewest slots free in each hour of each day that the windows touch.

    The hour that a clock shows twice is one cell; one that it never shows is none.
    """
    cells: dict[tuple[date, int], int] = {}
    for span, slots in windows:
        at: Millis = span.start
        while at < span.end:
            local = datetime.fromtimestamp(at / 1_000, UTC).astimezone(zone)
            key = (local.date(), local.hour)
            cells[key] = min(slots, cells.get(key, slots))
            into = (local.minute * 60 + local.second) * 1_000 + local.microsecond // 1_000
            at += HOUR_MS - into
    return cells


def shade(slots: int | None, wanted: int, most: int) -> str:
    """Return the letter of a cell: blank outside the view, darker where more is free."""
    if slots is None:
        return " "
    if slots < max(1, wanted):
        return NONE
    return SHADES[-1] if slots == most else SHADES[3 * slots // most]


def legend(wanted: int, most: int) -> str:
    """Return what the letters mean."""
    full = "fewer than are wanted" if wanted > 1 else "nothing"
    return f"{NONE} {full} free   ░▒▓ some   █ {most}, the most at any time; in all of the hour"
