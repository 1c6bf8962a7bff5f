"""Every public workload runs to its end, as `tenure simulate` reads it, and breaks no invariant.

The beginning of each is run here; the whole of each, and more of it bound to nodes, is a slow test.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from tests.support.outside import workloads

from tenure_core.policies.backfilling import Backfilling
from tenure_core.policies.bundle import Policies
from tenure_core.policies.preemption import NoPreemption
from tenure_sim.annotate import compact, from_zero, injected
from tenure_sim.binding import BoundSimulation
from tenure_sim.convert import read_trace
from tenure_sim.result import SimulationResult
from tenure_sim.simulate import simulate
from tenure_sim.site import Site
from tenure_sim.workload import SLOT, Workload

MACHINES = {
    "lublin_256.swf.gz": 256,
    "lublin_256_new2.swf.gz": 256,
    "SDSC-SP2-1998-4.2-cln.swf.gz": 128,
    "NASA-iPSC-1993-3.1-cln.swf.gz": 128,
    "hpc2n-alea-subset.swf.gz": 240,
}
"""The machine of each trace, as the workloads' README states; all others are Blue Horizon."""

BLUE_NODES = 144
NO_LEASES = frozenset({"AzureLLMInferenceTrace_code.csv.gz"})
"""Arrivals of requests without sizes: a pattern for the autoscaler, not a workload of leases."""

FILES = sorted(
    path
    for path in workloads().rglob("*")
    if path.is_file() and path.name.count(".") > 1 and path.name not in NO_LEASES
)
BACKFILLING = ("off", "easy", "conservative")
COUNTED, BOUND = 2_000, 150
BOUND_SLOW = 800


def load(path: Path, first: int | None = None) -> tuple[Workload, int]:
    """Return a workload and the slots of its machine; reservations come with their log."""
    slots = MACHINES.get(path.name, BLUE_NODES)
    site = Site.of_nodes(slots, SLOT)
    workload = read_trace(path, site=site, first=None if ".lwf" in path.name else first).workload
    if path.name.endswith(".lwf.gz"):
        queue = read_trace(path.parent / "blue-30days.swf.gz", site=site).workload
        workload = compact(injected(from_zero(queue), workload))
        workload = workload if first is None else workload.first(first)
    assert len(workload) > 0
    assert workload.bad == ()
    return workload, slots


def check(result: SimulationResult, slots: int, backfilling: str, *, preempts: bool) -> None:
    """Assert what must hold of any outcome."""
    workload = result.workload
    booked = workload.starts or [None] * len(workload)
    changes: list[tuple[int, int]] = []
    for index, state in enumerate(result.states):
        start, end = result.starts[index], result.ends[index]
        if state != "DONE":
            assert (state, start) == ("REJECTED", None)
            assert booked[index] is not None, f"{workload.ids[index]} only queued, yet never ran"
            continue
        assert start is not None
        assert end is not None
        assert start >= workload.arrivals[index]
        assert booked[index] is None or start == booked[index]
        if result.preemptions[index] == 0:
            assert end == start + workload.runs[index]
        else:
            assert preempts
            assert end > start + workload.runs[index]
            continue
        changes += [(start, workload.widths[index]), (end, -workload.widths[index])]
    for stretch in result.stretches or ():
        if result.preemptions[stretch.lease]:
            width = workload.widths[stretch.lease]
            changes += [(stretch.start, width), (stretch.end, -width)]
    used = 0
    for _, change in sorted(changes):
        used += change
        assert 0 <= used <= slots, "more runs at once than there are slots"
    assert used == 0
    if backfilling == "off" and not preempts:
        queued = [start for start, at in zip(result.starts, booked, strict=True) if at is None]
        assert all(before <= after for before, after in pairwise(queued))


def policies(backfilling: str, *, preempts: bool) -> Policies:
    made = Policies(backfilling=Backfilling.parse(backfilling))
    return made if preempts else replace(made, preemption=NoPreemption())


def run_counted(path: Path, backfilling: str, first: int | None) -> None:
    workload, slots = load(path, first)
    result = simulate(workload, Site.of_nodes(slots, SLOT), policies(backfilling, preempts=False))
    assert result.nodes is None, "these slots are alike: they are planned by counts"
    check(result, slots, backfilling, preempts=False)


def run_bound(path: Path, backfilling: str, first: int | None) -> None:
    """Run bound to nodes, the slot table checked after each instant; reservations preempt.

    On one node with all the slots, a queue starts exactly as it does by counts; on nodes of one
    slot each it may start later, since a promise there is of certain nodes.
    """
    workload, slots = load(path, first)
    preempts = workload.starts is not None
    chosen = policies(backfilling, preempts=preempts)
    run = BoundSimulation(workload, Site.of_nodes(slots, SLOT), chosen, checks=True)
    run.run()
    assert all(
        end <= start
        for node in _by_node(run).values()
        for (_, end), (start, _) in pairwise(sorted(node))
    ), "two runs at once on a node that has one slot"
    assert set(run.states) <= {"DONE", "REJECTED"}
    if preempts:
        return
    assert set(run.states) == {"DONE"}
    one_node = BoundSimulation(workload, Site.of_processors(slots), chosen, checks=True)
    one_node.run()
    counted = simulate(workload, Site.of_processors(slots), chosen)
    assert counted.nodes is None
    assert one_node.starts == list(counted.starts), "slots of one node are planned as by counts"


def _by_node(run: BoundSimulation) -> dict[str, list[tuple[int, int]]]:
    spans: dict[str, list[tuple[int, int]]] = {}
    for stretch in run.stretches:
        for node in stretch.nodes:
            spans.setdefault(node, []).append((stretch.start, stretch.end))
    return spans


each_file = pytest.mark.parametrize("path", FILES, ids=[path.name for path in FILES])
each_policy = pytest.mark.parametrize("backfilling", BACKFILLING)


def test_every_file_on_disk_is_of_a_known_kind():
    known = (".swf.gz", ".lwf.gz", ".csv.gz")
    packed = [path for path in workloads().rglob("*.gz") if path.name not in NO_LEASES]
    assert sorted(packed) == FILES
    assert [path.name for path in FILES if not path.name.endswith(known)] == []


@each_policy
@each_file
def test_the_beginning_runs_to_its_end(path: Path, backfilling: str):
    run_counted(path, backfilling, COUNTED)


@each_policy
@each_file
def test_the_beginning_runs_bound_to_nodes_with_the_table_checked(path: Path, backfilling: str):
    run_bound(path, backfilling, BOUND)


@pytest.mark.slow
@pytest.mark.timeout(900)
@each_policy
@each_file
def test_the_whole_runs_to_its_end(path: Path, backfilling: str):
    run_counted(path, backfilling, None)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@each_policy
@each_file
def test_much_runs_bound_to_nodes_with_the_table_checked(path: Path, backfilling: str):
    run_bound(path, backfilling, BOUND_SLOW)
