from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.admission import a_lease, a_node

from tenure_core.admission.claims import Claim
from tenure_core.admission.nodes import Node
from tenure_core.admission.outcomes import Obstacle
from tenure_core.admission.passes import (
    ANCESTOR,
    PassInput,
    PassResult,
    PassRules,
    run_pass,
)
from tenure_core.admission.placement import PlacementTerms
from tenure_core.admission.predicates import Limits
from tenure_core.admission.quotas import Limit
from tenure_core.admission.waiting import WaitingLease

OURS = PassRules()


def _pass(nodes: list[Node], waiting: list[WaitingLease], rules: PassRules = OURS) -> PassResult:
    return run_pass(PassInput(nodes, waiting), rules)


def test_leases_behind_one_that_waits_run_where_they_do_not_compete() -> None:
    nodes = [a_node("gpu", cpu=8, gpu=1, taken={"gpu": 1}), a_node("plain", cpu=8)]
    waiting = [a_lease("g", amounts={"cpu": 1, "gpu": 1}), a_lease("c")]

    ours, ancestor = _pass(nodes, waiting), _pass(nodes, waiting, ANCESTOR)

    assert ours.placed["c"].nodes == ("plain",)
    assert ours.claims == {"g": Claim("g", {"gpu": {"cpu": 1, "gpu": 1}}, {"gpu": 1})}
    assert (ancestor.placed, ancestor.not_attempted) == ({}, ("c",))


def test_what_a_waiting_lease_claims_is_not_given_to_those_behind() -> None:
    nodes = [a_node("n", cpu=4, taken={"cpu": 2})]

    result = _pass(nodes, [a_lease("big", amounts={"cpu": 4}), a_lease("small")])

    assert result.still_waiting == ("big", "small")
    assert result.unplaced["small"].obstacle is Obstacle.EXHAUSTED


def test_what_is_left_beside_a_claim_is_open_to_all() -> None:
    nodes = [a_node("n", cpu=4, memory=8, taken={"cpu": 4})]

    result = _pass(
        nodes,
        [a_lease("big", amounts={"cpu": 2, "memory": 2}), a_lease("m", amounts={"memory": 6})],
    )

    assert result.placed["m"].nodes == ("n",)


def test_a_lease_that_the_empty_pool_could_not_hold_is_told_so_and_blocks_nobody() -> None:
    result = _pass([a_node("n", cpu=4)], [a_lease("huge", amounts={"cpu": 8}), a_lease("small")])

    assert result.unplaced["huge"].obstacle is Obstacle.IMPOSSIBLE
    assert result.placed["small"].nodes == ("n",)
    assert result.claims == {}


def test_what_is_placed_counts_against_the_quota_of_the_next() -> None:
    limits = Limits(owners={"ann": Limit({"cpu": 3})})
    given = PassInput([a_node("n", cpu=9)], [a_lease(n) for n in "abcd"], limits=limits)

    result = run_pass(given, OURS)

    assert list(result.placed) == ["a", "b", "c"]
    assert result.refused["d"][0].reason == "OWNER_QUOTA_EXCEEDED"


def test_all_members_of_a_lease_count_against_the_limit_of_a_node() -> None:
    rules = PassRules(placement=PlacementTerms(members_max=3))
    nodes = [replace(a_node("n", cpu=9), members=1)]

    result = _pass(nodes, [a_lease("three", members=3)], rules)
    ancestor = replace(ANCESTOR, placement=replace(ANCESTOR.placement, members_max=3))

    assert result.unplaced["three"].lacks[0].missing_members == 1
    assert "three" in _pass(nodes, [a_lease("three", members=3)], ancestor).placed


_NODES = st.lists(
    st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(0, 6)), min_size=1, max_size=5
)
_LEASES = st.lists(
    st.tuples(st.integers(1, 7), st.integers(0, 7), st.integers(1, 3), st.booleans()), max_size=8
)


def _world(
    nodes: list[tuple[int, int, int]], leases: list[tuple[int, int, int, bool]]
) -> tuple[list[Node], list[WaitingLease]]:
    return (
        [
            a_node(f"n{i}", cpu=cpu, memory=memory, taken={"cpu": min(taken, cpu)})
            for i, (cpu, memory, taken) in enumerate(nodes)
        ],
        [
            a_lease(
                f"l{i}",
                amounts={"cpu": cpu, "memory": memory},
                members=members,
                many_nodes=spread,
            )
            for i, (cpu, memory, members, spread) in enumerate(leases)
        ],
    )


@settings(deadline=None)
@given(_NODES, _LEASES, st.booleans())
def test_a_pass_gives_no_node_more_than_it_has(nodes, leases, ours) -> None:  # type: ignore[no-untyped-def]
    pool, waiting = _world(nodes, leases)
    result = _pass(pool, waiting, OURS if ours else ANCESTOR)
    members = {lease.id: lease.members for lease in waiting}

    for node in pool:
        for kind in ("cpu", "memory"):
            given_away = sum(
                member.amounts[kind]
                for name, placed in result.placed.items()
                for where, member in zip(placed.nodes, members[name], strict=True)
                if where == node.id
            )
            assert node.taken.get(kind, 0) + given_away <= node.capacity[kind]
    decided = [*result.placed, *result.held, *result.refused, *result.unplaced]
    assert sorted([*decided, *result.not_attempted]) == sorted(members)


@settings(deadline=None)
@given(_NODES, _LEASES, st.randoms(use_true_random=False))
def test_the_order_in_which_nodes_are_listed_does_not_matter(
    nodes: list[tuple[int, int, int]],
    leases: list[tuple[int, int, int, bool]],
    chance: random.Random,
) -> None:
    pool, waiting = _world(nodes, leases)
    shuffled = list(pool)
    chance.shuffle(shuffled)

    assert _pass(pool, waiting) == _pass(shuffled, waiting)


@settings(deadline=None)
@given(_NODES, _LEASES)
def test_a_lease_that_can_never_fit_changes_nothing_for_the_others(
    nodes: list[tuple[int, int, int]], leases: list[tuple[int, int, int, bool]]
) -> None:
    pool, waiting = _world(nodes, leases)
    huge = a_lease("huge", amounts={"cpu": 99})

    alone, behind = _pass(pool, waiting), _pass(pool, [huge, *waiting])

    assert behind.placed == alone.placed
    assert behind.claims == alone.claims


_LONGEST = 4


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(2, 5), st.integers(2, 5)), min_size=1, max_size=3),
    st.lists(
        st.tuples(
            st.integers(1, 5), st.integers(1, 5), st.integers(1, 2), st.integers(1, _LONGEST)
        ),
        min_size=1,
        max_size=6,
    ),
    st.lists(
        st.tuples(st.integers(1, 2), st.integers(1, 2), st.integers(1, _LONGEST)),
        min_size=1,
        max_size=4,
    ),
)
def test_nobody_starves_however_many_small_leases_keep_coming(
    nodes: list[tuple[int, int]],
    first: list[tuple[int, int, int, int]],
    stream: list[tuple[int, int, int]],
) -> None:
    """Each lease that fits an empty pool starts within its place in the queue x the longest run."""
    pool = [a_node(f"n{i}", cpu=cpu, memory=memory) for i, (cpu, memory) in enumerate(nodes)]
    waiting: list[WaitingLease] = []
    runs: dict[str, int] = {}
    for i, (cpu, memory, members, run) in enumerate(first):
        amounts = {"cpu": cpu, "memory": memory}
        waiting.append(a_lease(f"f{i}", amounts=amounts, members=members, many_nodes=True))
        runs[f"f{i}"] = run
    possible = [lease for lease in waiting if run_pass(PassInput(pool, [lease]), OURS).placed]
    bound = (len(first) + 1) * (_LONGEST + 1)
    running: list[tuple[int, str, dict[str, int]]] = []
    started: dict[str, int] = {}
    claims: dict[str, Claim] = {}
    for tick in range(bound + 1):
        running = [entry for entry in running if entry[0] > tick]
        for i, (cpu, memory, run) in enumerate(stream):
            name = f"s{tick}-{i}"
            waiting.append(a_lease(name, amounts={"cpu": cpu, "memory": memory}))
            runs[name] = run
        busy = [
            replace(node, taken=_sum(amounts for _, where, amounts in running if where == node.id))
            for node in pool
        ]
        result = run_pass(PassInput(busy, waiting, standing_claims=claims), OURS)
        claims = dict(result.claims)
        for name, placed in result.placed.items():
            started[name] = tick
            (lease,) = [entry for entry in waiting if entry.id == name]
            for where, member in zip(placed.nodes, lease.members, strict=True):
                running.append((tick + runs[name], where, dict(member.amounts)))
        waiting = [lease for lease in waiting if lease.id not in result.placed]
    assert {lease.id for lease in possible} <= set(started)


def _sum(parts) -> dict[str, int]:  # type: ignore[no-untyped-def]
    total: dict[str, int] = {}
    for part in parts:
        for kind, amount in part.items():
            total[kind] = total.get(kind, 0) + amount
    return total
