"""Draws how waits and slowdowns are distributed: the share of leases at or below each value.

One line a policy; of one policy alone, one line a kind of terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tenure_core.timebase import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from tenure_sim.compare import Run
from tenure_sim.pictures import (
    KIND_COLOURS,
    SERIES,
    SOFT,
    Panel,
    height_axis,
    legend,
    log_axis,
    sheet,
    text,
)
from tenure_sim.report_figures import Measures

_POINTS: Final = 400
_WAITS: Final = (
    (SECOND_MS, "≤ 1 s"),
    (10 * SECOND_MS, "10 s"),
    (MINUTE_MS, "1 min"),
    (10 * MINUTE_MS, "10 min"),
    (HOUR_MS, "1 h"),
    (6 * HOUR_MS, "6 h"),
    (DAY_MS, "1 d"),
    (7 * DAY_MS, "7 d"),
    (30 * DAY_MS, "30 d"),
    (365 * DAY_MS, "1 y"),
)
_RATIOS: Final = tuple((float(10**power), f"{10**power:,}") for power in range(8))
Line = tuple[str, str, list[float], list[float]]
"""A name, a colour, the waits and the bounded slowdowns, both ascending."""


def spread_svg(runs: Sequence[Run], title: str) -> str:
    """Return both panels, with a logarithmic axis each."""
    lines = _lines(runs)
    longest = max((each[2][-1] for each in lines if each[2]), default=0.0)
    worst = max((each[3][-1] for each in lines if each[3]), default=1.0)
    waits = Panel(78, 74, 440, 260, SECOND_MS, max(longest, 10.0 * SECOND_MS), logarithmic=True)
    ratios = Panel(612, 74, 464, 260, 1.0, max(worst, 10.0), logarithmic=True)
    parts = legend(78, 44, [(name, colour) for name, colour, _, _ in lines])
    for panel, ticks, said in (
        (waits, _WAITS, "wait: share of the leases that waited at most so long"),
        (ratios, _RATIOS, "bounded slowdown: share of the leases at or below"),
    ):
        parts += [*height_axis(panel, 1.0, percent=True), *log_axis(panel, ticks)]
        parts.append(text(panel.x, panel.y - 6, said, colour=SOFT))
    for _, colour, ascending_waits, ascending_ratios in lines:
        parts.append(_share(waits, ascending_waits, colour))
        parts.append(_share(ratios, ascending_ratios, colour))
    return sheet(366, title, parts)


def _lines(runs: Sequence[Run]) -> list[Line]:
    if len(runs) > 1:
        return [
            _line(run, run.policy, SERIES[index % len(SERIES)], None)
            for index, run in enumerate(runs)
        ]
    kinds = sorted(set(runs[0].result.kinds))
    return [
        _line(runs[0], kind.lower().replace("_", " "), KIND_COLOURS[kind][0], kind)
        for kind in kinds
    ]


def _line(run: Run, name: str, colour: str, kind: str | None) -> Line:
    measures = Measures.of(run.result)
    chosen = [i for i, each in enumerate(run.result.kinds) if kind is None or each == kind]
    waits = sorted(float(wait) for i in chosen if (wait := measures.waits[i]) is not None)
    ratios = sorted(ratio for i in chosen if (ratio := measures.bounded[i]) is not None)
    return name, colour, waits, ratios


def _share(panel: Panel, ascending: Sequence[float], colour: str) -> str:
    """Return the staircase of an empirical distribution, thinned to some hundred steps."""
    count = len(ascending)
    if not count:
        return ""
    ranks = sorted({-(-count * step // _POINTS) for step in range(1, _POINTS + 1)})
    path = f"M{panel.x:.1f} {panel.up(0):.1f}"
    for rank in ranks:
        path += f"H{panel.at(ascending[rank - 1]):.1f}V{panel.up(rank / count):.1f}"
    path += f"H{panel.x + panel.width:.1f}"
    return f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.8"/>'
