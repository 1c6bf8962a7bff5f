"""How fast the admission rules decide: eligibility of 10,000 waiting leases, and whole passes.

    .venv/bin/python -m tests.bench.bench_admission_rules [--leases 10000] [--nodes 200]

Eligibility is every predicate for every lease, each with one dependency, against limits of 500
owners, 50 projects and 5 domains; the goal is 200 ms. The best of five runs is printed, on leases
that are new to the process each time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from tenure_core.admission.nodes import Node
from tenure_core.admission.ordering import Ordering, OrderingFacts
from tenure_core.admission.passes import PassInput, PassRules, run_pass
from tenure_core.admission.predicates import Limits, Standings, refusals
from tenure_core.admission.quotas import Held, Limit
from tenure_core.admission.waiting import DependencyEnd, DependencyState, Member, WaitingLease

_GIB = 2**30
_RUNS = 5


def _leases(count: int, *, members: int = 1, dependent: bool = True) -> list[WaitingLease]:
    ends = (DependencyEnd.SUCCEEDED, DependencyEnd.UNDER_WAY)
    return [
        WaitingLease(
            id=f"l{i}",
            owner=f"u{i % 500}",
            project=f"p{i % 50}",
            domain=f"d{i % 5}",
            members=(Member({"cpu": 1_000, "memory": _GIB}),) * (1 + i % members),
            many_nodes=True,
            dependencies=(DependencyState("other", ends[i % 2]),) if dependent else (),
        )
        for i in range(count)
    ]


def _limits() -> Limits:
    return Limits(
        {f"u{i}": Limit({"cpu": 10_000, "memory": None}, leases=5) for i in range(500)},
        {f"p{i}": Limit({"cpu": 10**7, "memory": None}) for i in range(50)},
        {f"d{i}": Limit({"cpu": None, "memory": None}) for i in range(5)},
    )


def main() -> None:
    """Print milliseconds of each measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--leases", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, default=200)
    given = parser.parse_args()
    standings = Standings({f"u{i}": Held({"cpu": 3_000}, 2) for i in range(500)})
    limits = _limits()

    runs = []
    for _ in range(_RUNS):
        fresh = _leases(given.leases)
        runs.append(_timed_ms(lambda: _eligibility(fresh, standings, limits)))  # noqa: B023
    best = min(runs)
    print(f"eligibility of {given.leases} leases       {best:8.0f} ms   (goal 200)")
    nodes = [Node(f"n{i}", {"cpu": 16_000, "memory": 64 * _GIB}) for i in range(given.nodes)]
    facts = OrderingFacts(capacity={"cpu": 16_000 * given.nodes})
    for ordering in (Ordering.FIFO, Ordering.DRF):
        waiting = _leases(given.leases)
        full = PassInput(
            nodes, waiting, ordering=ordering, facts=facts, standings=standings, limits=limits
        )
        took = _timed_ms(lambda: run_pass(full, PassRules()))  # noqa: B023 (called at once)
        print(f"pass, {ordering.value + ', with limits':29}  {took:8.0f} ms")
    gangs = PassInput(nodes, _leases(given.leases, members=4, dependent=False))
    took = _timed_ms(lambda: run_pass(gangs, PassRules()))
    print(f"pass that fills the pool with gangs  {took:8.0f} ms")


def _eligibility(waiting: list[WaitingLease], standings: Standings, limits: Limits) -> int:
    return sum(bool(refusals(lease, 0, standings, limits)) for lease in waiting)


def _timed_ms(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1_000


if __name__ == "__main__":
    main()
