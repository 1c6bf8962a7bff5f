"""What the autoscaler reaches: bookings complete at their start, waste and wait on month-long
traces, and the time that a decision takes. `python -m tests.bench.bench_autoscaler [NAME …]`.

`decision`: 5,000 machines and 50,000 waiting leases. `month`: the traces with injected reservations
of `shared/workloads/haizea`, p95 boot 120 s, 2 % failed boots; TENURE_BENCH_SEEDS says how many
seeds (default 10), TENURE_BENCH_TRACES which traces by a part of their names. A run of one trace
under one policy takes minutes; each is printed as it ends.
"""

from __future__ import annotations

import gc
import os
import random
import sys
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import mean

from tenure_core.autoscaling.booked_demand import NodeBooking
from tenure_core.autoscaling.fleet import FleetInputs, FleetState, decide_fleet
from tenure_core.autoscaling.fleet_values import FleetConfig, FleetNode
from tenure_core.autoscaling.future_node import NodeState
from tenure_core.autoscaling.machine_types import MachineType
from tenure_core.autoscaling.queue_packing import WaitingLease
from tenure_core.policies.bundle import Policies
from tenure_core.policies.preemption import NoPreemption
from tenure_core.resources import ResourceVector
from tenure_core.timebase import HOUR_MS, MINUTE_MS, Interval
from tenure_sim.annotate import compact, from_zero, injected
from tenure_sim.convert import read_trace
from tenure_sim.fleet_figures import FleetFigures, figures_of
from tenure_sim.fleet_settings import FleetPolicy, FleetSettings
from tenure_sim.fleet_simulation import FleetSimulation
from tenure_sim.site import Site
from tenure_sim.workload import Workload

HERE = Path(__file__).resolve().parents[2]
TRACES = Path(os.environ.get("TENURE_WORKLOADS") or HERE.parent / "shared" / "workloads")
HAIZEA = TRACES / "haizea"
NODES = 144
CPU = ResourceVector({"cpu": 1000})
HEADER = (
    f"{'trace':28} {'policy':18} {'seeds':>5} {'booked':>7} {'complete at start':>18} "
    f"{'wait':>9} {'in use h':>9} {'wasted h':>9} {'boots':>7}"
)


def month() -> None:
    """Print a line a run, then the table: means over the seeds, by trace and policy."""
    seeds = int(os.environ.get("TENURE_BENCH_SEEDS", "10"))
    part = os.environ.get("TENURE_BENCH_TRACES", "")
    paths = [path for path in sorted(HAIZEA.glob("inj-30days-*.lwf.gz")) if part in path.name]
    found: dict[tuple[str, FleetPolicy], list[FleetFigures]] = {}
    print(HEADER, flush=True)
    for seed, path in product(range(1, seeds + 1), paths):
        workload = mixed(path)
        for policy in (FleetPolicy.QUEUE, FleetPolicy.BOOKINGS):
            figures = simulated(workload, FleetSettings(policy), seed)
            name = path.name.removeprefix("inj-30days-").removesuffix(".lwf.gz")
            found.setdefault((name, policy), []).append(figures)
            print(_line(name, policy, [figures]), f" seed {seed}", flush=True)
    print(f"\nmeans over {seeds} seeds\n{HEADER}")
    for (name, policy), runs in found.items():
        print(_line(name, policy, runs))
        if policy is FleetPolicy.BOOKINGS:
            print(_against(found[name, FleetPolicy.QUEUE], runs))


def mixed(injection: Path) -> Workload:
    """Return a month of a real queue with reservations a day ahead."""
    site = Site.of_nodes(NODES, CPU)
    queue = read_trace(HAIZEA / "blue-30days.swf.gz", site=site).workload
    return compact(injected(from_zero(queue), read_trace(injection, site=site).workload))


def simulated(workload: Workload, settings: FleetSettings, seed: int) -> FleetFigures:
    """Return the figures of one run under EASY backfilling without preemption."""
    policies = Policies(preemption=NoPreemption())
    run = FleetSimulation(workload, Site.of_nodes(NODES, CPU), policies, settings, seed)
    run.run()
    return figures_of(run)


def _line(name: str, policy: FleetPolicy, runs: Sequence[FleetFigures]) -> str:
    ahead, complete = (sum(getattr(run, key) for run in runs) for key in ("ahead", "complete"))
    return (
        f"{name:28} {policy.value:18} {len(runs):>5} {ahead:>7,} "
        f"{complete:>8,} {100 * complete / max(1, ahead):>7.2f} % "
        f"{mean(run.wait_mean_ms for run in runs) / 1000:>7,.0f} s "
        f"{mean(run.busy_hours for run in runs):>9,.0f} "
        f"{mean(run.wasted_hours for run in runs):>9,.0f} {mean(run.boots for run in runs):>7,.0f}"
    )


def _against(blind: Sequence[FleetFigures], aware: Sequence[FleetFigures]) -> str:
    def change(key: str) -> float:
        before, after = (mean(getattr(run, key) for run in runs) for runs in (blind, aware))
        return 100 * (after - before) / before if before else 0.0

    return (
        f"{'':28} against queue-only: wasted {change('wasted_hours'):+.1f} % (goal: -20 or less), "
        f"mean wait {change('wait_mean_ms'):+.1f} % (goal: within 2)"
    )


def decision(machines: int = 5_000, leases: int = 50_000) -> None:
    """Print the time of one decision; goal: under one second."""
    rng = random.Random(20261201)
    shapes = [ResourceVector({"cpu": cpu * 1000, "memory": cpu * 2**31}) for cpu in (1, 2, 4, 8)]
    whole = ResourceVector({"cpu": 16_000, "memory": 64 * 2**30})
    kinds = [MachineType(f"t{place}", whole, 100 + place) for place in range(3)]
    nodes, bookings = [], []
    for number in range(machines):
        busy = rng.random() < 0.7
        free = rng.choice(shapes) if busy else whole
        state = NodeState.RUNNING if rng.random() < 0.9 else NodeState.ABSENT
        kind = kinds[number % 3].name
        nodes.append(FleetNode(f"n{number}", kind, state, HOUR_MS, busy, free=free))
        if rng.random() < 0.3:
            start = rng.randrange(1, 300) * MINUTE_MS
            span = Interval(start, start + rng.randrange(1, 20) * HOUR_MS)
            bookings.append(NodeBooking(f"n{number}", span, rng.choice(shapes)))
    waiting = [
        WaitingLease(
            f"l{number}", rng.randrange(1, 17), rng.choice(shapes),
            duration_ms=rng.randrange(1, 2_000) * MINUTE_MS,
        )
        for number in range(leases)
    ]  # fmt: skip
    inputs = FleetInputs(0, nodes, bookings, waiting)
    took = []
    for _ in range(3):
        gc.collect()
        began = time.process_time()
        decided = decide_fleet(FleetState(), inputs, kinds, FleetConfig(machines * 2))
        took.append(time.process_time() - began)
    assert decided.packing is not None
    print(
        f"{machines:,} machines, {len(bookings):,} bookings, {leases:,} waiting leases: "
        f"best {min(took):.2f} s, worst {max(took):.2f} s of CPU (goal: 1 s); "
        f"{decided.packing.served:,} served, {len(decided.orders):,} orders"
    )


def main() -> int:
    """Run what is named, or all."""
    known = {"decision": decision, "month": month}
    gc.set_threshold(200_000, 20, 100)
    for name in sys.argv[1:] or known:
        known[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
