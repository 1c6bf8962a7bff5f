"""Draws how full the site is and how many leases wait, over time; one line a policy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from tenure_core.timebase import Millis
from tenure_sim.compare import Run
from tenure_sim.pictures import (
    LEFT,
    RIGHT,
    SERIES,
    SOFT,
    WIDTH,
    Panel,
    height_axis,
    legend,
    round_up,
    sheet,
    text,
    time_axis,
)
from tenure_sim.report_figures import loads
from tenure_sim.result import SimulationResult
from tenure_sim.site import Site

_COLUMNS: Final = 480
_QUEUES: Final = frozenset({"BEST_EFFORT", "IMMEDIATE"})
Change = tuple[Millis, int]


def load_svg(runs: Sequence[Run], site: Site, title: str) -> str:
    """Return both panels; each column is the mean over its span of time."""
    weights, capacity = loads(runs[0].result.workload, site)
    begin = min(
        (run.result.workload.arrivals[0] for run in runs if len(run.result.workload)), default=0
    )
    end = max((last for run in runs if (last := _last(run.result)) is not None), default=begin + 1)
    end = max(end, begin + 1)
    wide = WIDTH - LEFT - RIGHT
    fullness = Panel(LEFT, 66, wide, 190, begin, end)
    waiting = Panel(LEFT, 316, wide, 190, begin, end)
    parts = legend(LEFT, 40, [(run.policy, SERIES[i % len(SERIES)]) for i, run in enumerate(runs)])
    queues = [_means(_queue(run.result), begin, end) for run in runs]
    most = round_up(max((max(each) for each in queues), default=0.0))
    parts += [*height_axis(fullness, 1.0, percent=True), *time_axis(fullness, begin)]
    parts += [*height_axis(waiting, most), *time_axis(waiting, begin)]
    parts.append(text(LEFT, 60, "utilisation: share of the site that is in use", colour=SOFT))
    parts.append(text(LEFT, 310, "queue: leases that wait for their first start", colour=SOFT))
    for index, run in enumerate(runs):
        colour = SERIES[index % len(SERIES)]
        filled = len(runs) == 1
        used = [each / max(capacity, 1) for each in _means(_used(run.result, weights), begin, end)]
        parts.append(_curve(fullness, used, colour, filled=filled))
        parts.append(
            _curve(waiting, [each / most for each in queues[index]], colour, filled=filled)
        )
    return sheet(540, title, parts)


def _last(result: SimulationResult) -> Millis | None:
    return max((end for end in result.ends if end is not None), default=None)


def _used(result: SimulationResult, weights: Sequence[int]) -> list[Change]:
    changes: list[Change] = []
    if result.stretches is not None:
        for stretch in result.stretches:
            changes.append((stretch.start, weights[stretch.lease]))
            changes.append((stretch.end, -weights[stretch.lease]))
        return changes
    for width, start, end in zip(weights, result.starts, result.ends, strict=True):
        if start is not None and end is not None:
            changes.append((start, width))
            changes.append((end, -width))
    return changes


def _queue(result: SimulationResult) -> list[Change]:
    changes: list[Change] = []
    for index, arrival in enumerate(result.workload.arrivals):
        start = result.starts[index]
        if start is not None and start > arrival and result.kinds[index] in _QUEUES:
            changes.append((arrival, 1))
            changes.append((start, -1))
    return changes


def _means(changes: Iterable[Change], begin: Millis, end: Millis) -> list[float]:
    """Return the mean of a step function over each of equal columns from `begin` to `end`."""
    totals = [0.0] * _COLUMNS
    length = (end - begin) / _COLUMNS
    level, since = 0, begin
    for at, change in [*sorted(changes), (end, 0)]:
        if level and at > since:
            _spread(totals, level, (since - begin) / length, (at - begin) / length)
        level += change
        since = at
    return totals


def _spread(totals: list[float], level: int, start: float, end: float) -> None:
    """Add `level` over the columns from `start` to `end`, whose parts count by their share."""
    first, last = int(start), min(int(end), _COLUMNS - 1)
    if first >= last:
        totals[last] += level * (end - start)
        return
    totals[first] += level * (first + 1 - start)
    for column in range(first + 1, last):
        totals[column] += level
    totals[last] += level * (end - last)


def _curve(panel: Panel, shares: Sequence[float], colour: str, *, filled: bool) -> str:
    step = panel.width / len(shares)
    path = [f"M{panel.x:.1f} {panel.up(0):.1f}"] if filled else []
    for column, share in enumerate(shares):
        y = panel.up(min(1.0, share))
        x = panel.x + column * step
        verb = "L" if path else "M"
        path.append(f"{verb}{x:.1f} {y:.1f}H{x + step:.1f}")
    if filled:
        path.append(f"V{panel.up(0):.1f}Z")
        return f'<path d="{"".join(path)}" fill="{colour}" fill-opacity="0.75"/>'
    return (
        f'<path d="{"".join(path)}" fill="none" stroke="{colour}" stroke-width="1.3" '
        'stroke-opacity="0.85"/>'
    )
