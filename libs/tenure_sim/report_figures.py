"""The figures of a run, each with its definition: overall, by kind of terms, by owner.

All are over leases that started, unless the definition says otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final, TypeVar

from tenure_core.timebase import Millis
from tenure_sim.result import SimulationResult
from tenure_sim.revenue import Revenue, revenue_of
from tenure_sim.scores import BOUND_MS
from tenure_sim.site import Site
from tenure_sim.workload import Workload

Value = TypeVar("Value", int, float)

DEFINITIONS: Final[dict[str, str]] = {
    "wait": "first start less arrival",
    "slowdown": "(end - arrival) / run time, of leases that ended having run, not cancelled",
    "bounded slowdown": (
        "max(1, (end - arrival) / max(run time, 10 s)), of leases that ended having run"
    ),
    "p95": "the smallest value that 95 % of the leases do not exceed",
    "utilisation": (
        "what the leases that ran took times their run time, over what the site has times the "
        "span from the first arrival to the last end; in slots where all slots are alike, else in "
        "processors"
    ),
    "waste": "slot time of runs whose progress was lost, over all slot time used",
    "fairness": (
        "Jain's index of the owners' mean bounded slowdowns: (sum x)^2 / (n sum x^2); 1 when all "
        "owners fare alike, 1/n when one bears it all"
    ),
    "slot hours": "slots times run time",
    "revenue": "the prices of the leases that ended having run, surcharges included",
    "surcharge": "the part of it for suspending and resuming others",
    "missed revenue": (
        "what users would have paid above the price of leases that ran, and for leases that were "
        "rejected or that they refused; only of users who named a rate"
    ),
}
"""What each figure means, in the words of the report and the manual."""


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of a group of leases; times in milliseconds."""

    leases: int
    done: int
    rejected: int
    wait_mean_ms: float
    wait_median_ms: Millis
    wait_p95_ms: Millis
    wait_max_ms: Millis
    slowdown_mean: float
    bounded_slowdown_mean: float
    bounded_slowdown_median: float
    bounded_slowdown_p95: float
    preemptions: int
    slot_hours: float


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures of a whole run."""

    all: Figures
    by_kind: dict[str, Figures]
    by_owner: dict[str, Figures]
    utilisation: float
    waste: float
    fairness: float
    makespan_ms: Millis
    bad_lines: int
    left_out: int
    revenue: Revenue | None = None

    def as_json(self) -> dict[str, object]:
        """Return the figures as plain values; without those of money where all is free."""
        values = asdict(self)
        if self.revenue is None:
            del values["revenue"]
        return values


@dataclass(frozen=True, slots=True)
class Measures:
    """Wait and slowdowns of each lease; None for one that never started or never ended.

    Who was cancelled has no slowdown, but did run: `ran` says how long, 0 for who did not.
    """

    waits: Sequence[Millis | None]
    bounded: Sequence[float | None]
    plain: Sequence[float | None]
    ran: Sequence[Millis]

    @classmethod
    def of(cls, result: SimulationResult) -> Measures:
        """Return the measures of a run."""
        arrivals, runs = result.workload.arrivals, result.workload.runs
        waits: list[Millis | None] = []
        bounded: list[float | None] = []
        plain: list[float | None] = []
        ran: list[Millis] = []
        for start, end, arrival, run, state in zip(
            result.starts, result.ends, arrivals, runs, result.states, strict=True
        ):
            waits.append(None if start is None else start - arrival)
            if start is None or end is None:
                bounded.append(None)
                plain.append(None)
                ran.append(0)
                continue
            if state == "CANCELLED":
                bounded.append(None)
                plain.append(None)
                ran.append(min(run, end - start))
                continue
            ran.append(run)
            ratio = (end - arrival) / run
            plain.append(ratio)
            if run < BOUND_MS:
                ratio = (end - arrival) / BOUND_MS
            bounded.append(ratio if ratio > 1.0 else 1.0)
        return cls(waits, bounded, plain, ran)


def summarise(result: SimulationResult, site: Site) -> Summary:
    """Return the figures of a run on a site; n log n in its leases."""
    measures = Measures.of(result)
    count = len(result.workload)
    kinds = _groups(result.kinds)
    owners = _groups(result.workload.owners or ["trace"] * count)
    everybody = _figures(result, measures, range(count))
    by_kind = {
        kind: everybody if len(kinds) == 1 else _figures(result, measures, kinds[kind])
        for kind in sorted(kinds)
    }
    by_owner = {owner: _figures(result, measures, owners[owner]) for owner in sorted(owners)}
    return Summary(
        all=everybody,
        by_kind=by_kind,
        by_owner=by_owner,
        utilisation=_utilisation(result, site, measures),
        waste=result.scores.waste,
        fairness=jain(
            [each.bounded_slowdown_mean for each in by_owner.values() if each.bounded_slowdown_mean]
        ),
        makespan_ms=result.scores.makespan_ms,
        bad_lines=len(result.workload.bad),
        left_out=result.workload.left_out,
        revenue=_revenue(result),
    )


def _revenue(result: SimulationResult) -> Revenue | None:
    if result.quotes is None:
        return None
    return revenue_of(result.workload, result.states, result.reasons, result.quotes)


def loads(workload: Workload, site: Site) -> tuple[Sequence[int], int]:
    """Return how much of the site each lease takes while it runs, and how much the site has.

    In slots where all slots are alike; else in processors, or in the first kind of resource that
    the site has where it has no processors.
    """
    if workload.specs is None:
        return workload.widths, site.slots_of(workload.slot) or 0
    kinds = {kind for node in site.nodes for kind in node.capacity_at(0)}
    kind = "cpu" if "cpu" in kinds else min(kinds, default="cpu")
    taken = [spec.node_count * spec.amounts[kind] for spec in workload.specs]
    return taken, sum(node.capacity_at(0)[kind] for node in site.nodes)


def _utilisation(result: SimulationResult, site: Site, measures: Measures) -> float:
    workload = result.workload
    if workload.specs is None:
        return result.scores.utilisation
    taken, there = loads(workload, site)
    used = sum(weight * ran for weight, ran in zip(taken, measures.ran, strict=True))
    span = result.scores.makespan_ms
    return round(used / (there * span), 6) if there and span else 0.0


def jain(values: Sequence[float]) -> float:
    """Return Jain's fairness index of values above zero; 1 for none."""
    squares = sum(value * value for value in values)
    return round(sum(values) ** 2 / (len(values) * squares), 6) if squares else 1.0


def _groups(names: Sequence[str]) -> dict[str, list[int]]:
    groups: dict[str, list[int]] = {}
    for index, name in enumerate(names):
        groups.setdefault(name, []).append(index)
    return groups


def _figures(result: SimulationResult, measures: Measures, indices: Sequence[int]) -> Figures:
    widths = result.workload.widths
    states = result.states
    found_waits, found_ratios = measures.waits, measures.bounded
    waits = sorted([wait for i in indices if (wait := found_waits[i]) is not None])
    bounded = sorted([ratio for i in indices if (ratio := found_ratios[i]) is not None])
    slowed = [ratio for i in indices if (ratio := measures.plain[i]) is not None]
    ran = sum([measures.ran[i] * widths[i] for i in indices])
    return Figures(
        leases=len(indices),
        done=len([i for i in indices if states[i] == "DONE"]),
        rejected=len([i for i in indices if states[i] == "REJECTED"]),
        wait_mean_ms=round(sum(waits) / len(waits), 3) if waits else 0.0,
        wait_median_ms=_at_share(waits, 50) if waits else 0,
        wait_p95_ms=_at_share(waits, 95) if waits else 0,
        wait_max_ms=waits[-1] if waits else 0,
        slowdown_mean=round(sum(slowed) / len(slowed), 4) if slowed else 0.0,
        bounded_slowdown_mean=round(sum(bounded) / len(bounded), 4) if bounded else 0.0,
        bounded_slowdown_median=round(_at_share(bounded, 50), 4) if bounded else 0.0,
        bounded_slowdown_p95=round(_at_share(bounded, 95), 4) if bounded else 0.0,
        preemptions=sum([result.preemptions[i] for i in indices]),
        slot_hours=round(ran / 3_600_000, 3),
    )


def _at_share(ordered: Sequence[Value], percent: int) -> Value:
    """Return the smallest value that `percent` of the values do not exceed."""
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]
