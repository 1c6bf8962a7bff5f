"""HTML that notebooks show: a table, and a picture of bars over time.

Decides looks only. Everything that came from elsewhere is escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from html import escape
from typing import Final

_ROW: Final = 20
_LABEL: Final = 130
_WIDTH: Final = 720
_COLOURS: Final = {
    "active": "#2f7d4f",
    "done": "#8aa899",
    "failed": "#b3402f",
    "cancelled": "#b9b9b9",
    "suspended": "#c58f2a",
    "scheduled": "#3b6ea5",
}
_OTHER: Final = "#9db4cc"


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table; without rows it says so."""
    if not rows:
        return "<p>no leases</p>"
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def gantt(bars: Sequence[tuple[str, str, datetime, datetime]]) -> str:
    """Return an SVG with a bar for each (label, state, begin, end); nothing without bars."""
    if not bars:
        return ""
    first = min(begin for _, _, begin, _ in bars)
    last = max(end for _, _, _, end in bars)
    length = max(last - first, timedelta(seconds=1))
    scale = (_WIDTH - _LABEL) / (length / timedelta(seconds=1))
    height = _ROW * len(bars) + 18
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
            'font-family="sans-serif" font-size="11" role="img">'
        )
    ]
    for number, (label, state, begin, end) in enumerate(bars):
        x = _LABEL + (begin - first) / timedelta(seconds=1) * scale
        width = max(2.0, (end - begin) / timedelta(seconds=1) * scale)
        y = number * _ROW
        told = escape(f"{label} {state}: {begin.isoformat()} to {end.isoformat()}")
        parts.append(
            f'<text x="0" y="{y + 14}">{escape(label)}</text>'
            f'<rect x="{x:.1f}" y="{y + 3}" width="{width:.1f}" height="{_ROW - 6}" rx="2" '
            f'fill="{_COLOURS.get(state, _OTHER)}"><title>{told}</title></rect>'
        )
    parts.append(
        f'<text x="{_LABEL}" y="{height - 4}">{first:%Y-%m-%d %H:%M:%S} UTC</text>'
        f'<text x="{_WIDTH}" y="{height - 4}" text-anchor="end">{last:%H:%M:%S}</text></svg>'
    )
    return "".join(parts)
