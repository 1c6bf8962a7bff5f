"""Fleets: the target, the bookings it must not miss, the caps it must not pass."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from tenure_core.autoscaling.booked_demand import (
    NodeBooking,
    booked_demand,
    earliest_start_ms,
    next_booking_in_ms,
    peak_nodes,
)
from tenure_core.autoscaling.disruption import DisruptionBudget, TokenBucket
from tenure_core.autoscaling.fleet import FleetInputs, FleetState, decide_fleet, within_total
from tenure_core.autoscaling.fleet_values import FleetConfig, FleetNode, NodeOrder
from tenure_core.autoscaling.future_node import (
    BookedNode,
    NodeAction,
    NodeState,
    NodeTimes,
    StartKind,
    decide_node,
)
from tenure_core.autoscaling.group_config import Damping
from tenure_core.autoscaling.lead_times import boot_lead_ms
from tenure_core.autoscaling.machine_types import MachineType
from tenure_core.autoscaling.provider_errors import Backoff
from tenure_core.autoscaling.queue_packing import WaitingLease
from tenure_core.errors import Invalid
from tenure_core.resources import ResourceVector
from tenure_core.timebase import Interval

S = 1000
TIMES = NodeTimes(
    boot_p95_ms=120 * S, resume_p95_ms=30 * S, suspend_p95_ms=20 * S, guard_ms=10 * S,
    idle_suspend_after_ms=60 * S, idle_terminate_after_ms=600 * S,
    suspended_terminate_after_ms=3600 * S,
)  # fmt: skip
CPU4 = ResourceVector({"cpu": 4000})
SMALL = MachineType("small", CPU4, price_micros=100, times=TIMES, launches_per_minute=6)
UNDAMPED = Damping(in_window_ms=0, in_cooldown_ms=0)
CONFIG = FleetConfig(max_nodes=10, damping=UNDAMPED)
WIDE = FleetState(creations=TokenBucket(6000, 100), removals=TokenBucket(6000, 100))
GOING = (NodeAction.SUSPEND, NodeAction.TERMINATE)


def node(name: str, state: NodeState = NodeState.RUNNING, **more: object) -> FleetNode:
    """Return a node of the small type, idle unless told otherwise."""
    free = ResourceVector() if more.get("busy") else CPU4
    return replace(FleetNode(name, "small", state, free=free), **more)  # type: ignore[arg-type]


def lease(name: str, nodes: int = 1, cpu: int = 4000, **more: bool) -> WaitingLease:
    """Return a waiting lease of `nodes` times `cpu` millicores."""
    return WaitingLease(name, nodes, ResourceVector({"cpu": cpu}), **more)


def orders(
    nodes: list[FleetNode], *, bookings: list[NodeBooking] | None = None,
    waiting: list[WaitingLease] | None = None, config: FleetConfig = CONFIG,
    types: tuple[MachineType, ...] = (SMALL,), now_ms: int = 0, state: FleetState = WIDE,
) -> list[tuple[str, str, str]]:  # fmt: skip
    """Decide once and return (action, node, reason)."""
    inputs = FleetInputs(now_ms, nodes, bookings or [], waiting or [])
    found = decide_fleet(state, inputs, types, config).orders
    return [(order.action.value, order.node_id, order.reason) for order in found]


AFTER = {
    NodeAction.BOOT: (NodeState.STARTING, StartKind.BOOT),
    NodeAction.RESUME: (NodeState.STARTING, StartKind.RESUME),
    NodeAction.SUSPEND: (NodeState.SUSPENDED, None),
    NodeAction.TERMINATE: (NodeState.ABSENT, None),
}
"""What an order makes of a node."""

gaps = st.none() | st.integers(-10, 400).map(lambda seconds: seconds * S)
booked_nodes = st.builds(
    BookedNode, st.sampled_from(NodeState), st.integers(0, 10**7), st.booleans(),
    st.sampled_from(StartKind), gaps,
)  # fmt: skip


@given(booked_nodes)
def test_p25_the_rule_never_lets_a_node_go_that_a_booking_could_miss(found: BookedNode) -> None:
    """Within the round trip nothing goes; with a booking in sight nothing is terminated."""
    action = decide_node(found, TIMES).action
    if found.next_booking_in_ms is not None:
        assert action is not NodeAction.TERMINATE
        if found.next_booking_in_ms <= TIMES.trip_ms:
            assert action not in GOING
    if found.busy and found.state is NodeState.RUNNING:
        assert action is NodeAction.KEEP


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
    inputs = FleetInputs(0, [node("n", since_ms=10**7)], waiting=None)
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


def test_a_booked_node_boots_at_its_lead_and_not_before() -> None:
    """The lead is the measured boot time and the guard."""
    at = 1000 * S
    booked = [NodeBooking("n", Interval(at, at + 60 * S))]
    absent = [node("n", NodeState.ABSENT)]
    lead = TIMES.cold_ms

    assert orders(absent, bookings=booked, now_ms=at - lead - 1) == []
    assert orders(absent, bookings=booked, now_ms=at - lead) == [("BOOT", "n", "lead_reached")]


@given(st.integers(1, 30), st.integers(1, 600))
def test_p26_the_lead_grows_with_machines_and_launch_rate(machines: int, rate: int) -> None:
    """lead = cold + ceil((m - 1) / r), whole launches at the provider's rate."""
    kind = replace(SMALL, launches_per_minute=rate)
    last_launch = (machines - 1) * 60_000 / rate
    lead = boot_lead_ms(kind, machines)

    assert lead - 1 < TIMES.cold_ms + last_launch <= lead


def test_p26_many_booked_nodes_start_earlier_than_one() -> None:
    """Ten machines at six a minute need ninety seconds more than one."""
    at = 1000 * S
    booked = [NodeBooking(f"n{k}", Interval(at, at + 60 * S)) for k in range(10)]
    absent = [node(f"n{k}", NodeState.ABSENT) for k in range(10)]
    early = at - TIMES.cold_ms - 90 * S

    assert booked_demand(
        booked, SMALL, ready_nodes=frozenset(), now_ms=early
    ).lead_ms == TIMES.cold_ms + 90 * S  # fmt: skip
    assert len(orders(absent, bookings=booked, now_ms=early)) == 10
    assert orders(absent, bookings=booked, now_ms=early - 60 * S) == []


def test_p26_admission_is_told_the_earliest_start() -> None:
    """What runs already needs no lead; the rest needs that of its number."""
    assert earliest_start_ms(SMALL, 3, ready=3, now_ms=7) == 7
    assert earliest_start_ms(SMALL, 3, ready=1, now_ms=7) == 7 + TIMES.cold_ms + 10 * S


def test_p26_an_overdue_start_inside_the_lead_is_replaced() -> None:
    """A boot that takes twice its p95 is given up while there is time for another."""
    booked = [NodeBooking("n", Interval(130 * S, 200 * S))]
    starting = node("n", NodeState.STARTING, starting=StartKind.BOOT, since_ms=241 * S)

    found = orders([starting], bookings=booked)

    assert found[0] == ("REPLACE", "n", "start_deadline")


def test_p25_idle_machines_make_room_for_a_booked_one_at_the_cap() -> None:
    """A full fleet of unbooked idle nodes must not make a booking late."""
    booked = [NodeBooking("b", Interval(100 * S, 200 * S))]
    nodes = [node("b", NodeState.ABSENT), node("x", since_ms=5 * S), node("y", since_ms=9 * S)]

    found = orders(nodes, bookings=booked, config=replace(CONFIG, max_nodes=2))

    assert found == [("TERMINATE", "y", "makes_room_for_booking")]


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


node_states = st.builds(
    FleetNode,
    node_id=st.integers(0, 9).map(str),
    type_name=st.sampled_from(["small", "big"]),
    state=st.sampled_from(NodeState),
    since_ms=st.integers(0, 10**7),
    busy=st.booleans(),
    starting=st.sampled_from(StartKind),
    free=st.sampled_from([ResourceVector(), CPU4]),
    leaves_in_ms=st.none() | st.just(1000),
    removing=st.sampled_from(["", "", "idle"]),
)
fleets = st.lists(node_states, max_size=10, unique_by=lambda node: node.node_id)
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
BIG = MachineType("big", ResourceVector({"cpu": 8000}), 150, times=TIMES, can_suspend=False)


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
    assert not gone.busy or gone.state is NodeState.SUSPENDED
    assert not gone.removing
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


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(30, 60), st.integers(0, 3)), min_size=1, max_size=6),
    st.lists(st.integers(1, 120), min_size=40, max_size=40),
)
def test_p26_bookings_admitted_earlier_than_the_lead_are_complete_at_their_start(
    bookings: list[tuple[int, int]], boots_s: list[int]
) -> None:
    """A closed loop of ten seconds: boots take at most their p95, launches keep to the rate."""
    calendar, nodes = [], {}
    for place, (start, count) in enumerate(bookings):
        for rank in range(count + 1):
            name = f"b{place}-{rank}"
            calendar.append(NodeBooking(name, Interval(start * 10 * S, (start * 10 + 60) * S)))
            nodes[name] = node(name, NodeState.ABSENT)
    config = replace(CONFIG, max_nodes=60)
    ready_at: dict[str, int] = {}
    durations = iter(boots_s * 3)
    queue_until = 0
    state = WIDE
    for now in range(0, 700 * S, 10 * S):
        for name, found in nodes.items():
            up = found.state is NodeState.STARTING and ready_at[name] <= now
            nodes[name] = replace(
                found,
                state=NodeState.RUNNING if up else found.state,
                since_ms=0 if up else found.since_ms + 10 * S,
            )
        for booking in calendar:
            if booking.span.start == now:
                assert nodes[booking.node_id].state is NodeState.RUNNING, (now, booking)
        decision = decide_fleet(
            state, FleetInputs(now, list(nodes.values()), calendar, []), (SMALL,), config
        )
        state = decision.state
        for order in decision.orders:
            new_state, how = AFTER[order.action]
            nodes[order.node_id] = replace(
                nodes[order.node_id], state=new_state, starting=how, since_ms=0
            )
            if how is StartKind.RESUME:
                ready_at[order.node_id] = now + 30 * S
            elif how is StartKind.BOOT:
                # The provider launches one after another, six a minute.
                launched = max(now, queue_until)
                queue_until = launched + 10 * S
                ready_at[order.node_id] = launched + next(durations) * S


def test_the_peak_counts_a_node_once_however_often_it_is_booked() -> None:
    """Bookings that touch or overlap on one node are one node; half-open spans do not add up."""
    bookings = [
        NodeBooking("a", Interval(0, 10)), NodeBooking("a", Interval(5, 20)),
        NodeBooking("b", Interval(20, 30)), NodeBooking("c", Interval(25, 30)),
    ]  # fmt: skip

    assert peak_nodes(bookings, Interval(0, 20)) == 1
    assert peak_nodes(bookings, Interval(0, 100)) == 2


def test_targets_together_keep_to_the_maximum_minima_first() -> None:
    """Two types that each want all get their minima, then the first its wish."""
    config = FleetConfig(max_nodes=5, min_nodes={"big": 2}, damping=UNDAMPED)
    waiting = [lease(str(k)) for k in range(9)]
    inputs = FleetInputs(0, [], waiting=waiting)
    targets = decide_fleet(WIDE, inputs, (SMALL, BIG), config).targets
    wishes = {name: replace(target, size=5) for name, target in targets.items()}

    assert {n: t.size for n, t in within_total(wishes, config).items()} == {"small": 3, "big": 2}
