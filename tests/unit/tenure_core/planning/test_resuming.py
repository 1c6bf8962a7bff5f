"""Suspended leases that may move, against a model that looks at every instant."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.tenure_core.planning.pool_in_time import node, spec
from tests.unit.tenure_core.slots.naive_slots import NaiveSlots

from tenure_core.leases.states import LeaseState
from tenure_core.planning.moving import rounds
from tenure_core.planning.planner import plan
from tenure_core.planning.snapshot import LeaseView, ReservationKind, ReservationView, Snapshot
from tenure_core.policies.backfilling import Backfilling
from tenure_core.policies.bundle import Migration, Overheads, Policies
from tenure_core.policies.preemption import NoPreemption
from tenure_core.resources import ResourceVector
from tenure_core.slots.query import Demand
from tenure_core.timebase import FOREVER, Interval

CALM = Policies(preemption=NoPreemption(), backfilling=Backfilling.EASY)
EVER = 10**6
LATEST = 200
NOW = 10


def test_moves_that_share_no_node_go_side_by_side():
    moves = {0: ("a", "b"), 1: ("b", "c"), 2: ("d", "e"), 3: ("e", "a")}
    assert [list(each) for each in rounds(moves)] == [[0, 2], [1, 3]]
    assert rounds({}) == []


def test_state_is_as_large_as_the_memory_of_a_slot_and_moves_at_the_bandwidth():
    slot = ResourceVector({"cpu": 1_000, "memory": 5})
    assert Overheads(migration=Migration.YES, move_bytes_s=2).move_ms(slot) == 2_500
    assert Overheads(migration=Migration.YES, move_bytes_s=3).move_ms(slot) == 1_667
    assert Overheads(migration=Migration.YES_NOTRANSFER).move_ms(slot) == 0
    with pytest.raises(ValueError, match="needs a bandwidth"):
        Overheads(migration=Migration.YES)


def suspended(naive: NaiveSlots, homes: list[str], duration: int, **what: object) -> LeaseView:
    """Return a lease suspended on nodes, with what it keeps there booked."""
    asked = spec(nodes=len(homes), duration=duration, **what)
    kept = ResourceVector({"memory": asked.amounts["memory"]})
    for rank, home in enumerate(homes):
        stay = ReservationView(
            f"x{rank}", "x", 1, rank, home, Interval(5, FOREVER), kept, ReservationKind.RESIDENT
        )
        naive.rows[stay.id] = stay
    return LeaseView("x", asked, LeaseState.SUSPENDED, 1, 0, -9, duration, kept)


def held_by_others(naive: NaiveSlots, place: int, start: int, length: int, cores: int, memory: int):
    amounts = ResourceVector({"cpu": cores * 1_000, "memory": memory})
    span = Interval(NOW + start, NOW + start + length)
    name, kind = f"r{len(naive.rows)}", ReservationKind.HOLD
    row = ReservationView(name, "", 0, 0, f"n{place}", span, amounts, kind)
    naive.rows[row.id] = row
    if naive.over_capacity() or row.interval.end <= NOW:
        del naive.rows[row.id]


def booked(naive: NaiveSlots, view: LeaseView, policies: Policies) -> list[ReservationView]:
    """Return what the lease holds once planned."""
    snapshot = Snapshot(NOW, tuple(naive.nodes.values()), tuple(naive.rows.values()), (view,))
    rows = {row.id: row for row in naive.rows.values() if row.lease == "x"}
    for group in plan(snapshot, policies).groups:
        for operation in group.operations:
            match type(operation).__name__:
                case "Book":
                    rows[operation.reservation] = operation.row()
                case "Release":
                    del rows[operation.reservation]
                case "Resize":
                    row = rows[operation.reservation]
                    span = Interval(row.interval.start, operation.end)
                    rows[row.id] = replace(row, interval=span)
    return list(rows.values())


def test_a_lease_moves_when_its_node_is_taken_for_long_and_stays_when_not():
    for taken, expected in ((30, "n1"), (3, "n0")):
        naive = NaiveSlots({name: node(name, 1, 4) for name in ("n0", "n1")})
        view = suspended(naive, ["n0"], 10, memory=2)
        held_by_others(naive, 0, -1, taken + 1, 1, 0)
        overheads = Overheads(migration=Migration.YES, move_bytes_s=500)
        rows = booked(naive, view, replace(CALM, overheads=overheads))
        found = {(row.kind.value, row.node): row.interval for row in rows}
        if expected == "n0":
            assert found == {
                ("RESIDENT", "n0"): Interval(5, NOW + 3),
                ("RUN", "n0"): Interval(NOW + 3, NOW + 13),
            }
        else:
            assert found == {
                ("RESIDENT", "n0"): Interval(5, NOW + 4),
                ("TRANSFER", "n1"): Interval(NOW, NOW + 4),
                ("RUN", "n1"): Interval(NOW + 4, NOW + 14),
            }


def test_only_what_cannot_stay_moves():
    naive = NaiveSlots({name: node(name, 1, 4) for name in ("n0", "n1", "n2")})
    view = suspended(naive, ["n2", "n0"], 10)
    held_by_others(naive, 0, -1, 100, 1, 0)
    overheads = Overheads(migration=Migration.YES_NOTRANSFER)
    rows = booked(naive, view, replace(CALM, overheads=overheads))
    runs = {row.rank: row.node for row in rows if row.kind is ReservationKind.RUN}
    assert runs == {0: "n2", 1: "n1"}


def test_nothing_moves_to_start_at_the_same_time():
    """The fuller of two nodes, which is filled first, is not the one where the lease is."""
    naive = NaiveSlots({name: node(name, 1, 4) for name in ("n0", "n1")})
    view = suspended(naive, ["n0"], 10)
    held_by_others(naive, 0, -1, 8, 1, 0)
    held_by_others(naive, 1, -1, 8, 1, 0)
    held_by_others(naive, 1, 0, 50, 0, 3)
    overheads = Overheads(migration=Migration.YES_NOTRANSFER)
    rows = booked(naive, view, replace(CALM, overheads=overheads))
    runs = [(row.node, row.interval) for row in rows if row.kind is ReservationKind.RUN]
    assert runs == [("n0", Interval(NOW + 7, NOW + 17))]


@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=3),
    st.integers(1, 2),
    st.integers(1, 2),
    st.integers(1, 20),
    st.lists(
        st.tuples(
            st.integers(0, 2), st.integers(-3, 30), st.integers(1, 25), st.integers(0, 2),
            st.integers(0, 3),
        ),
        max_size=8,
    ),
    st.sampled_from(Migration),
    st.integers(0, 2),
    st.integers(0, 2),
)  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_a_lease_resumes_as_soon_as_it_can_where_it_is_or_moved(
    places, cpu, memory, duration, others, migration, resume, shutdown
):
    naive = NaiveSlots({f"n{i}": node(f"n{i}", 2, 4) for i in range(3)})
    homes = sorted(f"n{place}" for place in places)
    view = suspended(naive, homes, duration, cpu=cpu, memory=memory)
    if naive.over_capacity():
        return
    for each in others:
        held_by_others(naive, *each)
    overheads = Overheads(0, resume, shutdown, migration, 500)
    rows = booked(naive, view, replace(CALM, overheads=overheads))
    own = {name: row for name, row in naive.rows.items() if row.lease == "x"}
    for name in own:
        del naive.rows[name]
    slot = overheads.move_ms(view.spec.amounts)
    demand, count = Demand(view.spec.amounts, len(homes)), Counter(homes)
    whole = resume + duration + shutdown

    def fits_at_home(start: int) -> bool:
        return all(
            naive.slots(home, demand, start, start + whole) >= n for home, n in count.items()
        )

    at_home = next((t for t in range(NOW, LATEST) if fits_at_home(t)), None)
    runs = [row for row in rows if row.kind is ReservationKind.RUN]
    if migration is Migration.NO:
        elsewhere = None
    else:
        bound = slot * len(homes)
        elsewhere = naive.earliest(demand, bound + whole, NOW, LATEST)
    if at_home is None and elsewhere is None:
        assert runs == []
        return
    assert len(runs) == len(homes)
    starts = {row.interval.start for row in runs}
    assert len(starts) == 1 and {row.interval.duration_ms for row in runs} == {duration + shutdown}
    resumes = starts.pop() - resume
    moved = {row.rank: (homes[row.rank], row.node) for row in runs if row.node != homes[row.rank]}
    if moved:
        touched = Counter(name for move in moved.values() for name in move)
        moves_ms = resumes - elsewhere
        assert slot * max(touched.values()) <= moves_ms <= slot * len(moved)
        assert at_home is None or resumes < at_home
        kinds = Counter(row.kind for row in rows)
        assert kinds[ReservationKind.TRANSFER] == (len(moved) if slot else 0)
    else:
        assert resumes == at_home or (at_home is None or resumes < at_home)
        assert resumes in (at_home, elsewhere)
    if at_home is not None:
        assert resumes <= at_home
    if elsewhere is not None:
        assert resumes <= elsewhere + slot * len(homes)
    for row in rows:
        naive.rows[row.id] = replace(
            row, interval=Interval(row.interval.start, min(row.interval.end, EVER))
        )
    assert not naive.over_capacity()
    stays = [row for row in rows if row.kind is ReservationKind.RESIDENT]
    assert {row.interval.end for row in stays} <= {resumes}
