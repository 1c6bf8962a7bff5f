"""Draws what ran as a Gantt picture: one SVG, and one HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import Final

from tenure_core.trails import Run

COLOURS: Final = {
    "best effort": "#4c78a8",
    "advance": "#e45756",
    "deadline": "#f58518",
    "immediate": "#54a24b",
}
_LANE: Final = 12
_LABEL: Final = 90
_WIDTH: Final = 1100
_TOP: Final = 40
_NS: Final = 1_000_000_000
_STYLE: Final = (
    "body{font-family:sans-serif;margin:2em;max-width:1150px}"
    "table{border-collapse:collapse;margin:1em 0}"
    "td,th{padding:.25em .8em;border-bottom:1px solid #ddd;text-align:right}"
    "td:first-child,th:first-child{text-align:left}"
)

Table = tuple[str, Sequence[str], Sequence[Sequence[object]]]
"""A heading, the columns, the rows."""


def gantt_svg(runs: Sequence[Run], kinds: Mapping[str, str], title: str) -> str:
    """Return the picture: a lane for each slot of each node, a bar for each stretch of a run.

    Where a run was suspended, a thin line connects its stretches.
    """
    ended = [run for run in runs if run.end is not None]
    begin = min((run.start for run in ended), default=0)
    end = max((run.end for run in ended if run.end is not None), default=begin + _NS)
    scale = (_WIDTH - _LABEL - 10) / (end - begin)
    lanes = _lanes(ended)
    height = _TOP + sum(len(of_node) * _LANE + 8 for of_node in lanes.values()) + 30
    parts = [
        _opening(height),
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        f'<text x="10" y="16" font-size="13" font-weight="bold">{escape(title)}</text>',
        *_legend(),
    ]
    y = _TOP
    for node, of_node in lanes.items():
        parts.append(f'<text x="6" y="{y + 10}">{escape(node)}</text>')
        for lane in of_node:
            for run in lane:
                colour = COLOURS.get(kinds.get(run.lease, ""), "#999999")
                parts.append(_bar(run, colour, begin, scale, y))
            y += _LANE
        y += 8
        parts.append(
            f'<line x1="{_LABEL}" x2="{_WIDTH}" y1="{y - 4}" y2="{y - 4}" stroke="#dddddd"/>'
        )
    parts += _axis(begin, end, scale, y)
    parts.append("</svg>")
    return "\n".join(parts)


def _opening(height: int) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" font-size="11">'
    )


def _lanes(runs: Sequence[Run]) -> dict[str, list[list[Run]]]:
    """Put each node's runs into as few lanes as they need, by their start (first fit)."""
    nodes: dict[str, list[list[Run]]] = {}
    for run in sorted(runs, key=lambda each: (each.start, each.lease, each.rank)):
        lanes = nodes.setdefault(run.node, [])
        for lane in lanes:
            if not run.overlaps(lane[-1]):
                lane.append(run)
                break
        else:
            lanes.append([run])
    return {node: nodes[node] for node in sorted(nodes, key=lambda name: (len(name), name))}


def _bar(run: Run, colour: str, begin: int, scale: float, y: int) -> str:
    def x(at: int) -> float:
        return _LABEL + (at - begin) * scale

    assert run.end is not None
    said = f"{run.lease} slot {run.rank}, attempt {run.attempt}, exit code {run.exit_code}"
    parts = [f"<g><title>{escape(said)}</title>"]
    for start, stop in run.stretches:
        stop = run.end if stop is None else stop  # an open stretch ends with the run
        width = max(0.8, (stop - start) * scale)
        parts.append(
            f'<rect x="{x(start):.1f}" y="{y}" width="{width:.1f}" height="{_LANE - 2}" '
            f'fill="{colour}" fill-opacity="0.85"/>'
        )
    for (_, stopped), (resumed, _) in pairwise(run.stretches):
        assert stopped is not None
        middle = y + _LANE / 2 - 1
        parts.append(
            f'<line x1="{x(stopped):.1f}" x2="{x(resumed):.1f}" y1="{middle}" y2="{middle}" '
            f'stroke="{colour}" stroke-width="2" stroke-dasharray="3 2"/>'
        )
    parts.append("</g>")
    return "".join(parts)


def _legend() -> list[str]:
    parts = []
    for index, (kind, colour) in enumerate(COLOURS.items()):
        x = _LABEL + index * 120
        parts.append(f'<rect x="{x}" y="22" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{x + 15}" y="31">{escape(kind)}</text>')
    x = _LABEL + len(COLOURS) * 120
    parts.append(
        f'<line x1="{x}" x2="{x + 20}" y1="27" y2="27" stroke="#555555" stroke-width="2" '
        f'stroke-dasharray="3 2"/><text x="{x + 26}" y="31">suspended</text>'
    )
    return parts


def _axis(begin: int, end: int, scale: float, y: int) -> list[str]:
    seconds = (end - begin) / _NS
    step = next(
        s for s in (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 3600, 10**9) if seconds / s <= 15
    )
    parts = []
    at = 0
    while at <= seconds:
        x = _LABEL + at * _NS * scale
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{y}" stroke="#eeeeee"/>'
            f'<text x="{x:.1f}" y="{y + 14}" text-anchor="middle">{at} s</text>'
        )
        at += step
    return parts


def page(title: str, svg: str, tables: Sequence[Table]) -> str:
    """Return one HTML page with the picture and tables."""
    parts = [
        "<!doctype html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>',
        f"<style>{_STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1>",
        svg,
    ]
    for heading, columns, rows in tables:
        parts.append(f"<h2>{escape(heading)}</h2><table><tr>")
        parts += [f"<th>{escape(column)}</th>" for column in columns]
        parts.append("</tr>")
        for row in rows:
            cells = "".join(f"<td>{escape(str(cell))}</td>" for cell in row)
            parts.append(f"<tr>{cells}</tr>")
        parts.append("</table>")
    parts.append("</body></html>")
    return "\n".join(parts)
