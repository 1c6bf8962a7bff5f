from __future__ import annotations

from tests.support.admission import a_node

from tenure_core.admission.greedy_pass import (
    Decision,
    GreedyLease,
    GreedyNode,
    GreedyPolicy,
    ShareOf,
    run_greedy_pass,
)
from tenure_core.admission.nodes import Node
from tenure_core.admission.strategies import Chooser, Strategy, StrategyTerms, compared_kinds

BUSY = a_node("busy", cpu=8, taken={"cpu": 6})
IDLE = a_node("idle", cpu=8)


def _choose(strategy: Strategy, nodes: list[Node], wanted: dict[str, int]) -> str:
    chooser = Chooser(StrategyTerms(strategy))
    return chooser.choose(nodes, wanted, lambda node: node.free_at_start).id


def test_concentrated_fills_up_and_dispersed_evens_out() -> None:
    assert _choose(Strategy.CONCENTRATED, [IDLE, BUSY], {"cpu": 1}) == "busy"
    assert _choose(Strategy.DISPERSED, [BUSY, IDLE], {"cpu": 1}) == "idle"
    assert _choose(Strategy.LEGACY, [BUSY, IDLE], {"cpu": 1}) == "idle"


def test_a_lease_that_declines_a_kind_goes_where_none_of_it_is_free() -> None:
    rich = a_node("rich", cpu=8, gpu=4, taken={"cpu": 6})

    assert _choose(Strategy.CONCENTRATED, [rich, IDLE], {"cpu": 1, "gpu": 0}) == "idle"
    assert _choose(Strategy.CONCENTRATED, [rich, IDLE], {"cpu": 1}) == "rich"


def test_round_robin_goes_by_name_and_remembers_its_turn() -> None:
    chooser = Chooser(StrategyTerms(Strategy.ROUND_ROBIN), turn=1)

    picks = [
        chooser.choose([IDLE, BUSY], {"cpu": 1}, lambda node: node.free_at_start).id
        for _ in range(3)
    ]

    assert picks == ["idle", "busy", "idle"]
    assert chooser.turn == 4


def test_a_family_of_kinds_stands_for_all_its_members() -> None:
    wanted = {"cpu": 1, "cuda.shares": 1, "atom": 1}
    priority = ("cuda", "cpu")

    by_family = compared_kinds(wanted, StrategyTerms(kind_priority=priority))
    by_name = compared_kinds(wanted, StrategyTerms(kind_priority=priority, by_family=False))

    assert by_family == ["cuda.shares", "cpu", "atom"]
    assert by_name == ["cpu", "atom", "cuda.shares"]


def test_ten_small_leases_weigh_as_much_as_one_of_their_size() -> None:
    node = GreedyNode("n", {"cpu": 100}, {})
    running = [GreedyLease(f"a{n}", "A", {"cpu": 10}) for n in range(5)]
    running.append(GreedyLease("b", "B", {"cpu": 20}))
    waiting = [GreedyLease("A1", "A", {"cpu": 1}), GreedyLease("B1", "B", {"cpu": 1})]

    def first(share_of: ShareOf) -> Decision:
        return run_greedy_pass(GreedyPolicy.DRF, [node], waiting, running, share_of=share_of)[0]

    assert first(ShareOf.ALL_LEASES) == Decision("B1", "n")
    assert first(ShareOf.LARGEST_LEASE) == Decision("A1", "n")
