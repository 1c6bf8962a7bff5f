"""What holds for every workload: random pools and leases, lived through to the end."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.tenure_core.planning.pool_in_time import Pool, node, spec

from tenure_core.leases.lease import Advance, BestEffort, Deadline, Immediate
from tenure_core.leases.states import LeaseState
from tenure_core.policies.backfilling import Backfilling
from tenure_core.policies.bundle import Overheads, Policies
from tenure_core.policies.placement import Greedy, HostSelection, RoundRobin
from tenure_core.policies.preemption import NoPreemption

NODES = st.lists(st.tuples(st.integers(1, 4), st.integers(2, 8)), min_size=1, max_size=4).map(
    lambda sizes: [node(f"n{i}", cpu, memory) for i, (cpu, memory) in enumerate(sizes)]
)
TERMS = st.one_of(
    st.just(("be", 0)),
    st.just(("be", 0)),
    st.just(("now", 0)),
    st.tuples(st.just("at"), st.integers(0, 40)),
    st.tuples(st.just("by"), st.integers(5, 80)),
)
LEASES = st.lists(
    st.tuples(
        TERMS,
        st.integers(0, 12),  # gap to the arrival before
        st.integers(1, 4),  # slots
        st.integers(1, 3),  # cores
        st.integers(1, 4),  # memory
        st.integers(1, 25),  # duration
        st.integers(1, 25),  # real duration
        st.booleans(),  # preemptible
        st.booleans(),  # spread
    ),
    min_size=1,
    max_size=14,
)
BACKFILLING = st.sampled_from(
    [
        Backfilling.OFF,
        Backfilling.EASY,
        Backfilling.intermediate(2),
        Backfilling.CONSERVATIVE,
    ]
)
POLICIES = st.builds(
    Policies,
    backfilling=BACKFILLING,
    host_selection=st.sampled_from([*HostSelection, Greedy(), RoundRobin()]),
    overheads=st.builds(Overheads, st.integers(0, 2), st.integers(0, 2)),
    threshold_ms=st.integers(0, 3),
)


def live(nodes, leases, policies) -> Pool:
    """Run the workload to its end."""
    pool = Pool(nodes, policies)
    at = 0
    for number, lease in enumerate(leases):
        (kind, when), gap, slots, cpu, memory, duration, real, preemptible, spread = lease
        at += gap
        if at > pool.now:
            pool.run(at)
        terms = {
            "be": BestEffort(),
            "now": Immediate(),
            "at": Advance(at + when),
            "by": Deadline(at + when),
        }[kind]
        what = spec(
            terms,
            nodes=slots,
            cpu=cpu,
            memory=memory,
            duration=duration,
            preemptible=preemptible,
            spread=spread,
        )
        pool.submit(f"l{number}", what, real=real)
        if number == len(leases) - 1 or leases[number + 1][1]:
            pool.cycle()
    pool.run(at + 3000)
    return pool


@given(NODES, LEASES, POLICIES)
@settings(max_examples=250, deadline=None)
def test_every_lease_that_fits_ends_and_every_accepted_booking_is_kept(nodes, leases, policies):
    pool = live(nodes, leases, policies)
    stuck = {
        name
        for name in pool.leases
        if not (pool.queued.get(name) and pool.queued[name].reason == "NO_SUITABLE_NODES")
    }
    if policies.backfilling.passing:
        assert not stuck
    at = 0
    for number, lease in enumerate(leases):
        (kind, when), gap = lease[0], lease[1]
        at += gap
        name = f"l{number}"
        if kind in ("at", "now") and name not in pool.rejected:
            assert pool.starts[name] == [at + when]
        if kind == "by" and name not in pool.rejected:
            assert pool.ends[name] <= at + when
    for name, state in pool.ended.items():
        assert (state is LeaseState.DONE) == (name not in pool.rejected)


@given(NODES, LEASES, POLICIES)
@settings(max_examples=250, deadline=None)
def test_without_preemption_a_promise_only_moves_forward_and_is_kept(nodes, leases, policies):
    calm = Policies(
        backfilling=policies.backfilling,
        host_selection=policies.host_selection,
        preemption=NoPreemption(),
    )
    pool = live(nodes, leases, calm)
    for name, starts in pool.promised.items():
        assert starts == sorted(starts, reverse=True)
        assert pool.starts[name] == [starts[-1]]


@given(NODES, LEASES, POLICIES)
@settings(max_examples=60, deadline=None)
def test_the_same_workload_gives_the_same_history(nodes, leases, policies):
    first, second = live(nodes, leases, policies), live(nodes, leases, policies)
    assert (first.starts, first.ends, first.rejected) == (
        second.starts,
        second.ends,
        second.rejected,
    )
