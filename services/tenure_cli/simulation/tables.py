"""The summary of a simulation on the screen, without anything that is slow to load."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tenure_sim.compare import Run, cells, differences, show_time, table
from tenure_sim.report_figures import Figures

OWNERS_MAX = 10
_COLUMNS = (
    "LEASES", "DONE", "REJECTED", "SLOT HOURS", "WAIT MEAN", "MEDIAN", "P95", "LONGEST",
    "BSLD MEAN", "P95", "PREEMPTED",
)  # fmt: skip


def aligned(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table as text: the first column at the left, numbers at the right."""
    lines = [tuple(columns), *(tuple(row) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def summary_text(runs: Sequence[Run], facts: Sequence[tuple[str, str]]) -> str:
    """Return what is shown of the runs: facts, figures, groups, differences."""
    policies = {run.policy for run in runs}
    said = [(name, value) for name, value in facts if value]
    first = "  ".join(f"{name} {value}" for name, value in said if name not in policies)
    parts = ["\n".join([first, *(f"{n}: {v}" for n, v in said if n in policies)])]
    parts.append(
        aligned(
            ("", *(run.policy for run in runs)),
            [(each.name, *each.cells) for each in table([run.summary for run in runs])],
        )
    )
    if len(runs) == 1:
        summary = runs[0].summary
        groups = [(kind.lower().replace("_", " "), f) for kind, f in summary.by_kind.items()]
        parts.append(_groups("KIND", groups))
        owners = sorted(summary.by_owner.items(), key=lambda each: (-each[1].slot_hours, each[0]))
        if len(owners) > 1:
            shown = owners[:OWNERS_MAX]
            more = f"\n… of {len(owners)} owners" if len(owners) > OWNERS_MAX else ""
            parts.append(_groups("OWNER", shown) + more)
    parts += [
        f"{each.policy} against {runs[0].policy}: {each.earlier:,} start earlier, "
        f"{each.same:,} at the same time, {each.later:,} later; "
        f"on average by {show_time(each.mean_ms)}"
        for each in differences(runs)
    ]
    return "\n\n".join(parts)


def _groups(title: str, groups: Iterable[tuple[str, Figures]]) -> str:
    return aligned((title, *_COLUMNS), [(name, *cells(figures)) for name, figures in groups])
