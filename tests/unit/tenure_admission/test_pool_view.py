"""What can never fit, as far as a pool's nodes are known."""

from __future__ import annotations

from tenure_admission.pool_view import NodeView, PoolView, merged
from tenure_core.resources import ResourceVector


def a_node(node_id: str, *capacities: dict[str, int], **attributes: str) -> NodeView:
    return NodeView(node_id, attributes, tuple(ResourceVector(each) for each in capacities))


def test_slots_are_counted_on_nodes_that_match() -> None:
    pool = PoolView((a_node("a", {"cpu": 4}, arch="x"), a_node("b", {"cpu": 2}, arch="y")))

    assert pool.slots_ever({"cpu": 1}, {}, spread=False) == 6
    assert pool.slots_ever({"cpu": 3}, {}, spread=False) == 1
    assert pool.slots_ever({"cpu": 1}, {}, spread=True) == 2
    assert pool.slots_ever({"cpu": 1}, {"arch": "y"}, spread=False) == 2
    assert pool.slots_ever({"cpu": 1}, {"arch": "z"}, spread=False) == 0
    assert pool.slots_ever({"gpu": 1}, {}, spread=False) == 0


def test_the_best_time_of_a_node_counts() -> None:
    pool = PoolView((a_node("a", {"cpu": 1}, {"cpu": 8}, {"cpu": 2}),))

    assert pool.slots_ever({"cpu": 2}, {}, spread=False) == 4


def test_a_node_that_is_not_known_leaves_the_question_open() -> None:
    pool = PoolView((a_node("a", {"cpu": 4}, arch="x"), a_node("b", arch="y")))

    assert pool.slots_ever({"cpu": 9}, {}, spread=False) is None
    assert pool.kinds is None
    # But not for a lease that could not use it anyway.
    assert pool.slots_ever({"cpu": 9}, {"arch": "x"}, spread=False) == 0
    assert PoolView(()).slots_ever({"cpu": 1}, {}, spread=False) is None


def test_a_node_seen_without_capacity_keeps_what_it_had() -> None:
    before = PoolView((a_node("a", {"cpu": 4}), a_node("b", {"cpu": 1})))

    after = merged(before, [a_node("a"), a_node("c", {"cpu": 2})])

    assert after.nodes == (a_node("a", {"cpu": 4}), a_node("c", {"cpu": 2}))
    assert merged(after, list(after.nodes)) is after
