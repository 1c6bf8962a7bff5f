"""Fleets: the target, the bookings it must not miss, the caps it must not pass."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.unit.tenure_core.autoscaling.fleet_builder import (
    BIG,
    CONFIG,
    GOING,
    SMALL,
    TIMES,
    UNDAMPED,
    WIDE,
    S,
    fleets,
    lease,
    node,
    orders,
)

from tenure_core.autoscaling.booked_demand import (
    NodeBooking,
    next_booking_in_ms,
)
from tenure_core.autoscaling.disruption import DisruptionBudget, TokenBucket
from tenure_core.autoscaling.fleet import FleetInputs, FleetState, decide_fleet, within_total
from tenure_core.autoscaling.fleet_values import FleetConfig, FleetNode, NodeOrder
from tenure_core.autoscaling.future_node import (
    NodeAction,
    NodeState,
)
from tenure_core.autoscaling.provider_errors import Backoff
from tenure_core.autoscaling.queue_packing import WaitingLease
from tenure_core.errors import Invalid
from tenure_core.resources import ResourceVector
from tenure_core.timebase import Interval


def test_scale_from_zero_and_to_zero() -> None:
    """A queue without any node buys one; an empty queue lets the last idle node go."""
    assert orders([], waiting=[lease("a")]) == [("BOOT", "", "target")]
    assert orders([node("n", since_ms=700 * S)]) == [("TERMINATE", "n", "idle_no_booking")]


def test_sleeping_machines_come_before_new_ones() -> None:
    """The quickest means first: a resume takes a quarter of a boot here."""
    found = orders([node("n", NodeState.SUSPENDED)], waiting=[lease("a"), lease("b")])

    assert found == [("RESUME", "n", "target"), ("BOOT", "", "target")]


def test_an_idle_machine_that_the_queue_will_use_stays() -> None:
    """What would start on it now counts as demand, though nothing runs on it yet."""
    idle = node("n", since_ms=10**7)

    assert orders([idle], waiting=[lease("a")]) == []


def test_p12_an_unknown_queue_removes_nothing() -> None:
    """Unreachable is not empty: bookings still count, removals wait."""
    nodes = [node("n", since_ms=10**7), node("s", NodeState.SUSPENDED, since_ms=10**8)]
    inputs = FleetInputs(0, nodes, waiting=None)
    decision = decide_fleet(WIDE, inputs, (SMALL,), CONFIG)

    assert (decision.orders, decision.reason) == ((), "QUEUE_UNKNOWN")


def test_p22_an_incomplete_listing_orders_nothing() -> None:
    """Before everything is seen nothing is done."""
    inputs = FleetInputs(0, [], waiting=[lease("a")], listing_complete=False)

    assert decide_fleet(WIDE, inputs, (SMALL,), CONFIG).orders == ()


def test_a_gang_buys_all_its_machines_or_none() -> None:
    """Eleven machines do not fit under a cap of ten, so the next lease gets its own."""
    found = orders([], waiting=[lease("gang", nodes=11), lease("one")])

    assert found == [("BOOT", "", "target")]


def test_a_machine_under_notice_counts_no_more() -> None:
    """A spot machine that will be taken back is replaced before it is gone."""
    nodes = [node("s", busy=True, leaves_in_ms=90 * S)]

    found = orders(nodes, config=replace(CONFIG, min_nodes={"small": 1}))

    assert found == [("BOOT", "", "target")]


def test_warm_machines_are_kept_asleep() -> None:
    """The warm pool is suspended instead of terminated, and not terminated afterwards."""
    config = replace(CONFIG, warm={"small": 1})
    running = [node("n", since_ms=10**7)]
    asleep = [node("n", NodeState.SUSPENDED, since_ms=10**8)]

    assert orders(running, config=config) == [("SUSPEND", "n", "idle_no_booking")]
    assert orders(asleep, config=config) == []


def test_a_machine_that_cannot_sleep_is_kept_until_it_may_be_terminated() -> None:
    """The idle time that would suspend another type does nothing to it."""
    fixed = replace(SMALL, can_suspend=False)

    assert orders([node("n", since_ms=61 * S)], types=(fixed,)) == []
    assert orders([node("n", since_ms=601 * S)], types=(fixed,)) == [
        ("TERMINATE", "n", "idle_no_booking")
    ]


def test_headroom_and_minimum_run_without_demand() -> None:
    """Both are part of the target, within the maximum."""
    config = replace(CONFIG, headroom={"small": 2}, min_nodes={"small": 1})

    assert len(orders([], config=config)) == 2


def test_p18_a_type_in_back_off_is_passed_over_for_another() -> None:
    """A stock-out of the cheapest type does not stop the fleet."""
    shut = replace(SMALL, backoff=Backoff(1, until_ms=10**9))
    dear = replace(SMALL, name="dear", price_micros=900)
    inputs = FleetInputs(0, [], waiting=[lease("a")])

    decision = decide_fleet(WIDE, inputs, (shut, dear), CONFIG)

    assert [order.type_name for order in decision.orders] == ["dear"]


def test_p27_a_fleet_decision_says_what_its_target_is_made_of() -> None:
    """Queue, bookings, damping and the rule's verdict on every node are kept with it."""
    nodes = [node("n", busy=True), node("i", since_ms=10**7)]
    decision = decide_fleet(WIDE, FleetInputs(0, nodes, (), [lease("a")]), (SMALL,), CONFIG)
    target = decision.targets["small"]

    assert (target.queue, target.booked.peak, target.size) == (2, 0, 2)
    assert decision.reasons == {"KEEP:work_in_flight": 1, "TERMINATE:idle_no_booking": 1}
    assert decision.orders == ()


def test_p28_budgets_and_rates_limit_what_goes_and_comes() -> None:
    """One removal by budget, three creations by the bucket, whatever is wanted."""
    idle = [node(f"n{k}", since_ms=10**7) for k in range(5)]
    budget = replace(CONFIG, budgets=(DisruptionBudget(count=1),))
    slow = FleetState(creations=TokenBucket(1, 3), removals=TokenBucket(60, 20))

    assert len(orders(idle, config=budget)) == 1
    assert len(orders([], waiting=[lease(str(k)) for k in range(9)], state=slow)) == 3


def test_a_configuration_that_cannot_work_is_refused() -> None:
    """Minima above the maximum, or of unknown types, start nothing."""
    bad = FleetConfig(max_nodes=1, min_nodes={"small": 2, "gone": 1}, headroom={"small": -1})

    with pytest.raises(Invalid) as caught:
        bad.checked([SMALL])

    assert len(caught.value.violations) == 3


spans = st.tuples(st.integers(0, 900), st.integers(1, 300)).map(
    lambda pair: Interval(pair[0] * S, (pair[0] + pair[1]) * S)
)
calendars = st.lists(st.builds(NodeBooking, st.integers(0, 9).map(str), spans), max_size=12)
queues = st.none() | st.lists(
    st.builds(
        WaitingLease, st.uuids().map(str), st.integers(1, 6),
        st.integers(1, 9000).map(lambda cpu: ResourceVector({"cpu": cpu})),
        st.booleans(), st.booleans(),
    ),
    max_size=12,
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(fleets, calendars, queues, st.integers(2, 14), st.integers(0, 2), st.integers(0, 600))
def test_a_fleet_keeps_its_promises_whatever_it_sees(
    nodes: list[FleetNode], calendar: list[NodeBooking], queue: list[WaitingLease] | None,
    cap: int, minimum: int, now_s: int,
) -> None:  # fmt: skip
    """min <= target <= max; the cap at every instant; no booking missed for a removal."""
    config = FleetConfig(max_nodes=cap, min_nodes={"small": minimum}, damping=UNDAMPED)
    inputs = FleetInputs(now_s * S, nodes, calendar, queue)
    decision = decide_fleet(WIDE, inputs, (SMALL, BIG), config)
    by_id = {node.node_id: node for node in nodes}
    gaps = next_booking_in_ms(calendar, now_ms=now_s * S, horizon_ms=config.horizon_ms)

    for name, target in decision.targets.items():
        assert config.min_nodes.get(name, 0) <= target.size <= cap
    assert sum(target.size for target in decision.targets.values()) <= cap
    exist = sum(node.exists for node in nodes)
    boots = sum(order.action is NodeAction.BOOT for order in decision.orders)
    assert boots <= max(0, cap - exist)
    told = Counter(order.node_id for order in decision.orders if order.node_id)
    assert not told or max(told.values()) == 1
    for order in decision.orders:
        if order.action in GOING:
            _may_go(order, by_id[order.node_id], gaps)
    assert decision == decide_fleet(WIDE, inputs, (SMALL, BIG), config)


def _may_go(order: NodeOrder, gone: FleetNode, gaps: dict[str, int]) -> None:
    assert not gone.busy and not gone.removing
    gap = gaps.get(gone.node_id)
    if order.action is NodeAction.TERMINATE:
        assert gap is None
    assert gap is None or gap > TIMES.trip_ms


@settings(max_examples=100, deadline=None)
@given(fleets, st.lists(st.builds(NodeBooking, st.integers(0, 9).map(str), spans), max_size=8))
def test_p14_a_removal_is_not_followed_by_an_addition(
    nodes: list[FleetNode], calendar: list[NodeBooking]
) -> None:
    """Deciding again on the state after the orders buys nothing for want of what was let go."""
    quiet = [n for n in nodes if n.state is not NodeState.STARTING]
    first = decide_fleet(WIDE, FleetInputs(0, quiet, calendar, []), (SMALL, BIG), CONFIG)
    after = {node.node_id: node for node in quiet}
    for order in first.orders:
        if order.action in GOING and order.node_id:
            state = {"SUSPEND": NodeState.SUSPENDED, "TERMINATE": NodeState.ABSENT}
            after[order.node_id] = replace(
                after[order.node_id], state=state[order.action.value], since_ms=0, removing=""
            )
    gone = {o.node_id for o in first.orders if o.action in GOING}
    made_room = any(o.reason == "makes_room_for_booking" for o in first.orders)
    again = decide_fleet(
        WIDE, FleetInputs(1, list(after.values()), calendar, []), (SMALL, BIG), CONFIG
    )

    undone = [o for o in again.orders if o.node_id in gone and o.action not in GOING]
    assert made_room or not undone


def test_targets_together_keep_to_the_maximum_minima_first() -> None:
    """Two types that each want all get their minima, then the first its wish."""
    config = FleetConfig(max_nodes=5, min_nodes={"big": 2}, damping=UNDAMPED)
    waiting = [lease(str(k)) for k in range(9)]
    inputs = FleetInputs(0, [], waiting=waiting)
    targets = decide_fleet(WIDE, inputs, (SMALL, BIG), config).targets
    wishes = {name: replace(target, size=5) for name, target in targets.items()}

    assert {n: t.size for n, t in within_total(wishes, config).items()} == {"small": 3, "big": 2}
