"""When a lease would start if it asked for less: what the planner itself would say."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.tenure_core.planning.pool_in_time import Pool, node, spec

from tenure_core.leases.lease import Advance, Deadline
from tenure_core.planning.plan import Schedule
from tenure_core.planning.planner import plan
from tenure_core.planning.prospects import Prospects
from tenure_core.planning.snapshot import Blocked
from tenure_core.policies.backfilling import Backfilling
from tenure_core.policies.bundle import Policies


def prospects(pool: Pool, lease: str) -> Prospects:
    found = Prospects.of(pool.snapshot(), pool.policies, lease)
    assert found is not None
    return found


def two_waiting(backfilling: Backfilling = Backfilling.EASY) -> Pool:
    """Two nodes, one busy until 10; the head is promised both then, `last` waits behind it."""
    pool = Pool([node("a"), node("b")], Policies(backfilling=backfilling))
    pool.submit("runs", spec(duration=10))
    pool.submit("head", spec(nodes=2, duration=5))
    pool.submit("last", spec(nodes=2, duration=20))
    pool.cycle()
    return pool


def test_fewer_slots_pass_only_where_nobody_promised_is_delayed():
    found = prospects(two_waiting(), "last")
    assert found.start_of(2, 20) == 15
    assert found.start_of(1, 20) == 15
    assert found.start_of(1, 10) == 0
    assert found.start_of(3, 10) is None


def test_with_backfilling_off_nothing_passes_whatever_its_size():
    found = prospects(two_waiting(Backfilling.OFF), "last")
    assert found.start_of(1, 1) == 15
    assert found.start_of(2, 20) == 15


def test_a_promised_lease_is_asked_about_without_its_promise():
    found = prospects(two_waiting(), "head")
    assert found.start_of(2, 5) == 10
    assert found.start_of(1, 5) == 0


def test_terms_that_name_a_time_are_kept():
    pool = Pool([node("a"), node("b")])
    pool.submit("runs", spec(duration=10))
    held = Blocked("QUOTA_EXCEEDED", "too much")
    pool.submit("at", spec(Advance(5), nodes=2, duration=5), blocked=held)
    pool.submit("by", spec(Deadline(12), nodes=2, duration=2), blocked=held)
    pool.cycle()
    assert prospects(pool, "at").start_of(2, 5) is None
    assert prospects(pool, "at").start_of(1, 5) == 5
    assert prospects(pool, "by").start_of(2, 2) == 10
    assert prospects(pool, "by").start_of(2, 3) is None


def test_a_lease_that_runs_or_is_unknown_has_none():
    pool = two_waiting()
    assert Prospects.of(pool.snapshot(), pool.policies, "runs") is None
    assert Prospects.of(pool.snapshot(), pool.policies, "nobody") is None


_SIZES = st.tuples(st.integers(1, 4), st.integers(1, 20))


@settings(deadline=None, max_examples=150)
@given(st.lists(_SIZES, min_size=3, max_size=9), _SIZES, st.sampled_from(["off", "easy", "cons"]))
def test_what_is_said_to_start_now_is_what_the_planner_starts_now(sizes, changed, backfilling):
    policies = Policies(backfilling=Backfilling.parse(backfilling))
    pool = Pool([node(name) for name in "abcd"], policies)
    for number, (nodes, duration) in enumerate(sizes):
        pool.submit(f"w{number}", spec(nodes=nodes, duration=duration))
        if number == 1:
            pool.cycle()
    last = f"w{len(sizes) - 1}"
    snapshot = pool.snapshot()
    count, duration = changed
    asked = tuple(
        replace(
            view,
            spec=replace(view.spec, node_count=count, duration_ms=duration),
            remaining_ms=duration,
        )
        if view.id == last
        else view
        for view in snapshot.leases
    )
    decision = plan(replace(snapshot, leases=asked), pool.policies).decision_of(last)
    found = Prospects.of(snapshot, pool.policies, last)
    assert found is not None
    planned_now = isinstance(decision, Schedule) and decision.interval.start == snapshot.now
    assert (found.start_of(count, duration) == snapshot.now) is planned_now
