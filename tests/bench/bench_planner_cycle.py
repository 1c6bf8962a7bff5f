"""One planning cycle with a long queue: `python tests/bench/bench_planner_cycle.py`.

1,000 heterogeneous nodes, full; 10,000 leases wait. *cold* plans from a snapshot, as the live
scheduler does after a restart; *warm* keeps the book, ends one running lease, and plans again.
Goals: EASY p99 under 100 ms; conservative p99 under 1 s and cold under 10 s (Slurm with each of
10,000 pending jobs planned: 97.7 s). Arguments: nodes, waiting leases.
"""

from __future__ import annotations

import random
import sys
import time

from tenure_core.leases.lease import BestEffort, LeaseSpec
from tenure_core.leases.states import LeaseState
from tenure_core.planning.book import PlanningBook
from tenure_core.planning.plan import Schedule
from tenure_core.planning.planner import plan, run_pass
from tenure_core.planning.snapshot import (
    LeaseView,
    NodeView,
    ReservationKind,
    ReservationView,
    Snapshot,
)
from tenure_core.policies.backfilling import Backfilling
from tenure_core.policies.bundle import Policies
from tenure_core.resources import ResourceVector
from tenure_core.timebase import MINUTE_MS, Interval

GIB = 2**30


def amounts(rng: random.Random) -> ResourceVector:
    cpu = rng.choice((1, 2, 4, 8))
    return ResourceVector({"cpu": cpu * 1000, "memory": cpu * rng.choice((1, 2, 4)) * GIB})


def lease(rng: random.Random, number: int, state: LeaseState) -> LeaseView:
    duration = rng.randrange(5, 24 * 60) * MINUTE_MS
    spec = LeaseSpec(
        owner="a",
        project="p",
        pool="main",
        terms=BestEffort(),
        node_count=min(64, int(rng.expovariate(1 / 4)) + 1),
        amounts=amounts(rng),
        duration_ms=duration,
    )
    return LeaseView(f"l{number}", spec, state, 0, number, 0, duration)


def snapshot(nodes: int, waiting: int) -> Snapshot:
    """Return a pool whose nodes are full of running leases, with so many waiting."""
    rng = random.Random(20261130)
    sizes = ((8, 32), (16, 64), (32, 64), (64, 512))
    views = tuple(
        NodeView(f"n{i:04}", ((0, ResourceVector({"cpu": c * 1000, "memory": m * GIB})),))
        for i in range(nodes)
        for c, m in [sizes[i % 4]]
    )
    leases: list[LeaseView] = []
    rows: list[ReservationView] = []
    for node in views:
        free = node.capacity[0][1]
        while True:
            wanted = amounts(rng)
            if not wanted.fits_in(free):
                break
            free = free - wanted
            number = len(leases)
            duration = rng.randrange(5, 24 * 60) * MINUTE_MS
            spec = LeaseSpec("a", "p", "main", BestEffort(), 1, wanted, duration)
            name = f"l{number}"
            leases.append(
                LeaseView(name, spec, LeaseState.ACTIVE, 1, number, 0, duration, run_started=0)
            )
            span = Interval(0, duration)
            kind = ReservationKind.RUN
            rows.append(ReservationView(f"r{number}", name, 1, 0, node.id, span, wanted, kind))
    first = len(leases)
    leases += [lease(rng, first + i, LeaseState.QUEUED) for i in range(waiting)]
    return Snapshot(MINUTE_MS, views, tuple(rows), tuple(leases))


def warm(start: Snapshot, policies: Policies, cycles: int) -> list[float]:
    """Return the CPU seconds of each of the cycles after the first, one early end before each."""
    book = PlanningBook.of(start, policies)
    run_pass(book)
    running = [view.id for view in start.leases if view.state is LeaseState.ACTIVE]
    rng = random.Random(1)
    spent: list[float] = []
    settle(book)
    for _ in range(cycles):
        book.now += 1000
        ended = running.pop(rng.randrange(len(running)))
        for row in book.table.of_lease(ended):
            book.table.remove(row.id)
        book.drop(ended)
        began = time.process_time()
        run_pass(book, continued=True)
        spent.append(time.process_time() - began)
        settle(book)
    return spent


def settle(book: PlanningBook) -> None:
    """Do as the scheduler does with the decisions of a pass."""
    for decision in book.take_decisions():
        if isinstance(decision, Schedule):
            view = book.leases[decision.lease]
            now = decision.interval.start <= book.now
            state = LeaseState.ACTIVE if now else LeaseState.SCHEDULED
            book.put(
                LeaseView(
                    view.id,
                    view.spec,
                    state,
                    decision.attempt,
                    view.arrival,
                    0,
                    view.remaining_ms,
                    run_started=book.now if now else None,
                )
            )


def main(nodes: int, waiting: int) -> None:
    start = snapshot(nodes, waiting)
    print(f"{nodes} nodes, {len(start.reservations)} reservations, {waiting} waiting leases")
    for name, cycles in (("easy", 50), ("conservative", 10 if waiting <= 2_000 else 0)):
        policies = Policies(backfilling=Backfilling.parse(name))
        began = time.process_time()
        result = plan(start, policies)
        cold = time.process_time() - began
        line = f"{name:14} cold {cold:8.3f} s ({len(result.groups)} groups)"
        if cycles:
            spent = sorted(warm(start, policies, cycles))
            middle, worst = spent[len(spent) // 2] * 1000, spent[-1] * 1000
            line += f"   warm p50 {middle:8.1f} ms   max {worst:8.1f} ms"
        print(line, flush=True)


if __name__ == "__main__":
    sizes = [int(text) for text in sys.argv[1:]] or [1_000, 10_000]
    main(*sizes)
