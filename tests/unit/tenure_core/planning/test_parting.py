"""Leases that begin although they cannot run to their end, against a model that tries every end."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.tenure_core.planning.pool_in_time import Pool, node, spec
from tests.unit.tenure_core.slots.naive_slots import NaiveSlots

from tenure_core.leases.lease import Advance
from tenure_core.leases.states import LeaseState
from tenure_core.planning.planner import plan
from tenure_core.planning.snapshot import LeaseView, ReservationKind, ReservationView, Snapshot
from tenure_core.policies.backfilling import Backfilling
from tenure_core.policies.bundle import Overheads, Policies
from tenure_core.policies.preemption import NoPreemption
from tenure_core.resources import ResourceVector
from tenure_core.slots.query import Demand
from tenure_core.timebase import FOREVER, Interval

PARTS = Policies(partial_starts=True, preemption=NoPreemption(), backfilling=Backfilling.EASY)
EVER = 10**6


def test_a_lease_runs_until_what_is_booked_and_goes_on_behind_it():
    pool = Pool([node("n", 1, 4)], PARTS)
    pool.submit("booked", spec(Advance(6), duration=5))
    pool.submit("long", spec(duration=20))
    pool.cycle()
    assert pool.starts["long"] == [0]
    kinds = [(row.kind.value, row.interval) for row in pool.table.of_lease("long")]
    assert kinds == [("RUN", Interval(0, 6)), ("RESIDENT", Interval(6, FOREVER))]
    pool.run(60)
    assert (pool.starts, pool.ends) == (
        {"long": [0, 11], "booked": [6]},
        {"booked": 11, "long": 25},
    )


def test_a_run_is_whole_again_when_what_was_in_its_way_goes():
    pool = Pool([node("n", 1, 4)], PARTS)
    pool.submit("booked", spec(Advance(6), duration=5))
    pool.submit("long", spec(duration=20))
    pool.cycle()
    pool.run(3)
    pool.end("booked")
    pool.cycle()
    pool.run(30)
    assert (pool.starts["long"], pool.ends["long"]) == ([0], 20)


def test_no_part_is_shorter_than_the_threshold_nor_is_what_is_left():
    for at, threshold, starts in ((6, 7, [11]), (6, 6, [0]), (15, 6, [0]), (18, 6, [0])):
        pool = Pool([node("n", 1, 4)], replace(PARTS, threshold_ms=threshold))
        pool.submit("booked", spec(Advance(at), duration=5))
        pool.submit("long", spec(duration=20))
        pool.cycle()
        pool.run(60)
        assert pool.starts["long"][:1] == starts, (at, threshold)
        if at == 18:
            assert pool.starts["long"] == [0, 23] and pool.ends["long"] == 23 + 6


def test_without_the_policy_nobody_begins_in_vain():
    pool = Pool([node("n", 1, 4)], replace(PARTS, partial_starts=False))
    pool.submit("booked", spec(Advance(6), duration=5))
    pool.submit("long", spec(duration=20))
    pool.cycle()
    pool.run(60)
    assert pool.starts["long"] == [11]


ROWS = st.lists(
    st.tuples(
        st.integers(0, 2), st.integers(0, 30), st.integers(1, 20), st.integers(0, 2),
        st.integers(0, 3),
    ),
    max_size=8,
)  # fmt: skip


@given(
    ROWS,
    st.integers(1, 4),
    st.booleans(),
    st.integers(1, 2),
    st.integers(1, 3),
    st.integers(2, 25),
    st.builds(Overheads, st.integers(0, 2), st.integers(0, 2), st.integers(0, 2)),
    st.integers(0, 6),
)
@settings(max_examples=200, deadline=None)
def test_a_part_is_as_long_as_any_could_be(
    booked, count, spread, cpu, memory, duration, overheads, threshold
):
    policies = replace(PARTS, overheads=overheads, threshold_ms=threshold)
    naive = NaiveSlots({f"n{i}": node(f"n{i}", 2, 4) for i in range(3)})
    for number, (place, start, length, cores, bytes_) in enumerate(booked):
        amounts = ResourceVector({"cpu": cores * 1000, "memory": bytes_})
        span = Interval(start, start + length)
        row = ReservationView(
            f"r{number}", "", 0, 0, f"n{place}", span, amounts, ReservationKind.HOLD
        )
        naive.rows[row.id] = row
        if naive.over_capacity():
            del naive.rows[row.id]
    what = spec(nodes=count, cpu=cpu, memory=memory, duration=duration, spread=spread)
    kept = ResourceVector({"memory": memory})
    view = LeaseView("x", what, LeaseState.PENDING, 0, 0, 0, duration, kept)
    snapshot = Snapshot(0, tuple(naive.nodes.values()), tuple(naive.rows.values()), (view,))
    whole = Demand(what.amounts, count, spread=spread)
    rows = [
        operation.row()
        for group in plan(snapshot, policies).groups
        for operation in group.operations
    ]
    if naive.fits(whole, 0, duration + overheads.shutdown_ms):
        assert {row.kind for row in rows} == {ReservationKind.RUN}
        return
    least = max(threshold, overheads.suspend_ms + overheads.resume_ms, 1)
    stays = Demand(kept, count, spread=spread)
    longest = None
    for run in range(least, duration - least + 1):
        end = run + overheads.suspend_ms
        slots = sum(
            min(naive.slots(name, whole, 0, end), naive.slots(name, stays, end, EVER))
            for name in naive.nodes
        )
        if slots >= count:
            longest = run
    now = [row for row in rows if row.kind is ReservationKind.RUN and row.interval.start == 0]
    assert {row.interval.end for row in now} == (set() if longest is None else {longest})
    if longest is not None:
        for row in rows:
            naive.rows[row.id] = replace(
                row, interval=Interval(row.interval.start, min(row.interval.end, EVER))
            )
        assert not naive.over_capacity()
        kinds = Counter(row.kind for row in rows)
        assert kinds[ReservationKind.RUN] == kinds[ReservationKind.RESIDENT] == count
