"""Every public trace runs to its end under each kind of backfilling, and nothing is over-booked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.conformance.golden_schedules import read_leases
from tests.support.outside import workloads

from tenure_core.planning.snapshot import NodeView
from tenure_core.policies.backfilling import Backfilling
from tenure_core.policies.bundle import Policies
from tenure_core.policies.preemption import NoPreemption
from tenure_core.resources import ResourceVector
from tenure_sim.binding import BoundSimulation
from tenure_sim.lwf_text import merged, read_lwf_text
from tenure_sim.simulate import simulate
from tenure_sim.site import Site
from tenure_sim.swf import read_swf
from tenure_sim.workload import Workload

PROCESSORS = {
    "lublin_256.swf.gz": 256,
    "lublin_256_new2.swf.gz": 256,
    "SDSC-SP2-1998-4.2-cln.swf.gz": 128,
    "NASA-iPSC-1993-3.1-cln.swf.gz": 128,
    "hpc2n-alea-subset.swf.gz": 240,
    "blue-150requests.swf.gz": 144,
    "blue-600requests.swf.gz": 144,
    "blue-30days.swf.gz": 144,
}
BLUE_NODES = 144
FILES = sorted(path for path in workloads().rglob("*.gz") if not path.name.startswith("Azure"))


def load(path: Path) -> tuple[Workload, int]:
    """Return a trace and the size of its machine; a file of an unknown kind fails."""
    if path.name.endswith(".swf.gz"):
        return read_swf(path, processors=PROCESSORS[path.name]), PROCESSORS[path.name]
    if path.name.endswith(".lwf.gz"):
        queue = read_swf(path.parent / "blue-30days.swf.gz", processors=BLUE_NODES)
        return merged(path.name, queue, read_lwf_text(path)), BLUE_NODES
    assert path.name.endswith(".csv.gz"), path.name
    return read_leases(path), BLUE_NODES


def over_booked(workload: Workload, starts: Sequence, ends: Sequence, slots: int) -> bool:
    changes = [
        change
        for width, start, end in zip(workload.widths, starts, ends, strict=True)
        if start is not None
        for change in ((start, width), (end, -width))
    ]
    used = 0
    for _, change in sorted(changes):
        used += change
        if used > slots:
            return True
    return False


@pytest.mark.parametrize("backfilling", ["off", "easy", "conservative"])
@pytest.mark.parametrize("path", FILES, ids=[path.name for path in FILES])
def test_trace_runs_to_its_end(path: Path, backfilling: str):
    workload, slots = load(path)
    policies = Policies(backfilling=Backfilling.parse(backfilling), preemption=NoPreemption())
    result = simulate(workload, Site.of_processors(slots), policies)
    assert not over_booked(workload, result.starts, result.ends, slots)
    for index, state in enumerate(result.states):
        start, wanted = result.starts[index], workload.starts and workload.starts[index]
        if state == "DONE":
            assert start is not None and start >= workload.arrivals[index]
            assert wanted is None or start == wanted
        else:
            assert (state, start) == ("REJECTED", None)
            assert wanted is not None


@pytest.mark.parametrize("backfilling", ["off", "easy", "conservative"])
def test_reservations_preempt_on_bound_nodes_with_every_invariant_checked(backfilling: str):
    """The Blue log with dense reservations, on 144 nodes, checked at each event."""
    workload = read_leases(workloads() / "leases" / "blue600-ar30.csv.gz")
    slot = ResourceVector({"cpu": 1000, "memory": 1024})
    nodes = tuple(
        NodeView(f"n{i:03}", ((0, ResourceVector({"cpu": 1000, "memory": 4096})),))
        for i in range(BLUE_NODES)
    )
    bound = Workload(
        workload.name,
        workload.ids,
        workload.arrivals,
        workload.widths,
        workload.requests,
        workload.runs,
        workload.starts,
        slot,
    )
    policies = Policies(backfilling=Backfilling.parse(backfilling))
    run = BoundSimulation(bound, Site(nodes), policies, checks=True)
    run.run()
    assert set(run.states) <= {"DONE", "REJECTED"}
    assert (sum(run.preemptions) > 0) == (backfilling != "off")
    for index, start in enumerate(run.starts):
        wanted = bound.starts[index]
        if wanted is not None and run.states[index] == "DONE":
            assert start == wanted
