from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.admission import a_lease, a_node

from tenure_core.admission.pool_choice import PoolOutlook, PoolPolicy, pools_for
from tenure_core.admission.remedies import Remedy, Suggestion, Terms, elsewhere, suggestions

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


def test_the_smallest_change_of_each_sort_is_suggested_the_soonest_first() -> None:
    asked = Terms(8, 60 * MINUTE)

    def start_of(terms: Terms) -> int:
        if terms.node_count <= 5:
            return 0
        return 20 if terms.duration_ms <= 25 * MINUTE else 90

    found = suggestions(asked, asked, start_of, step_ms=10 * MINUTE, least_ms=5 * MINUTE)

    assert found == [
        Suggestion(Remedy.FEWER_NODES, Terms(5, 60 * MINUTE), 0),
        Suggestion(Remedy.SHORTER, Terms(8, 20 * MINUTE), 20),
    ]


def test_where_neither_helps_alone_both_are_lessened_slots_as_little_as_can_be() -> None:
    asked = Terms(8, 60 * MINUTE)

    def start_of(terms: Terms) -> int:
        return 0 if terms.node_count <= 5 and terms.duration_ms <= 25 * MINUTE else 90

    found = suggestions(asked, asked, start_of, step_ms=MINUTE, least_ms=MINUTE)

    assert found == [Suggestion(Remedy.FEWER_AND_SHORTER, Terms(5, 25 * MINUTE), 0)]


def test_what_does_not_help_is_not_suggested() -> None:
    one = Terms(1, MINUTE)
    two = Terms(2, 2 * MINUTE)

    assert suggestions(one, one, lambda terms: 0, step_ms=MINUTE, least_ms=MINUTE) == []
    assert suggestions(two, two, lambda terms: 7, step_ms=MINUTE, least_ms=MINUTE) == []
    assert suggestions(two, two, lambda terms: None, step_ms=MINUTE, least_ms=MINUTE) == []


def test_what_a_quota_allows_bounds_what_is_suggested() -> None:
    asked = Terms(8, 10 * MINUTE)
    found = suggestions(asked, Terms(3, 0), lambda terms: 0, step_ms=MINUTE, least_ms=MINUTE)

    assert found == [Suggestion(Remedy.FEWER_NODES, Terms(3, 10 * MINUTE), 0)]
    none = Terms(0, 0)
    assert suggestions(asked, none, lambda terms: 0, step_ms=MINUTE, least_ms=MINUTE) == []


def test_another_pool_is_the_one_where_it_starts_soonest_if_that_is_sooner() -> None:
    asked = Terms(8, MINUTE)
    starts = {"a": 30, "b": None, "c": 20}

    found = elsewhere(Remedy.OTHER_POOL, asked, starts, None)

    assert found == [Suggestion(Remedy.OTHER_POOL, asked, 20, "c")]
    assert elsewhere(Remedy.OTHER_POOL, asked, starts, 20) == []
    assert elsewhere(Remedy.OTHER_POOL, asked, {"b": None}, None) == []


@settings(deadline=None)
@given(st.integers(1, 5_000), st.integers(0, 5_000))
def test_fewer_nodes_are_found_with_few_questions(asked: int, room: int) -> None:
    questions: list[Terms] = []

    def start_of(terms: Terms) -> int | None:
        questions.append(terms)
        return 0 if terms.node_count <= room and terms.duration_ms == MINUTE else None

    wanted = Terms(asked, MINUTE)
    found = suggestions(wanted, wanted, start_of, step_ms=MINUTE, least_ms=MINUTE)

    best = min(room, asked - 1) if room < asked else 0
    expected = [Suggestion(Remedy.FEWER_NODES, Terms(best, MINUTE), 0)] if best > 0 else []
    assert found == expected
    assert len(questions) <= 4 + asked.bit_length()
