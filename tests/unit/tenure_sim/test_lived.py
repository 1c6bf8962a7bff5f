"""What happened, as it is replayed: time suspended is no run, and what was given up stays so."""

from __future__ import annotations

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure_core.leases.lease import Advance, BestEffort, HistoryEntry, Lease, LeaseSpec, Terms
from tenure_core.leases.states import LeaseState
from tenure_core.policies.backfilling import Backfilling
from tenure_core.policies.bundle import Policies
from tenure_core.resources import ResourceVector
from tenure_sim.binding import BoundSimulation
from tenure_sim.lived import as_it_was
from tenure_sim.report_figures import summarise
from tenure_sim.simulate import simulate
from tenure_sim.site import Site
from tenure_sim.traces_json import parse_json, write_json
from tenure_sim.workload import SimLease, Workload

S = LeaseState


def spec(duration: int = 100, slots: int = 1, terms: Terms | None = None) -> LeaseSpec:
    return LeaseSpec(
        "ann", "lab", "main", terms or BestEffort(), slots, ResourceVector({"cpu": 1}), duration
    )


def lived(*steps: tuple[int, LeaseState, int]) -> Lease:
    """Return a lease that went through states at instants, in attempts."""
    history = tuple(HistoryEntry(at, state, "", "", attempt, "") for at, state, attempt in steps)
    at, state, attempt = steps[-1]
    starts = [at for at, state, _ in steps if state is S.ACTIVE]
    return Lease(
        "x",
        spec(),
        state,
        created=5,
        attempt=attempt,
        started=min(starts, default=None),
        ended=at if state in (S.DONE, S.FAILED, S.CANCELLED, S.REJECTED) else None,
        history=history,
    )


@pytest.mark.parametrize(
    ("steps", "run_ms", "cancel"),
    [
        (((10, S.STARTING, 1), (12, S.ACTIVE, 1), (42, S.DONE, 1)), 30, None),
        (
            (
                (12, S.ACTIVE, 1), (20, S.SUSPENDING, 1), (21, S.SUSPENDED, 1),
                (60, S.RESUMING, 1), (62, S.ACTIVE, 1), (70, S.STOPPING, 1), (75, S.DONE, 1),
            ),
            8 + 8,
            None,
        ),
        (((12, S.ACTIVE, 1), (50, S.QUEUED, 1), (70, S.ACTIVE, 2), (75, S.FAILED, 2)), 5, None),
        (((10, S.STARTING, 1), (13, S.DONE, 1)), 3, None),
        (((12, S.ACTIVE, 1), (12, S.DONE, 1)), 1, None),
        (((12, S.ACTIVE, 1), (500, S.DONE, 1)), 100, None),
        (((12, S.ACTIVE, 1), (30, S.CANCELLING, 1), (31, S.CANCELLED, 1)), 18, None),
        (((6, S.QUEUED, 0), (40, S.CANCELLED, 0)), 100, 40),
        (((6, S.SCHEDULED, 1), (40, S.FAILED, 1)), 100, 40),
        (((12, S.ACTIVE, 1), (50, S.QUEUED, 1), (70, S.CANCELLED, 1)), 100, 70),
        (((6, S.REJECTED, 0),), 100, None),
        (((6, S.QUEUED, 0),), 100, None),
        (((12, S.ACTIVE, 1),), 100, None),
    ],
)  # fmt: skip
def test_only_running_counts_as_run_and_who_left_unserved_leaves_again(steps, run_ms, cancel):
    assert as_it_was(lived(*steps)) == SimLease("x", 5, spec(), run_ms, cancel)


def test_what_is_given_up_leaves_the_queue_its_booking_or_its_run():
    """One node; the lease given up while it waited may run for a while under another policy."""
    site = Site.of_nodes(1, ResourceVector({"cpu": 1}))
    leases = [
        SimLease("holds", 0, spec(50), 50),
        SimLease("given-up", 1, spec(100), 100, cancel=30),
        SimLease("next", 2, spec(20), 20),
        SimLease("booked", 3, spec(10, terms=Advance(60)), 10, cancel=40),
        SimLease("late", 41, spec(30, terms=Advance(70)), 30),
    ]
    result = simulate(Workload.of("w", leases), site, Policies())
    outcome = zip(result.states, result.starts, result.ends, strict=True)
    told = dict(zip(result.workload.ids, outcome, strict=True))
    assert told == {
        "holds": ("DONE", 0, 50),
        "given-up": ("CANCELLED", None, 30),
        "next": ("DONE", 50, 70),
        "booked": ("CANCELLED", None, 40),
        "late": ("DONE", 70, 100),
    }
    wide = Site.of_nodes(2, ResourceVector({"cpu": 1}))
    result = simulate(Workload.of("w", leases), wide, Policies())
    assert (result.states[1], result.starts[1], result.ends[1]) == ("CANCELLED", 1, 30)
    assert list(result.rows())[1][11] is None
    figures = summarise(result, wide)
    used = 50 + 29 + 20 + 30
    assert figures.utilisation == round(used / (2 * 100), 6)
    assert figures.all.done == 3


def test_a_trace_of_ours_keeps_who_gave_up():
    leases = [SimLease("a", 0, spec(), 7, cancel=3), SimLease("b", 1, spec(), 100)]
    out = io.StringIO()
    write_json(Workload.of("w", leases), out)
    read, _ = parse_json("w", out.getvalue().splitlines())
    assert (read.cancels, read.runs) == ([3, None], [7, 100])
    assert read.first(1).cancels == [3]


ENTRIES = st.lists(
    st.tuples(
        st.integers(0, 8),
        st.integers(1, 3),
        st.integers(1, 20),
        st.one_of(st.none(), st.integers(0, 25)),
        st.one_of(st.none(), st.none(), st.integers(0, 20)),
    ),
    min_size=1,
    max_size=15,
)


@given(ENTRIES, st.sampled_from([Backfilling.OFF, Backfilling.EASY, Backfilling.CONSERVATIVE]))
@settings(max_examples=150, deadline=None)
def test_nobody_outlives_their_cancellation_and_everybody_else_ends(entries, backfilling):
    leases, at = [], 0
    for number, (gap, slots, duration, cancel, ahead) in enumerate(entries):
        at += gap
        terms = None if ahead is None else Advance(at + ahead)
        given_up = None if cancel is None else at + cancel
        leases.append(SimLease(f"l{number}", at, spec(duration, slots, terms), duration, given_up))
    site = Site.of_nodes(3, ResourceVector({"cpu": 1}))
    policies = Policies(backfilling=backfilling)
    run = BoundSimulation(Workload.of("w", leases), site, policies, checks=True)
    run.run()
    for index, lease in enumerate(leases):
        assert run.states[index] in ("DONE", "REJECTED", "CANCELLED")
        if run.states[index] == "CANCELLED":
            assert run.ends[index] == lease.cancel
        elif run.states[index] == "DONE" and lease.cancel is not None:
            assert run.ends[index] <= lease.cancel
