"""Simulations: planning by counts and binding to nodes agree, and nothing is over-booked."""

from __future__ import annotations

import io
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tenure_core.leases.lease import Advance, BestEffort, Deadline, Immediate, LeaseSpec
from tenure_core.planning.snapshot import NodeView
from tenure_core.policies.backfilling import Backfilling
from tenure_core.policies.bundle import Migration, Overheads, Policies
from tenure_core.policies.placement import HostSelection
from tenure_core.policies.preemption import NoPreemption
from tenure_core.resources import ResourceVector
from tenure_sim.binding import BoundSimulation, simulate_bound
from tenure_sim.counting import simulate_counted
from tenure_sim.simulate import simulate
from tenure_sim.site import Site
from tenure_sim.workload import SimLease, Workload

SLOTS = 6
BACKFILLING = st.sampled_from(
    [
        Backfilling.OFF,
        Backfilling.EASY,
        Backfilling.intermediate(2),
        Backfilling.intermediate(3),
        Backfilling.CONSERVATIVE,
    ]
)
JOBS = st.lists(
    st.tuples(
        st.integers(0, 8),  # gap
        st.integers(1, SLOTS),  # width
        st.integers(1, 20),  # request
        st.integers(1, 20),  # run
        st.one_of(st.none(), st.none(), st.none(), st.integers(0, 30)),  # advance, ahead
    ),
    min_size=1,
    max_size=30,
)


def trace(jobs) -> Workload:
    arrivals, at = [], 0
    for gap, *_ in jobs:
        at += gap
        arrivals.append(at)
    starts = [
        None if job[4] is None else arrival + job[4]
        for arrival, job in zip(arrivals, jobs, strict=True)
    ]
    return Workload(
        "random",
        ids=[str(i) for i in range(len(jobs))],
        arrivals=arrivals,
        widths=[job[1] for job in jobs],
        requests=[job[2] for job in jobs],
        runs=[min(job[2], job[3]) for job in jobs],
        starts=starts if any(start is not None for start in starts) else None,
    )


def over_booked(workload: Workload, starts, ends, slots: int) -> bool:
    """Say whether at any instant more runs than there are slots."""
    changes = []
    for width, start, end in zip(workload.widths, starts, ends, strict=True):
        if start is not None and end is not None:
            changes += [(start, width), (end, -width)]
    used = 0
    for _, change in sorted(changes, key=lambda entry: (entry[0], entry[1])):
        used += change
        if used > slots:
            return True
    return False


@given(JOBS, BACKFILLING)
@settings(max_examples=300, deadline=None)
def test_counts_and_the_planner_give_the_same_starts(jobs, backfilling):
    workload = trace(jobs)
    policies = Policies(
        backfilling=backfilling,
        host_selection=HostSelection.FIRST_FIT,
        preemption=NoPreemption(),
    )
    counted = simulate_counted(workload, SLOTS, policies)
    bound = simulate_bound(workload, Site.of_processors(SLOTS), policies, checks=True)
    assert counted.starts == bound.starts
    assert counted.ends == bound.ends
    assert not over_booked(workload, counted.starts, counted.ends, SLOTS)


@given(JOBS, BACKFILLING)
@settings(max_examples=150, deadline=None)
def test_every_lease_ends_and_every_accepted_advance_starts_on_time(jobs, backfilling):
    workload = trace(jobs)
    policies = Policies(backfilling=backfilling, preemption=NoPreemption())
    result = simulate(workload, Site.of_processors(SLOTS), policies)
    assert set(result.states) <= {"DONE", "REJECTED"}
    for index, start in enumerate(result.starts):
        wanted = None if workload.starts is None else workload.starts[index]
        if wanted is None:
            assert start is not None
        else:
            assert start in (None, wanted)


SPECS = st.lists(
    st.tuples(
        st.integers(0, 8),
        st.sampled_from(["be", "be", "now", "at", "by"]),
        st.integers(1, 4),
        st.integers(1, 3),
        st.integers(1, 4),
        st.integers(1, 25),
        st.integers(1, 25),
        st.integers(0, 40),
        st.booleans(),
    ),
    min_size=1,
    max_size=20,
)


def mixed(entries) -> Workload:
    leases, at = [], 0
    for number, (gap, kind, slots, cpu, memory, request, run, ahead, spread) in enumerate(entries):
        at += gap
        terms = {
            "be": BestEffort(),
            "now": Immediate(),
            "at": Advance(at + ahead),
            "by": Deadline(at + ahead + request),
        }[kind]
        spec = LeaseSpec(
            owner="a",
            project="p",
            pool="main",
            terms=terms,
            node_count=slots,
            amounts=ResourceVector({"cpu": cpu, "memory": memory}),
            duration_ms=request,
            spread=spread,
        )
        leases.append(SimLease(f"l{number}", at, spec, run))
    return Workload.of("mixed", leases)


SITE = Site(
    tuple(
        NodeView(f"n{i}", ((0, ResourceVector({"cpu": cpu, "memory": memory})),))
        for i, (cpu, memory) in enumerate([(4, 8), (2, 4), (2, 8), (1, 2)])
    )
)


@given(SPECS, BACKFILLING, st.integers(0, 2), st.integers(0, 2))
@settings(max_examples=200, deadline=None)
def test_with_preemption_nothing_is_over_booked_and_every_lease_ends(
    entries, backfilling, suspend, resume
):
    workload = mixed(entries)
    policies = Policies(backfilling=backfilling, overheads=Overheads(suspend, resume))
    run = BoundSimulation(workload, SITE, policies, checks=True)
    run.run()
    assert set(run.states) <= {"DONE", "REJECTED"}
    for index, entry in enumerate(entries):
        start, end, arrival = run.starts[index], run.ends[index], workload.arrivals[index]
        if run.states[index] != "DONE":
            continue
        if entry[1] == "now":
            assert start == arrival
        if entry[1] == "at":
            assert start == arrival + entry[7]
        if entry[1] == "by":
            assert end <= arrival + entry[7] + entry[5]
        if not run.preemptions[index]:
            assert end == start + workload.runs[index]


@given(SPECS, BACKFILLING)
@settings(max_examples=40, deadline=None)
def test_the_same_run_twice_writes_the_same_bytes(entries, backfilling):
    policies = Policies(backfilling=backfilling)
    written = []
    for _ in range(2):
        out = io.StringIO()
        result = simulate(mixed(entries), SITE, policies, seed=3)
        result.write_csv(out)
        result.write_json(out)
        written.append(out.getvalue())
    assert written[0] == written[1]


def test_a_lease_larger_than_the_site_is_refused_and_blocks_nobody():
    workload = Workload.of(
        "two",
        [
            SimLease("huge", 0, _spec(99), 5),
            SimLease("small", 0, _spec(1), 5),
        ],
    )
    result = simulate(workload, SITE, Policies())
    assert list(result.states) == ["REJECTED", "DONE"]
    assert list(result.reasons) == ["NO_SUITABLE_NODES", ""]


def test_capacity_that_comes_later_is_used_from_then_on():
    later = NodeView("n", ((10, ResourceVector({"cpu": 1})),))
    workload = Workload.of("one", [SimLease("x", 0, _spec(1), 5)])
    result = simulate(workload, Site((later,)), Policies())
    assert (result.starts, result.ends) == ([10], [15])


def test_scores_of_two_jobs_in_a_row_are_as_computed_by_hand():
    workload = Workload(
        "hand",
        ids=["a", "b"],
        arrivals=[0, 0],
        widths=[2, 1],
        requests=[20_000, 20_000],
        runs=[20_000, 20_000],
    )
    scores = simulate(workload, Site.of_processors(2), Policies()).scores
    assert scores.all.wait_mean_ms == 10_000
    assert scores.all.bounded_slowdown_mean == 1.5
    assert scores.makespan_ms == 40_000
    assert scores.utilisation == 0.75


def _spec(slots: int) -> LeaseSpec:
    return LeaseSpec(
        owner="a",
        project="p",
        pool="main",
        terms=BestEffort(),
        node_count=slots,
        amounts=ResourceVector({"cpu": 1}),
        duration_ms=10,
    )


def longer(entries, span: int):
    """Return the same leases with everything that is asked for and run longer by a span."""
    return [
        (gap, kind, slots, cpu, memory, request + span, request + span, ahead, spread)
        for gap, kind, slots, cpu, memory, request, _, ahead, spread in entries
    ]


@given(SPECS, BACKFILLING, st.integers(1, 6))
@settings(max_examples=100, deadline=None)
def test_shutting_down_holds_the_nodes_as_a_longer_run_would(entries, backfilling, span):
    whole = longer(entries, 0)
    policies = Policies(backfilling=backfilling, preemption=NoPreemption())
    shut = BoundSimulation(
        mixed(whole), SITE, replace(policies, overheads=Overheads(shutdown_ms=span)), checks=True
    )
    shut.run()
    ran = BoundSimulation(mixed(longer(entries, span)), SITE, policies)
    ran.run()
    by = [entry[1] == "by" for entry in entries]
    if not any(by):
        assert (shut.starts, shut.ends, shut.states) == (ran.starts, ran.ends, ran.states)
    for index, entry in enumerate(whole):
        if by[index] and shut.states[index] == "DONE":
            assert shut.ends[index] <= shut.workload.arrivals[index] + entry[7] + entry[5]


OVERHEADS = st.builds(
    Overheads,
    st.integers(0, 2),
    st.integers(0, 2),
    st.integers(0, 5),
    st.sampled_from(Migration),
    st.just(1_000),
)


@given(SPECS, BACKFILLING, OVERHEADS, st.booleans(), st.integers(0, 4))
@settings(max_examples=150, deadline=None)
def test_whoever_runs_gets_its_time_and_shuts_down_and_nobody_is_stopped_meanwhile(
    entries, backfilling, overheads, parts, threshold
):
    workload = mixed(entries)
    span = overheads.shutdown_ms
    policies = Policies(
        backfilling=backfilling,
        overheads=overheads,
        partial_starts=parts,
        threshold_ms=threshold,
    )
    run = BoundSimulation(workload, SITE, policies, checks=True)
    run.run()
    assert set(run.states) <= {"DONE", "REJECTED"}
    for index, state in enumerate(run.states):
        if state == "DONE" and not run.preemptions[index] and not parts:
            assert run.ends[index] == run.starts[index] + workload.runs[index] + span
        elif state == "DONE":
            stretches = [each for each in run.stretches if each.lease == index]
            held = sum(each.end - each.start for each in stretches)
            assert held >= workload.runs[index]
            if not run.lost_ms:
                assert held <= workload.runs[index] + span
            if not run.preemptions[index] and workload.runs[index] == workload.requests[index]:
                # An early end shortly before the booked end of a part has less time for it.
                assert held == workload.runs[index] + span


def test_an_early_end_is_planned_with_as_soon_as_the_work_is_over():
    """The lease behind is promised the end of the shutdown, not of all that was asked for."""
    workload = Workload.of(
        "early",
        [
            SimLease("first", 0, replace(_spec(9), duration_ms=100), 20),
            SimLease("next", 0, _spec(9), 10),
        ],
    )
    result = simulate(workload, SITE, Policies(overheads=Overheads(shutdown_ms=5)))
    assert (result.starts, result.ends) == ([0, 25], [25, 40])
