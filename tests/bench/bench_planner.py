"""Speed of planner and simulator: `python tests/bench/bench_planner.py [NAME ...]`.

Prints jobs per CPU-second for each case, beside the goal and the fastest peer of
`shared/spec/baselines.md`. Traces come from $TENURE_WORKLOADS or ../shared/workloads.
"""

from __future__ import annotations

import io
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tenure_core.leases.lease import Advance, BestEffort, LeaseSpec
from tenure_core.planning.snapshot import NodeView
from tenure_core.policies.backfilling import Backfilling
from tenure_core.policies.bundle import Policies
from tenure_core.policies.preemption import NoPreemption
from tenure_core.resources import ResourceVector
from tenure_core.timebase import SECOND_MS
from tenure_sim.binding import simulate_bound
from tenure_sim.simulate import simulate
from tenure_sim.site import Site
from tenure_sim.swf import read_swf
from tenure_sim.workload import SimLease, Workload

GIB = 2**30
HERE = Path(__file__).resolve().parents[2]
TRACES = Path(os.environ.get("TENURE_WORKLOADS") or HERE.parent / "shared" / "workloads")
SDSC = TRACES / "SDSC-SP2-1998-4.2-cln.swf.gz"


def trace(backfilling: str) -> int:
    """Simulate 10,000 jobs of SDSC-SP2 on 128 interchangeable slots, reading and CSV included."""
    workload = read_swf(SDSC, processors=128, first=10_000)
    policies = Policies(backfilling=Backfilling.parse(backfilling), preemption=NoPreemption())
    result = simulate(workload, Site.of_processors(128), policies)
    result.write_csv(io.StringIO())
    return len(workload)


def mixed_site() -> Site:
    """Return 144 hosts of four kinds."""
    sizes = ((8, 32), (16, 64), (32, 64), (64, 512))
    return Site(
        tuple(
            NodeView(
                f"host-{i:03}",
                ((0, ResourceVector({"cpu": cpu * 1000, "memory": memory * GIB})),),
                {"kind": str(i % 4)},
            )
            for i in range(144)
            for cpu, memory in [sizes[i % 4]]
        )
    )


def mixed_leases(count: int, reserved: float, load: float = 1.1) -> Workload:
    """Return leases of one to 16 slots of two resources, a share of them advance reservations."""
    rng = random.Random(20261130)
    capacity = sum(node.capacity[0][1]["cpu"] for node in mixed_site().nodes) // 1000
    leases: list[SimLease] = []
    at = 0.0
    for number in range(count):
        slots = min(16, int(rng.expovariate(1 / 3)) + 1)
        cpu = rng.choice((1, 2, 4, 8))
        run = int(rng.lognormvariate(7, 1.2)) + 1
        request = int(run * rng.choice((1, 1.5, 2, 4)))
        at += slots * cpu * run / (capacity * load)
        arrival = int(at)
        ahead = rng.random() < reserved
        terms = Advance((arrival + rng.randrange(3_600, 86_400)) * SECOND_MS)
        memory = cpu * rng.choice((1, 2, 4)) * GIB
        spec = LeaseSpec(
            owner="a",
            project="p",
            pool="main",
            terms=terms if ahead else BestEffort(),
            node_count=slots,
            amounts=ResourceVector({"cpu": cpu * 1000, "memory": memory}),
            duration_ms=request * SECOND_MS,
        )
        leases.append(SimLease(f"l{number}", arrival * SECOND_MS, spec, run * SECOND_MS))
    return Workload.of("mixed", leases)


def bound(count: int, reserved: float, preempting: bool = True) -> int:
    """Simulate mixed leases on 144 hosts of four kinds, bound to nodes, under EASY."""
    policies = Policies() if preempting else Policies(preemption=NoPreemption())
    simulate_bound(mixed_leases(count, reserved), mixed_site(), policies)
    return count


CASES: dict[str, tuple[Callable[[], int], str]] = {
    "counted-easy": (lambda: trace("easy"), "goal 30,000; pyss 3,000"),
    "counted-conservative": (lambda: trace("conservative"), "goal 6,000; pyss 2,600"),
    "counted-off": (lambda: trace("off"), "pyss 12,900"),
    "bound-easy": (lambda: bound(3_000, 0.0), "goal 3,000; Haizea 32-38"),
    "bound-easy-10%-advance": (
        lambda: bound(3_000, 0.1, preempting=False),
        "goal 3,000; Haizea about 3",
    ),
    "bound-easy-10%-preempting": (lambda: bound(3_000, 0.1), "goal 3,000; Haizea about 3"),
}


def main(names: list[str]) -> None:
    """Run the cases named, or all."""
    for name, (case, note) in CASES.items():
        if names and name not in names:
            continue
        began = time.process_time()
        count = case()
        spent = time.process_time() - began
        print(f"{name:28} {count / spent:10,.0f} leases/CPU-s  ({note})", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
