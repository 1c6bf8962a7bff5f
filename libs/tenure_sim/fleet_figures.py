"""What a run on a simulated fleet came to: bookings, waits, machine-hours, cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tenure_core.timebase import HOUR_MS, SECOND_MS, Millis
from tenure_sim.fleet_simulation import FleetSimulation


@dataclass(frozen=True, slots=True)
class FleetFigures:
    """The figures of one run. Times in milliseconds, machine time in hours, cost in whole units.

    `ahead` are bookings accepted earlier than the lead of their machines, `complete` those of them
    that had all machines at their start. Waits are those of leases that queue. What is wasted is
    what is paid for while nothing runs: booting and idle time.
    """

    leases: int
    done: int
    wait_mean_ms: float
    wait_median_ms: Millis
    bookings: int
    ahead: int
    complete: int
    late_max_ms: Millis
    late_mean_ms: float
    machine_hours: float
    busy_hours: float
    booting_hours: float
    idle_hours: float
    wasted_hours: float
    cut_hours: float
    boots: int
    failed_boots: int
    machines_most: int
    cost: float
    decisions: int

    def as_json(self) -> dict[str, Any]:
        """Return the figures as JSON."""
        return {key: _rounded(value) for key, value in asdict(self).items()}


def figures_of(run: FleetSimulation) -> FleetFigures:
    """Return the figures of a run that is over."""
    workload, time = run.workload, run.fleet.time
    waits = sorted(
        start - workload.arrivals[i]
        for i, start in enumerate(run.starts)
        if start is not None and (workload.starts is None or workload.starts[i] is None)
    )
    bookings = run.bookings()
    ahead = [booking for booking in bookings if booking.ahead]
    late = [booking.late_ms for booking in ahead]
    return FleetFigures(
        leases=len(workload),
        done=sum(state == "DONE" for state in run.states),
        wait_mean_ms=_mean(waits),
        wait_median_ms=waits[(len(waits) - 1) // 2] if waits else 0,
        bookings=len(bookings),
        ahead=len(ahead),
        complete=sum(each.complete is not None and not each.late_ms for each in ahead),
        late_max_ms=max(late, default=0),
        late_mean_ms=_mean([each for each in late if each]),
        machine_hours=time.total / HOUR_MS,
        busy_hours=time.busy / HOUR_MS,
        booting_hours=time.booting / HOUR_MS,
        idle_hours=time.idle / HOUR_MS,
        wasted_hours=time.wasted / HOUR_MS,
        cut_hours=run.cut_ms / HOUR_MS,
        boots=time.boots,
        failed_boots=time.failed,
        machines_most=time.most,
        cost=time.total / HOUR_MS * run.settings.price_micros / 1_000_000,
        decisions=run.decisions,
    )


ROWS = (
    "leases done", "wait, mean", "wait, median", "bookings accepted", "… earlier than the lead",
    "… of these complete at their start", "late by, mean of the late", "late by, longest",
    "machine-hours", "… in use", "… booting", "… idle", "wasted", "boots", "boots that failed",
    "most machines at once", "cost",
)  # fmt: skip


def columns(figures: FleetFigures) -> tuple[str, ...]:
    """Return one run's figures in the order of `ROWS`, as text."""
    share = f" ({100 * figures.complete / figures.ahead:.2f}%)" if figures.ahead else ""
    wasted = 100 * figures.wasted_hours / figures.machine_hours if figures.machine_hours else 0.0
    return (
        f"{figures.done:,}",
        _seconds(figures.wait_mean_ms),
        _seconds(figures.wait_median_ms),
        f"{figures.bookings:,}",
        f"{figures.ahead:,}",
        f"{figures.complete:,}{share}",
        _seconds(figures.late_mean_ms),
        _seconds(figures.late_max_ms),
        f"{figures.machine_hours:,.0f}",
        f"{figures.busy_hours:,.0f}",
        f"{figures.booting_hours:,.0f}",
        f"{figures.idle_hours:,.0f}",
        f"{figures.wasted_hours:,.0f} ({wasted:.1f}%)",
        f"{figures.boots:,}",
        f"{figures.failed_boots:,}",
        f"{figures.machines_most:,}",
        f"{figures.cost:,.2f}",
    )


def _seconds(span_ms: float) -> str:
    return f"{span_ms / SECOND_MS:,.0f} s"


def _mean(values: Sequence[int]) -> float:
    return sum(values) / len(values) if values else 0.0


def _rounded(value: float) -> float:
    return round(value, 3) if isinstance(value, float) else value
