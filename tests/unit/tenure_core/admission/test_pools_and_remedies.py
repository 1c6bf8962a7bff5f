from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.admission import a_lease, a_node

from tenure_core.admission.pool_choice import PoolOutlook, PoolPolicy, pools_for
from tenure_core.admission.remedies import Remedy, Suggestion, Terms, suggestions

MINUTE = 60_000


def test_only_pools_that_could_ever_hold_the_lease_are_offered() -> None:
    allowed = {
        "small": PoolOutlook([a_node("s", cpu=2)]),
        "busy": PoolOutlook([a_node("b", cpu=8, taken={"cpu": 8})]),
        "free": PoolOutlook([a_node("f", cpu=8)]),
    }
    lease = a_lease(amounts={"cpu": 4})

    assert pools_for(lease, allowed, PoolPolicy.AS_LISTED) == ["busy", "free"]
    assert pools_for(lease, allowed, PoolPolicy.EMPTIEST) == ["free", "busy"]


def test_who_waits_in_a_pool_counts_and_a_cordoned_one_comes_last() -> None:
    allowed = {
        "cordoned": PoolOutlook([a_node("c", cpu=8)], cordoned=True),
        "queued": PoolOutlook([a_node("q", cpu=8)], waiting={"cpu": 20}),
        "half": PoolOutlook([a_node("h", cpu=8, taken={"cpu": 4})]),
    }

    assert pools_for(a_lease(), allowed, PoolPolicy.EMPTIEST) == ["half", "queued", "cordoned"]


def test_the_smallest_change_of_each_sort_is_suggested() -> None:
    asked = Terms("a", 8, 60 * MINUTE)

    def could_start(terms: Terms) -> bool:
        return terms.pool == "c" or terms.node_count <= 5 or terms.duration_ms <= 25 * MINUTE

    found = suggestions(asked, "abcd", could_start, step_ms=10 * MINUTE, least_ms=5 * MINUTE)

    assert found == [
        Suggestion(Remedy.FEWER_NODES, Terms("a", 5, 60 * MINUTE)),
        Suggestion(Remedy.SHORTER, Terms("a", 8, 20 * MINUTE)),
        Suggestion(Remedy.OTHER_POOL, Terms("c", 8, 60 * MINUTE)),
    ]


def test_what_does_not_help_is_not_suggested() -> None:
    one = Terms("a", 1, MINUTE)

    assert suggestions(one, ["a"], lambda terms: True, step_ms=MINUTE, least_ms=MINUTE) == []


@settings(deadline=None)
@given(st.integers(1, 5_000), st.integers(0, 5_000))
def test_fewer_nodes_are_found_with_few_questions(asked: int, room: int) -> None:
    questions: list[Terms] = []

    def could_start(terms: Terms) -> bool:
        questions.append(terms)
        return terms.node_count <= room and terms.duration_ms == MINUTE

    found = suggestions(Terms("a", asked, MINUTE), [], could_start, step_ms=MINUTE, least_ms=MINUTE)

    best = min(room, asked - 1)
    expected = [Suggestion(Remedy.FEWER_NODES, Terms("a", best, MINUTE))] if best > 0 else []
    assert found == expected
    assert len(questions) <= 2 + asked.bit_length()
