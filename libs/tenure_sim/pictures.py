"""Draws the parts that all pictures share: the sheet, axes, ticks, legends. SVG without scripts.

Coordinates are rounded to a tenth of a pixel, so the same outcome gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import log10
from typing import Final

from tenure_core.timebase import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, Millis

WIDTH: Final = 1100
LEFT: Final = 78
RIGHT: Final = 24
INK: Final = "#1f2933"
FAINT: Final = "#e4e7eb"
SOFT: Final = "#616e7c"
SERIES: Final = ("#2f6db5", "#d1495b", "#2e8b57", "#e08e0b", "#7b4fa3", "#008b8b", "#8c564b")
"""Colours of policies, in the order in which they are compared."""

KIND_COLOURS: Final = {
    "BEST_EFFORT": ("#2f6db5", "#6c9bd2", "#a3c1e6"),
    "ADVANCE": ("#d1495b", "#e07a88", "#eba9b2"),
    "DEADLINE": ("#e08e0b", "#efb04a", "#f5cd8b"),
    "IMMEDIATE": ("#2e8b57", "#66b087", "#a0d0b5"),
}
"""Tints of each kind of terms; neighbours take different ones."""

_STEPS: Final = (
    *(SECOND_MS * n for n in (1, 2, 5, 10, 15, 30)),
    *(MINUTE_MS * n for n in (1, 2, 5, 10, 15, 30)),
    *(HOUR_MS * n for n in (1, 2, 3, 6, 12)),
    *(DAY_MS * n for n in (1, 2, 5, 7, 10, 14, 30, 60, 90, 180, 365, 730, 3_650)),
)


@dataclass(frozen=True, slots=True)
class Panel:
    """A rectangle with a horizontal axis from `low` to `high`; times are milliseconds."""

    x: float
    y: float
    width: float
    height: float
    low: float
    high: float
    logarithmic: bool = False

    def at(self, value: float) -> float:
        """Return the horizontal place of a value, kept inside the panel."""
        if self.logarithmic:
            span = log10(self.high / self.low)
            share = log10(max(value, self.low) / self.low) / span if span else 0.0
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.x + min(1.0, max(0.0, share)) * self.width

    def up(self, share: float) -> float:
        """Return the vertical place of a share of the height, 0 at the foot."""
        return self.y + (1 - share) * self.height


def sheet(height: float, title: str, parts: Sequence[str], note: str = "") -> str:
    """Return a whole picture."""
    words = f'<tspan font-weight="600">{escape(title)}</tspan>'
    if note:
        words += f'<tspan dx="10" fill="{SOFT}">{escape(note)}</tspan>'
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" '
        f'width="{WIDTH}" height="{height:g}" font-family="Helvetica, Arial, sans-serif" '
        f'font-size="11" fill="{INK}">'
    )
    ground = f'<rect width="{WIDTH}" height="{height:g}" fill="#ffffff"/>'
    heading = f'<text x="12" y="20" font-size="13">{words}</text>'
    return "\n".join((opening, ground, heading, *parts, "</svg>\n"))


def text(x: float, y: float, said: str, anchor: str = "start", colour: str = SOFT) -> str:
    """Return a line of text."""
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}"'
    return f"<text {place}>{escape(said)}</text>"


def line(x1: float, y1: float, x2: float, y2: float, colour: str = FAINT) -> str:
    """Return a thin line."""
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="{colour}" fill="none"/>'


def legend(x: float, y: float, entries: Sequence[tuple[str, str]]) -> list[str]:
    """Return names with their colours, side by side."""
    parts = []
    for name, colour in entries:
        parts.append(f'<rect x="{x:.1f}" y="{y - 9:.1f}" width="11" height="11" fill="{colour}"/>')
        parts.append(text(x + 16, y, name, colour=INK))
        x += 34 + 6.4 * len(name)
    return parts


def time_axis(panel: Panel, begin: Millis) -> list[str]:
    """Return the ticks of a panel whose axis is time, counted from `begin`."""
    length = panel.high - panel.low
    step = next((each for each in _STEPS if length / each <= 12), _STEPS[-1])
    parts = []
    at = 0
    while begin + at <= panel.high:
        x = panel.at(begin + at)
        parts.append(line(x, panel.y, x, panel.y + panel.height))
        parts.append(text(x, panel.y + panel.height + 15, _moment(at, step), "middle"))
        at += step
    return parts


def log_axis(panel: Panel, ticks: Sequence[tuple[float, str]]) -> list[str]:
    """Return labelled ticks at given values, those outside the panel left out."""
    parts = []
    for value, name in ticks:
        if panel.low <= value <= panel.high:
            x = panel.at(value)
            parts.append(line(x, panel.y, x, panel.y + panel.height))
            parts.append(text(x, panel.y + panel.height + 15, name, "middle"))
    return parts


def height_axis(panel: Panel, most: float, *, percent: bool = False) -> list[str]:
    """Return the horizontal grid of a panel whose height stands for 0 to `most`."""
    parts = []
    for quarter in range(5):
        y = panel.up(quarter / 4)
        value = most * quarter / 4
        name = f"{value:.0%}" if percent else f"{value:,.10g}"
        parts.append(line(panel.x, y, panel.x + panel.width, y))
        parts.append(text(panel.x - 8, y + 4, name, "end"))
    return parts


def round_up(value: float) -> int:
    """Return the next number at or above `value` that four divides well: 4, 8, 12, 16, 20, 40."""
    scale = 1
    while True:
        for step in (4, 8, 12, 16, 20):
            if value <= step * scale:
                return step * scale
        scale *= 10


def _moment(at: Millis, step: Millis) -> str:
    for unit, length in (("d", DAY_MS), ("h", HOUR_MS), ("min", MINUTE_MS)):
        if step % length == 0:
            return f"{at // length:,} {unit}"
    return f"{at // SECOND_MS:,} s"
