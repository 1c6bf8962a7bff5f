from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.admission import a_lease, a_node

from tenure_core.admission.amounts import plus
from tenure_core.admission.filters import Filter
from tenure_core.admission.nodes import Node, Room
from tenure_core.admission.outcomes import Lack, Obstacle, Placed, Unplaced
from tenure_core.admission.placement import PlacementTerms
from tenure_core.admission.placer import Placer
from tenure_core.admission.preemption import (
    Preemptee,
    Preemption,
    PreemptionOrder,
    PreemptionScope,
    PreemptionTerms,
)
from tenure_core.admission.strategies import Chooser, Strategy, StrategyTerms
from tenure_core.admission.waiting import Direction, GroupWish, Member, WaitingLease

DISPERSED = StrategyTerms(Strategy.DISPERSED)


def _placer(
    nodes: list[Node],
    strategy: StrategyTerms = DISPERSED,
    preemption: Preemption | None = None,
    **terms: object,
) -> Placer:
    return Placer(Room(nodes), Chooser(strategy), PlacementTerms(**terms), preemption)  # type: ignore[arg-type]


def _gang(*sizes: int) -> WaitingLease:
    return replace(
        a_lease("gang", many_nodes=True), members=tuple(Member({"cpu": n}) for n in sizes)
    )


def test_an_assignment_that_needs_another_order_is_found() -> None:
    nodes = [a_node("small", cpu=4), a_node("big", cpu=8)]

    assert _placer(nodes).place(_gang(4, 8)) == Placed(("small", "big"))
    assert _placer(nodes, search_steps=0).place(_gang(4, 8)) == Unplaced(
        Obstacle.EXHAUSTED, lacks=(Lack(1, Filter.RESOURCES, {"cpu": 4}),)
    )


def test_a_failed_lease_leaves_nothing_taken() -> None:
    placer = _placer([a_node("n", cpu=4)])

    assert isinstance(placer.place(_gang(3, 3)), Unplaced)
    assert placer.place(a_lease(amounts={"cpu": 4})) == Placed(("n",))


def test_shortages_are_compared_without_dimension() -> None:
    """Half of the memory is less than three quarters of the cores, though it is more bytes."""
    nodes = [
        a_node("few-cores", cpu=4, memory=4096, taken={"cpu": 4}),
        a_node("half-memory", cpu=4, memory=4096, taken={"memory": 2048 + 1024}),
    ]
    lease = a_lease(amounts={"cpu": 3, "memory": 3072})

    assert _placer(nodes).place(lease) == Unplaced(
        Obstacle.EXHAUSTED, lacks=(Lack(0, Filter.RESOURCES, {"memory": 2048}),)
    )
    assert _placer(nodes, relative_shortage=False).place(lease) == Unplaced(
        Obstacle.EXHAUSTED, lacks=(Lack(0, Filter.RESOURCES, {"cpu": 3}),)
    )


def test_replicas_of_a_group_spread_over_nodes_within_one_lease() -> None:
    wish = GroupWish("web", Direction.SPREAD, strict=True)
    placer = _placer([a_node("a", cpu=8), a_node("b", cpu=8)], StrategyTerms(Strategy.CONCENTRATED))

    placed = placer.place(replace(_gang(1, 1), wish=wish))
    third = placer.place(replace(a_lease("third"), wish=wish))

    assert placed == Placed(("a", "b"))
    assert third == Unplaced(Obstacle.INCOMPATIBLE, Filter.GROUP)


def _preemptee(name: str, rank: int, node: str = "n", **amounts: int) -> Preemptee:
    return Preemptee(name, rank, 0, {node: amounts}, owner="ann")


def _preemption(*preemptees: Preemptee, **terms: object) -> Preemption:
    return Preemption(PreemptionTerms(**terms), preemptees, now=1_000)  # type: ignore[arg-type]


FULL = a_node("n", cpu=8, taken={"cpu": 8})


def test_whoever_need_not_go_is_spared() -> None:
    preemption = _preemption(_preemptee("tiny", 0, cpu=1), _preemptee("enough", 1, cpu=4))
    lease = a_lease(amounts={"cpu": 4}, preemption_rank=5)

    assert _placer([FULL], preemption=preemption).place(lease) == Placed(
        ("n",), ("enough",), held=True
    )
    assert _placer([FULL], preemption=preemption, spare_needless=False).place(lease) == Placed(
        ("n",), ("tiny", "enough"), held=True
    )


def test_a_second_lease_may_claim_those_who_are_left_and_what_is_left_over() -> None:
    preemption = _preemption(_preemptee("a", 1, cpu=3), _preemptee("b", 1, cpu=2))
    placer = _placer([FULL], preemption=preemption)
    ask = {"amounts": {"cpu": 2}, "preemption_rank": 5}

    assert placer.place(a_lease("first", **ask)) == Placed(("n",), ("a",), held=True)
    assert placer.place(a_lease("second", **ask)) == Placed(("n",), ("b",), held=True)
    one_cpu = a_lease("third", amounts={"cpu": 1}, preemption_rank=5)
    assert placer.place(one_cpu) == Placed(("n",), (), held=True)
    assert isinstance(placer.place(replace(one_cpu, id="fourth")), Unplaced)


def test_equal_rank_private_unpreemptible_foreign_and_too_young_leases_stay() -> None:
    lease = a_lease(amounts={"cpu": 1}, preemption_rank=1)
    stays = [
        _preemptee("equal", 1, cpu=8),
        replace(_preemptee("private", 0, cpu=8), private=True),
        replace(_preemptee("kept", 0, cpu=8), preemptible=False),
        replace(_preemptee("foreign", 0, cpu=8), owner="bob"),
        replace(_preemptee("young", 0, cpu=8), started=501),
    ]
    preemption = _preemption(*stays, scope=PreemptionScope.OWNER, least_run_ms=500)

    assert isinstance(_placer([FULL], preemption=preemption).place(lease), Unplaced)


def test_a_full_member_limit_is_relieved_by_those_who_make_room() -> None:
    node = replace(a_node("n", cpu=8, taken={"cpu": 2}), members=2)
    preemption = _preemption(_preemptee("one", 0, cpu=1), _preemptee("two", 0, cpu=1))
    lease = a_lease(preemption_rank=1)

    assert _placer([node], preemption=preemption, members_max=2).place(lease) == Placed(
        ("n",), ("one",), held=True
    )


_small = st.integers(0, 4)


@settings(deadline=None)
@given(
    st.lists(st.tuples(_small, _small), min_size=1, max_size=3),
    st.lists(st.tuples(_small, _small), min_size=1, max_size=4),
)
def test_whatever_assignment_exists_one_is_found(
    nodes: list[tuple[int, int]], members: list[tuple[int, int]]
) -> None:
    pool = [a_node(f"n{i}", cpu=cpu, memory=memory) for i, (cpu, memory) in enumerate(nodes)]
    wanted = tuple(Member({"cpu": cpu, "memory": memory}) for cpu, memory in members)
    lease = replace(a_lease(many_nodes=True), members=wanted)

    found = _placer(pool).place(lease)

    exists = any(
        _fits(pool, wanted, where) for where in product([n.id for n in pool], repeat=len(wanted))
    )
    assert isinstance(found, Placed) == exists
    if isinstance(found, Placed):
        assert _fits(pool, wanted, found.nodes)


def _fits(pool: list[Node], wanted: tuple[Member, ...], where: tuple[str, ...]) -> bool:
    taken: dict[str, dict[str, int]] = {node.id: {} for node in pool}
    for name, member in zip(where, wanted, strict=True):
        taken[name] = plus(taken[name], member.amounts)
    return all(
        amount <= node.free_at_start.get(kind, 0)
        for node in pool
        for kind, amount in taken[node.id].items()
    )


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), min_size=1, max_size=5),
    st.integers(1, 9),
    st.sampled_from(PreemptionOrder),
)
def test_those_who_make_room_suffice_and_none_of_them_is_needless(
    preemptees: list[tuple[int, int]], wanted: int, order: PreemptionOrder
) -> None:
    candidates = [_preemptee(f"v{i}", rank, cpu=cpu) for i, (rank, cpu) in enumerate(preemptees)]
    held = sum(cpu for _, cpu in preemptees)
    node = a_node("n", cpu=held, taken={"cpu": held})
    lease = a_lease(amounts={"cpu": wanted}, preemption_rank=3)

    preemption = _preemption(*candidates, order=order)
    found = _placer([node], preemption=preemption).place(lease)

    sizes = {entry.lease: entry.on("n")["cpu"] for entry in candidates if entry.rank < 3}
    assert isinstance(found, Placed) == (sum(sizes.values()) >= wanted)
    if isinstance(found, Placed):
        assert sum(sizes[name] for name in found.makes_room) >= wanted
        fewer = list(combinations(found.makes_room, len(found.makes_room) - 1))
        assert all(sum(sizes[name] for name in some) < wanted for some in fewer)
