"""The slot table answers as the naive model does, whatever was done to it before."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.tenure_core.slots.naive_slots import NaiveSlots

from tenure_core.errors import Exhausted
from tenure_core.planning.snapshot import NodeView, ReservationKind, ReservationView
from tenure_core.policies.placement import Greedy, HostSelection, RoundRobin
from tenure_core.resources import ResourceVector
from tenure_core.slots.query import Demand, Window
from tenure_core.slots.table import SlotTable
from tenure_core.timebase import FOREVER, Interval

AMOUNTS = st.builds(
    lambda cpu, memory, gpu: ResourceVector({"cpu": cpu, "memory": memory, "gpu": gpu}),
    st.integers(0, 4),
    st.integers(0, 3),
    st.integers(0, 1),
)
TIMELINES = st.lists(st.tuples(st.integers(0, 30), AMOUNTS), min_size=1, max_size=3).map(
    lambda points: tuple(sorted(dict(points).items()))
)
NODES = st.lists(
    st.tuples(TIMELINES, st.sampled_from(["a", "b"]), st.booleans()), min_size=1, max_size=4
).map(
    lambda entries: [
        NodeView(f"n{i}", timeline, {"rack": rack}, schedulable or i == 0)
        for i, (timeline, rack, schedulable) in enumerate(entries)
    ]
)
SPANS = st.tuples(st.integers(0, 40), st.integers(1, 15)).map(lambda p: Interval(p[0], p[0] + p[1]))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 3), SPANS, AMOUNTS),
        st.tuples(st.just("remove"), st.integers(0, 30)),
        st.tuples(st.just("change"), st.integers(0, 30), SPANS),
        st.tuples(st.just("capacity"), st.integers(0, 3), TIMELINES),
    ),
    max_size=25,
)
DEMANDS = st.builds(
    lambda amounts, count, rack, spread: Demand(
        amounts, count, {"rack": rack} if rack else {}, spread
    ),
    AMOUNTS.filter(len),
    st.integers(1, 5),
    st.sampled_from(["", "a", "b"]),
    st.booleans(),
)


def run(nodes: list[NodeView], steps: list[tuple]) -> tuple[SlotTable, NaiveSlots]:
    """Do the same steps to both, checking that both accept and refuse the same."""
    table, naive = SlotTable(nodes), NaiveSlots({node.id: node for node in nodes})
    for number, step in enumerate(steps):
        match step:
            case ("add", node, span, amounts):
                name = f"n{node % len(nodes)}"
                kind = ReservationKind.RUN
                row = ReservationView(f"r{number}", f"l{number}", 1, 0, name, span, amounts, kind)
                naive.rows[row.id] = row
                if naive.over_capacity():
                    del naive.rows[row.id]
                    with pytest.raises(Exhausted):
                        table.add(row)
                else:
                    table.add(row)
            case ("remove", which) if naive.rows:
                name = sorted(naive.rows)[which % len(naive.rows)]
                assert table.remove(name) == naive.rows.pop(name)
            case ("change", which, span) if naive.rows:
                name = sorted(naive.rows)[which % len(naive.rows)]
                before = naive.rows[name]
                row = replace(before, interval=span, version=before.version + 1)
                naive.rows[name] = row
                if naive.over_capacity():
                    naive.rows[name] = before
                    with pytest.raises(Exhausted):
                        table.change(row)
                else:
                    assert table.change(row) == before
            case ("capacity", node, timeline):
                view = replace(nodes[node % len(nodes)], capacity=timeline)
                naive.nodes[view.id] = view
                for row in table.set_node(view):
                    assert row.displaced and row.version == naive.rows[row.id].version + 1
                    naive.rows[row.id] = row
        table.check()
        assert not naive.over_capacity()
    assert {row.id: row for row in table.reservations()} == naive.rows
    return table, naive


@given(
    NODES,
    STEPS,
    DEMANDS,
    SPANS,
    st.sampled_from([*HostSelection, Greedy(), RoundRobin()]),
    st.integers(0, 50),
)
@settings(max_examples=400, deadline=None)
def test_earliest_start_is_minimal_and_its_nodes_have_room(
    nodes, steps, demand, span, selection, slack
):
    table, naive = run(nodes, steps)
    duration, latest = span.duration_ms, span.start + slack
    fit = table.earliest_start(demand, Window(duration, span.start, latest), selection)
    expected = naive.earliest(demand, duration, span.start, latest)
    assert (fit.start if fit else None) == expected
    if fit:
        assert naive.is_fit(demand, fit.nodes, fit.start, fit.start + duration)
        again = table.fit_at(demand, Interval(fit.start, fit.start + duration), selection)
        assert again == fit


@given(NODES, STEPS, SPANS)
@settings(max_examples=150, deadline=None)
def test_availability_is_capacity_less_reservations(nodes, steps, span):
    table, naive = run(nodes, steps)
    for available in table.availability(span):
        for instant in range(span.start, span.end):
            free = [amounts for since, amounts in available.free if since <= instant][-1]
            assert free == ResourceVector(naive.free(available.node, instant))


@given(NODES, STEPS, st.lists(st.tuples(st.integers(0, 3), SPANS, AMOUNTS), max_size=8))
@settings(max_examples=150, deadline=None)
def test_a_trial_undone_leaves_no_trace(nodes, steps, more):
    table, _ = run(nodes, steps)
    before = table.reservations(), table.availability(Interval(0, 100))
    table.begin()
    for number, (node, span, amounts) in enumerate(more):
        name = f"n{node % len(nodes)}"
        row = ReservationView(f"t{number}", "t", 1, 0, name, span, amounts, ReservationKind.HOLD)
        try:
            table.add(row)
        except Exhausted:
            for old in table.reservations()[:1]:
                table.remove(old.id)
    table.undo()
    table.check()
    assert (table.reservations(), table.availability(Interval(0, 100))) == before


@given(NODES, STEPS, AMOUNTS.filter(len), st.lists(st.integers(1, 3), min_size=1), SPANS)
@settings(max_examples=150, deadline=None)
def test_earliest_start_on_named_nodes_is_minimal(nodes, steps, amounts, slots, span):
    table, naive = run(nodes, steps)
    wanted = {f"n{i}": count for i, count in enumerate(slots[: len(nodes)])}
    duration, first = span.duration_ms, span.start
    found = table.earliest_on(wanted, amounts, Window(duration, first))

    def fits(start: int) -> bool:
        return all(
            naive.slots(node, Demand(amounts, count), start, start + duration) == count
            for node, count in wanted.items()
        )

    points = {first} | {at for node in nodes for at in naive.instants(node.id, first, 200)}
    assert found == min((start for start in points if fits(start)), default=None)


@pytest.mark.parametrize("spread", [False, True])
def test_what_is_held_without_end_is_never_free(spread):
    """It was taken to be given back at the end of time: a promise for then, or a date beyond."""
    table = SlotTable([NodeView(f"n{i}", ((0, ResourceVector({"cpu": 2})),)) for i in range(2)])
    held = ResourceVector({"cpu": 1})
    for node in ("n0", "n1"):
        stay = Interval(0, FOREVER)
        table.add(ReservationView(node, "s", 1, 0, node, stay, held, ReservationKind.RESIDENT))
    demand = Demand(ResourceVector({"cpu": 2}), 2, spread=spread)
    assert table.earliest_start(demand, Window(10, 0)) is None
