"""Writes one HTML page about one or several runs that needs nothing beside itself.

It holds no time of day and no name of a machine: the same runs give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from tenure_sim.compare import Difference, Moved, Run, cells, differences, show_time, table
from tenure_sim.pictures_gantt import gantt_svg
from tenure_sim.pictures_load import load_svg
from tenure_sim.pictures_spread import spread_svg
from tenure_sim.report_figures import DEFINITIONS, Figures
from tenure_sim.site import Site

OWNERS_MAX: Final = 20
BAD_MAX: Final = 50
_STYLE: Final = """
:root{color-scheme:light}
body{font:14px/1.5 Helvetica,Arial,sans-serif;color:#1f2933;max-width:1120px;margin:2rem auto;
padding:0 1rem}
h1{font-size:1.5rem;margin-bottom:.2rem}h2{font-size:1.1rem;margin-top:2.2rem;
border-bottom:1px solid #e4e7eb;padding-bottom:.3rem}
p.what{color:#616e7c;margin-top:0}
table{border-collapse:collapse;margin:.8rem 0}
td,th{padding:.3rem .9rem .3rem 0;text-align:right;border-bottom:1px solid #e4e7eb;
font-variant-numeric:tabular-nums}
th{color:#616e7c;font-weight:600}td:first-child,th:first-child{text-align:left}
svg{max-width:100%;height:auto;display:block;margin:1rem 0}
dt{font-weight:600;margin-top:.6rem}dd{margin:0;color:#3e4c59}
.scroll{overflow-x:auto}
"""


@dataclass(frozen=True, slots=True)
class Subject:
    """What a report is about: its heading, and facts on how the runs were made."""

    title: str
    site: Site
    facts: Sequence[tuple[str, str]]


def pictures(runs: Sequence[Run], subject: Subject) -> dict[str, str]:
    """Return every picture of the runs by the name of its file, as SVG."""
    found = {
        "load": load_svg(runs, subject.site, "Utilisation and queue over time"),
        "distributions": spread_svg(runs, "Waits and slowdowns"),
    }
    for run in runs:
        title = f"Who ran where and when: {run.policy}"
        name = "gantt" if len(runs) == 1 else f"gantt-{file_word(run.policy)}"
        found[name] = gantt_svg(run.result, subject.site, title)
    return found


def file_word(policy: str) -> str:
    """Return a policy as part of a file's name."""
    return "".join(char if char.isalnum() else "-" for char in policy)


def page(runs: Sequence[Run], subject: Subject, drawn: dict[str, str]) -> str:
    """Return the page; `drawn` are the pictures, as from `pictures`."""
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        f"<title>{escape(subject.title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{escape(subject.title)}</h1>",
        f'<p class="what">{_facts(subject.facts)}</p>',
        "<h2>Figures</h2>",
        _table(
            ["", *(run.policy for run in runs)],
            [[each.name, *each.cells] for each in table([run.summary for run in runs])],
        ),
    ]
    if len(runs) > 1:
        parts.append("<p>In brackets: the change against the first policy.</p>")
    parts += [drawn["load"], drawn["distributions"]]
    for run in runs:
        parts.append(f"<h2>{escape(run.policy)}</h2>")
        parts.append(_groups("kind of terms", run.summary.by_kind.items()))
        parts.append(drawn.get(f"gantt-{file_word(run.policy)}") or drawn["gantt"])
        parts.append(_owners(run))
    for difference in differences(runs):
        parts += _difference(difference, runs[0].policy)
    parts += _bad(runs[0])
    parts.append("<h2>What the figures mean</h2><dl>")
    parts += [f"<dt>{escape(k)}</dt><dd>{escape(text)}</dd>" for k, text in DEFINITIONS.items()]
    parts.append("</dl></body></html>\n")
    return "\n".join(parts)


def _facts(facts: Sequence[tuple[str, str]]) -> str:
    return " &middot; ".join(f"{escape(name)} {escape(value)}" for name, value in facts if value)


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'


def _groups(title: str, groups: Iterable[tuple[str, Figures]]) -> str:
    columns = (
        title, "leases", "done", "rejected", "slot hours", "wait, mean", "median", "p95",
        "longest", "bounded slowdown, mean", "p95", "preemptions",
    )  # fmt: skip
    return _table(columns, [(name, *cells(figures)) for name, figures in groups])


def _owners(run: Run) -> str:
    owners = sorted(run.summary.by_owner.items(), key=lambda each: (-each[1].slot_hours, each[0]))
    if len(owners) < 2:
        return ""
    said = ""
    if len(owners) > OWNERS_MAX:
        said = f"<p>The {OWNERS_MAX} largest of {len(owners)} owners; all are in the summary.</p>"
    return _groups("owner", owners[:OWNERS_MAX]) + said


def _difference(difference: Difference, first: str) -> list[str]:
    counts = (
        f"{difference.earlier:,} leases start earlier, {difference.same:,} at the same time, "
        f"{difference.later:,} later; on average by {show_time(difference.mean_ms)}."
    )
    if difference.only_first or difference.only_this:
        counts += (
            f" {difference.only_first:,} run only under {first}, "
            f"{difference.only_this:,} only under {difference.policy}."
        )
    parts = [
        f"<h2>{escape(difference.policy)} against {escape(first)}</h2>",
        f"<p>{escape(counts)}</p>",
    ]
    for title, moved in (
        ("who waits longer", difference.most_delayed),
        ("who waits less", difference.most_advanced),
    ):
        if moved:
            parts.append(_table((title, "owner", "by"), [_moved(each) for each in moved]))
    if len(difference.owners) > 1:
        losers = [(each.owner, each.lease, show_time(each.by_ms)) for each in difference.owners]
        half = OWNERS_MAX // 2
        shown = losers if len(losers) <= OWNERS_MAX else [*losers[:half], *losers[-half:]]
        parts.append(_table(("owner", "leases", "mean change of the wait"), shown))
    return parts


def _moved(moved: Moved) -> tuple[str, str, str]:
    return moved.lease, moved.owner, show_time(moved.by_ms)


def _bad(run: Run) -> list[str]:
    bad = run.result.workload.bad
    if not bad:
        return []
    rows = [(str(entry.line), entry.reason) for entry in bad[:BAD_MAX]]
    return [
        f"<h2>{len(bad):,} lines left out</h2>",
        _table(("line", "reason"), rows),
    ]
