"""Fleets and the calendar: leads, starts, what a booking must not miss, what is offered."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import hypothesis.strategies as st
from hypothesis import example, given, settings
from tests.unit.tenure_core.autoscaling.fleet_builder import (
    BIG,
    CONFIG,
    GOING,
    SMALL,
    TIMES,
    WIDE,
    S,
    fleets,
    lease,
    node,
    orders,
)

from tenure_core.autoscaling.booked_demand import (
    NodeBooking,
    booked_demand,
    earliest_start_ms,
    peak_nodes,
)
from tenure_core.autoscaling.fleet import FleetInputs, decide_fleet
from tenure_core.autoscaling.fleet_values import FleetNode
from tenure_core.autoscaling.future_node import (
    BookedNode,
    NodeAction,
    NodeState,
    StartKind,
    decide_node,
)
from tenure_core.autoscaling.lead_times import (
    Measured,
    boot_lead_ms,
    late_probability,
    replacing_ms,
)
from tenure_core.autoscaling.machine_types import MachineType
from tenure_core.autoscaling.offered_nodes import NodeChange, OfferedNode, offered_nodes
from tenure_core.autoscaling.provider_errors import Backoff
from tenure_core.resources import ResourceVector
from tenure_core.timebase import Interval

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


def test_a_booked_node_boots_at_its_lead_and_not_before() -> None:
    """The lead is the measured boot time and the guard."""
    at = 1000 * S
    booked = [NodeBooking("n", Interval(at, at + 60 * S))]
    absent = [node("n", NodeState.ABSENT)]
    lead = TIMES.cold_ms

    assert orders(absent, bookings=booked, now_ms=at - lead - 1) == []
    assert orders(absent, bookings=booked, now_ms=at - lead) == [("BOOT", "n", "lead_reached")]


def test_a_booked_node_of_a_type_in_back_off_waits_for_the_provider() -> None:
    """Asking again at once would only make the refusals more."""
    booked = [NodeBooking("n", Interval(50 * S, 60 * S))]
    shut = replace(SMALL, backoff=Backoff(1, until_ms=10**9))

    assert orders([node("n", NodeState.ABSENT)], bookings=booked, types=(shut,)) == []


def test_the_target_is_at_least_what_is_booked() -> None:
    """An idle machine is not let go while bookings need as many."""
    booked = [NodeBooking(name, Interval(0, 60 * S)) for name in ("a", "b")]
    nodes = [node("a"), node("b"), node("c", since_ms=10**7)]
    target = decide_fleet(WIDE, FleetInputs(5, nodes, booked, []), (SMALL,), CONFIG).targets[
        "small"
    ]

    assert (target.queue, target.booked.peak, target.size) == (0, 2, 2)


def test_p26_the_providers_backlog_is_part_of_the_lead() -> None:
    """A booking due in the lead of one machine and the backlog is launched now."""
    at = TIMES.cold_ms + 40 * S
    booked = [NodeBooking("n", Interval(at, at + S))]

    def unbacked(backlog_ms: int) -> int:
        return booked_demand(
            booked, SMALL, ready_nodes=frozenset(), now_ms=0, backlog_ms=backlog_ms
        ).unbacked

    assert [unbacked(39 * S), unbacked(40 * S)] == [0, 1]


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


def test_p26_a_start_counts_from_its_launch_and_not_from_its_order() -> None:
    """Who is launched late is not overdue for that; each order says when its launch is due."""
    booked = [NodeBooking(f"n{k}", Interval(300 * S, 999 * S)) for k in range(3)]
    absent = [node(f"n{k}", NodeState.ABSENT) for k in range(3)]
    inputs = FleetInputs(160 * S, absent, booked, [])
    ordered = decide_fleet(WIDE, inputs, (SMALL,), CONFIG).orders
    starting = [
        node(f"n{k}", NodeState.STARTING, starting=StartKind.BOOT, since_ms=since * S,
             launch_wait_ms=20 * S)
        for k, since in enumerate((260, 261))
    ]  # fmt: skip

    assert [order.launch_wait_ms for order in ordered] == [0, 10 * S, 20 * S]
    assert orders(starting, config=replace(CONFIG, min_nodes={"small": 1})) == [
        ("REPLACE", "n1", "start_deadline")
    ]


def test_p25_idle_machines_make_room_for_a_booked_one_at_the_cap() -> None:
    """A full fleet of unbooked idle nodes must not make a booking late."""
    booked = [NodeBooking("b", Interval(100 * S, 200 * S))]
    nodes = [node("b", NodeState.ABSENT), node("x", since_ms=5 * S), node("y", since_ms=9 * S)]

    found = orders(nodes, bookings=booked, config=replace(CONFIG, max_nodes=2))

    assert found == [("TERMINATE", "y", "makes_room_for_booking")]


@settings(max_examples=30, deadline=None)
@example([(30, 0), (30, 3), (30, 3), (30, 3), (30, 3)], [1] * 40)
@example([(30, 3), (34, 3), (38, 3), (42, 3)], [120] * 40)
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
                nodes[order.node_id],
                state=new_state,
                starting=how,
                since_ms=0,
                launch_wait_ms=order.launch_wait_ms,
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


def test_new_machines_back_nodes_that_the_slot_table_has_already() -> None:
    """Unbooked unbacked nodes are backed first; a booked one waits for its own lead."""
    far = [NodeBooking("b", Interval(9000 * S, 9060 * S))]
    nodes = [node("b", NodeState.ABSENT), node("u", NodeState.ABSENT)]

    found = orders(nodes, bookings=far, waiting=[lease("x"), lease("y")])

    assert found == [("BOOT", "u", "target"), ("BOOT", "", "target")]


def test_what_waits_buys_nothing_where_a_booking_leaves_too_little_time() -> None:
    """A machine for a lease that could not run on it would idle until the booking ends."""
    at = 2000 * S
    booked = [NodeBooking("b", Interval(at, 2 * at))]
    absent = [node("b", NodeState.ABSENT)]
    full = replace(CONFIG, max_nodes=1)
    long, short = (replace(lease("x"), duration_ms=span) for span in (at, 900 * S))

    assert orders(absent, bookings=booked, waiting=[long], config=full) == []
    assert orders(absent, bookings=booked, waiting=[short], config=full) == [
        ("BOOT", "b", "target")
    ]


def test_what_waits_may_run_beside_what_is_booked_later() -> None:
    """A booking of a quarter of a machine leaves the rest of it to what runs for longer."""
    booked = [NodeBooking("b", Interval(2000 * S, 4000 * S), ResourceVector({"cpu": 1000}))]
    absent = [node("b", NodeState.ABSENT)]
    full = replace(CONFIG, max_nodes=1)

    def bought(cpu: int) -> int:
        long = replace(lease("x", cpu=cpu), duration_ms=9000 * S)
        return len(orders(absent, bookings=booked, waiting=[long], config=full))

    assert [bought(3000), bought(3001)] == [1, 0]


def test_p25_a_machine_leaves_a_booked_node_only_when_another_can_back_it_in_time() -> None:
    """A type that cannot sleep lets go for a long gap, and never within twice its lead."""
    kind = replace(SMALL, can_suspend=False, can_leave=True)
    idle = node("n", since_ms=700 * S)

    def told(gap_ms: int, kind: MachineType = kind) -> list[tuple[str, str, str]]:
        booked = [NodeBooking("n", Interval(gap_ms, gap_ms + S))]
        return orders([idle], bookings=booked, types=(kind,))

    lead = TIMES.cold_ms
    assert told(2 * lead) == []
    assert told(2 * lead + 1) == [("TERMINATE", "n", "idle_long_gap")]
    assert told(9 * lead, replace(kind, can_leave=False)) == []


def test_p26_what_fails_can_be_replaced_within_the_lead() -> None:
    """Two failures in a hundred need room for two more starts; a slow provider for more."""
    boots = Measured((60 * S,) * 98, started=100, failed=2)
    again = 2 * TIMES.boot_p95_ms + TIMES.guard_ms
    wanted = replacing_ms(TIMES, boots)
    never = replacing_ms(TIMES, replace(boots, started=100_000, failed=0))
    booked = [NodeBooking("n", Interval(9999 * S, 19_999 * S))]
    early = replace(SMALL, replace_ms=wanted)
    demand = booked_demand(booked, early, ready_nodes=frozenset(), now_ms=0)

    assert (wanted, never) == (2 * again, again)
    assert demand.lead_ms == TIMES.cold_ms + wanted
    assert late_probability(boots, 3) < Fraction(1, 2_000)


def test_a_fleet_offers_every_machine_that_may_still_be_bought() -> None:
    """Unbacked nodes are bookable from their lead on, within both caps; booked ones at least."""
    small, big = replace(SMALL, max_count=3), replace(BIG, max_count=9)
    nodes = [node("up"), node("b", NodeState.ABSENT), node("u", NodeState.ABSENT)]
    config = replace(CONFIG, max_nodes=4)
    found, soon = (
        offered_nodes(nodes, [small, big], config, booked={"b": start}, now_ms=7)
        for start in (999 * S, 50 * S)
    )

    assert soon[0] == OfferedNode(NodeChange.AVAILABLE_FROM, "small", "b", 50 * S)
    assert found == [
        OfferedNode(NodeChange.AVAILABLE_FROM, "small", "b", 7 + TIMES.cold_ms),
        OfferedNode(NodeChange.AVAILABLE_FROM, "small", "u", 7 + TIMES.cold_ms + 10 * S),
        OfferedNode(NodeChange.ADD, "big", "", 7 + TIMES.cold_ms),
    ]


@settings(max_examples=100, deadline=None)
@given(
    fleets, st.dictionaries(st.integers(0, 9).map(str), st.integers(-99, 999)), st.integers(0, 14)
)
def test_what_is_offered_keeps_to_the_caps(
    nodes: list[FleetNode], booked: dict[str, int], cap: int
) -> None:
    """Machines, booked nodes and offers together never exceed the cap, save by what is booked."""
    types = [replace(SMALL, max_count=4), BIG]
    changes = offered_nodes(nodes, types, replace(CONFIG, max_nodes=cap), booked=booked, now_ms=0)
    offered = [
        change
        for change in changes
        if change.change is not NodeChange.WITHDRAW and change.node_id not in booked
    ]
    committed = sum(n.exists or n.node_id in booked for n in nodes)

    assert len(offered) + committed <= max(cap, committed)
    assert not {c.node_id for c in changes if c.change is NodeChange.WITHDRAW} & booked.keys()
