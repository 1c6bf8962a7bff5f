"""Sets runs of one workload under several policies side by side: who gains, who loses.

All differences are against the first run. A lease that starts under one policy only is counted
apart and is in no mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from tenure_core.timebase import Millis
from tenure_sim.report_figures import Figures, Summary
from tenure_sim.result import SimulationResult


@dataclass(frozen=True, slots=True)
class Run:
    """One policy's outcome, under the name that the user gave the policy."""

    policy: str
    result: SimulationResult
    summary: Summary


@dataclass(frozen=True, slots=True)
class Moved:
    """A lease whose start differs: how much later it starts than under the first policy."""

    lease: str
    owner: str
    by_ms: Millis


@dataclass(frozen=True, slots=True)
class Difference:
    """What becomes of the leases under `policy` as against the first one."""

    policy: str
    earlier: int
    same: int
    later: int
    only_first: int
    only_this: int
    mean_ms: float
    most_delayed: tuple[Moved, ...]
    most_advanced: tuple[Moved, ...]
    owners: tuple[Moved, ...]
    """Each owner's mean change of the wait, the greatest loser first; `lease` is their number."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table of figures: its name and one text a run, the change in per cent."""

    name: str
    cells: tuple[str, ...]


def differences(runs: Sequence[Run], *, most: int = 10) -> list[Difference]:
    """Return the differences of each further run from the first, with the `most` extreme leases."""
    return [_difference(runs[0], run, most) for run in runs[1:]]


def _difference(first: Run, other: Run, most: int) -> Difference:
    workload = first.result.workload
    owners = workload.owners or ["trace"] * len(workload)
    moved: list[Moved] = []
    changes: dict[str, list[Millis]] = {}
    only_first = only_this = same = 0
    pairs = zip(first.result.starts, other.result.starts, strict=True)
    for index, (before, after) in enumerate(pairs):
        if before is None or after is None:
            only_first += before is not None
            only_this += after is not None
            continue
        changes.setdefault(owners[index], []).append(after - before)
        if after == before:
            same += 1
        else:
            moved.append(Moved(workload.ids[index], owners[index], after - before))
    moved.sort(key=lambda each: each.by_ms)
    total = sum(sum(each) for each in changes.values())
    count = sum(len(each) for each in changes.values())
    by_owner = [
        Moved(str(len(each)), owner, round(sum(each) / len(each)))
        for owner, each in changes.items()
    ]
    by_owner.sort(key=lambda each: (-each.by_ms, each.owner))
    return Difference(
        policy=other.policy,
        earlier=sum(each.by_ms < 0 for each in moved),
        same=same,
        later=sum(each.by_ms > 0 for each in moved),
        only_first=only_first,
        only_this=only_this,
        mean_ms=round(total / count, 3) if count else 0.0,
        most_delayed=tuple(each for each in reversed(moved[-most:]) if each.by_ms > 0),
        most_advanced=tuple(each for each in moved[:most] if each.by_ms < 0),
        owners=tuple(by_owner),
    )


_FIGURES: tuple[tuple[str, Callable[[Summary], float], str], ...] = (
    ("leases done", lambda s: s.all.done, "count"),
    ("leases rejected", lambda s: s.all.rejected, "count"),
    ("wait, mean", lambda s: s.all.wait_mean_ms, "time"),
    ("wait, median", lambda s: s.all.wait_median_ms, "time"),
    ("wait, p95", lambda s: s.all.wait_p95_ms, "time"),
    ("wait, longest", lambda s: s.all.wait_max_ms, "time"),
    ("slowdown, mean", lambda s: s.all.slowdown_mean, "ratio"),
    ("bounded slowdown, mean", lambda s: s.all.bounded_slowdown_mean, "ratio"),
    ("bounded slowdown, median", lambda s: s.all.bounded_slowdown_median, "ratio"),
    ("bounded slowdown, p95", lambda s: s.all.bounded_slowdown_p95, "ratio"),
    ("utilisation", lambda s: s.utilisation, "share"),
    ("waste", lambda s: s.waste, "share"),
    ("fairness", lambda s: s.fairness, "ratio"),
    ("preemptions", lambda s: s.all.preemptions, "count"),
    ("makespan", lambda s: s.makespan_ms, "time"),
)


_MONEY: tuple[tuple[str, str], ...] = (
    ("revenue", "revenue"),
    ("surcharge", "surcharge"),
    ("missed by undercharging", "missed_by_undercharging"),
    ("missed by rejection", "missed_by_rejection"),
    ("missed by refusal", "missed_by_refusal"),
    ("missed revenue", "missed"),
)


def table(summaries: Sequence[Summary]) -> list[Line]:
    """Return the figures, one column a summary; the further ones with their change."""
    lines = []
    figures = _FIGURES
    if any(summary.revenue for summary in summaries):
        figures += tuple((name, partial(_money, field=field), "money") for name, field in _MONEY)
    for name, value, unit in figures:
        values = [value(summary) for summary in summaries]
        cells = [show(values[0], unit)]
        for each in values[1:]:
            change = ""
            if values[0] and each != values[0]:
                change = f" ({(each - values[0]) / values[0]:+.1%})"
            cells.append(show(each, unit) + change)
        lines.append(Line(name, tuple(cells)))
    return lines


def _money(summary: Summary, field: str) -> float:
    return 0.0 if summary.revenue is None else float(getattr(summary.revenue, field))


def cells(figures: Figures) -> tuple[str, ...]:
    """Return a group's figures as texts, the same in every table."""
    return (
        show(figures.leases, "count"),
        show(figures.done, "count"),
        show(figures.rejected, "count"),
        show(figures.slot_hours, "count"),
        show_time(figures.wait_mean_ms),
        show_time(figures.wait_median_ms),
        show_time(figures.wait_p95_ms),
        show_time(figures.wait_max_ms),
        show(figures.bounded_slowdown_mean, "ratio"),
        show(figures.bounded_slowdown_p95, "ratio"),
        show(figures.preemptions, "count"),
    )


def show(value: float, unit: str) -> str:
    """Return a figure as people read it; `unit` is count, time (ms), ratio, money or share."""
    if unit == "count":
        return f"{value:,.0f}"
    if unit == "share":
        return f"{value:.2%}"
    return show_time(value) if unit == "time" else f"{value:,.2f}"


def show_time(millis: float) -> str:
    """Return a span with its two largest units, with its sign: `1h30m`, `-45s`, `0s`."""
    sign, rest = ("-" if millis < 0 else ""), abs(millis) / 1_000
    if rest < 60:
        return f"{sign}{rest:.3g}s"
    seconds = round(rest)
    parts: list[str] = []
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        number, seconds = divmod(seconds, length)
        if number or parts:
            parts.append(f"{number}{unit}")
    return sign + "".join(parts[:2])
