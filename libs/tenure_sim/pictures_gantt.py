"""Draws who ran where and when: a row a node, or one a slot where capacity was only counted.

Of large outcomes the first leases and nodes are drawn, and the picture says so. Capacity that was
planned by counts has no places; the lowest free slots are given to each start, for the picture.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from html import escape
from typing import Final

from tenure_core.timebase import Millis
from tenure_sim.compare import show_time
from tenure_sim.pictures import (
    KIND_COLOURS,
    LEFT,
    RIGHT,
    WIDTH,
    Panel,
    legend,
    sheet,
    text,
    time_axis,
)
from tenure_sim.pictures import line as thin
from tenure_sim.result import SimulationResult, Stretch
from tenure_sim.site import Site

LEASES_MAX: Final = 2_000
NODES_MAX: Final = 400
_TOP: Final = 58
_KINDS: Final = {
    "BEST_EFFORT": "best effort",
    "ADVANCE": "advance",
    "DEADLINE": "deadline",
    "IMMEDIATE": "immediate",
}


@dataclass(frozen=True, slots=True)
class Bar:
    """One rectangle: a lease, its span, and the rows it fills, from `row` on."""

    lease: int
    start: Millis
    end: Millis
    row: float
    rows: float


def gantt_svg(result: SimulationResult, site: Site, title: str) -> str:
    """Return the picture of a run on a site."""
    slots = site.slots_of(result.workload.slot) or 0
    stretches, note = _shown(result)
    if result.stretches is None:
        bars, labels = list(_counted(result, stretches, slots)), _slot_labels(slots)
        rows = slots
    else:
        bars, names = _bound(stretches)
        rows = len(names)
        every = -(-rows // 60) if rows else 1
        labels = [(row + 0.5, name) for row, name in enumerate(names) if row % every == 0]
    begin = min((bar.start for bar in bars), default=0)
    end = max((bar.end for bar in bars), default=begin + 1)
    height = min(900.0, max(220.0, rows * 14.0))
    panel = Panel(LEFT, _TOP, WIDTH - LEFT - RIGHT, height, begin, max(end, begin + 1))
    scale = height / max(rows, 1)
    parts = [*time_axis(panel, begin), *_names(panel, labels, scale)]
    if result.stretches is not None and rows <= 60:
        parts += [
            thin(LEFT, _TOP + row * scale, WIDTH - RIGHT, _TOP + row * scale)
            for row in range(rows + 1)
        ]
    parts += [_drawn(result, bar, panel, scale) for bar in bars]
    present = {result.kinds[bar.lease] for bar in bars}
    shown = [(_KINDS[kind], KIND_COLOURS[kind][0]) for kind in _KINDS if kind in present]
    parts += legend(LEFT, 44, shown)
    return sheet(_TOP + height + 28, title, parts, note)


def _shown(result: SimulationResult) -> tuple[list[Stretch], str]:
    """Return the stretches to draw, by their start, and what is to be said of those left out."""
    if result.stretches is not None:
        found = list(result.stretches)
    else:
        found = [
            Stretch(index, start, end, ())
            for index, (start, end) in enumerate(zip(result.starts, result.ends, strict=True))
            if start is not None and end is not None
        ]
    found.sort(key=lambda each: (each.start, each.lease))
    if len(found) <= LEASES_MAX:
        return found, ""
    return found[:LEASES_MAX], f"the first {LEASES_MAX:,} of {len(found):,} runs"


def _counted(result: SimulationResult, stretches: list[Stretch], slots: int) -> Iterator[Bar]:
    free = list(range(slots))
    heapify(free)
    running: list[tuple[Millis, int, list[int]]] = []
    for stretch in stretches:
        while running and running[0][0] <= stretch.start:
            for slot in heappop(running)[2]:
                heappush(free, slot)
        taken = sorted(heappop(free) for _ in range(result.workload.widths[stretch.lease]))
        heappush(running, (stretch.end, stretch.lease, taken))
        first = taken[0]
        for place, slot in enumerate(taken, 1):
            if place == len(taken) or taken[place] != slot + 1:
                yield Bar(stretch.lease, stretch.start, stretch.end, first, slot - first + 1)
                first = taken[place] if place < len(taken) else first


def _bound(stretches: list[Stretch]) -> tuple[list[Bar], list[str]]:
    """Return bars by node, several at once sharing the node's row, and the nodes' names."""
    on: dict[str, list[Stretch]] = {}
    for stretch in stretches:
        for node in dict.fromkeys(stretch.nodes):
            on.setdefault(node, []).append(stretch)
    names = sorted(on)[:NODES_MAX]
    bars: list[Bar] = []
    for row, node in enumerate(names):
        lanes: list[Millis] = []
        placed: list[tuple[Stretch, int]] = []
        for stretch in on[node]:
            lane = next((i for i, end in enumerate(lanes) if end <= stretch.start), len(lanes))
            lanes[lane : lane + 1] = [stretch.end]
            placed.append((stretch, lane))
        share = 1 / len(lanes)
        bars += [
            Bar(each.lease, each.start, each.end, row + lane * share, share)
            for each, lane in placed
        ]
    return _merged(bars), names


def _merged(bars: list[Bar]) -> list[Bar]:
    """Return bars of which those of one run on whole rows one below the other have become one."""
    merged: list[Bar] = []
    for bar in sorted(bars, key=lambda each: (each.start, each.lease, each.row)):
        above = merged[-1] if merged else None
        if (
            above is not None
            and (above.lease, above.start) == (bar.lease, bar.start)
            and above.row + above.rows == bar.row
            and bar.rows == 1
            and above.rows >= 1
        ):
            merged[-1] = replace(above, rows=above.rows + 1)
        else:
            merged.append(bar)
    return merged


def _slot_labels(slots: int) -> list[tuple[float, str]]:
    step = max(1, slots // 8)
    return [(slot + 0.5, f"slot {slot}") for slot in range(0, slots, step)]


def _names(panel: Panel, labels: list[tuple[float, str]], scale: float) -> Iterator[str]:
    for row, name in labels:
        said = name if len(name) <= 12 else "…" + name[-11:]
        yield text(panel.x - 8, panel.y + row * scale + 4, said, "end")


def _drawn(result: SimulationResult, bar: Bar, panel: Panel, scale: float) -> str:
    x, until = panel.at(bar.start), panel.at(bar.end)
    tints = KIND_COLOURS[result.kinds[bar.lease]]
    wait = show_time(bar.start - result.workload.arrivals[bar.lease])
    said = (
        f"{result.workload.ids[bar.lease]}: {result.workload.widths[bar.lease]} slots, "
        f"{show_time(bar.end - bar.start)}, begun {wait} after its arrival"
    )
    gap = 0.6 if until - x > 3 else 0.0
    return (
        f'<rect x="{x:.1f}" y="{panel.y + bar.row * scale:.1f}" '
        f'width="{max(0.4, until - x - gap):.1f}" height="{max(0.6, bar.rows * scale - 0.4):.1f}" '
        f'fill="{tints[bar.lease % len(tints)]}"><title>{escape(said)}</title></rect>'
    )
