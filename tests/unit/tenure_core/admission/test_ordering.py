from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.admission import a_lease

from tenure_core.admission.amounts import fits, plus
from tenure_core.admission.fair_share import Factors
from tenure_core.admission.ordering import (
    Ordering,
    OrderingFacts,
    aged,
    dominant_share,
    ordered,
)

PAPER_CAPACITY = {"cpu": 9, "memory": 18}
A_TASK = {"cpu": 1, "memory": 4}
B_TASK = {"cpu": 3, "memory": 1}


def test_the_papers_worked_example_gives_three_tasks_to_a_and_two_to_b() -> None:
    """Ghodsi et al., NSDI 2011, section 4.1: <9 CPU, 18 GB>, A <1, 4>, B <3, 1>."""
    waiting = [a_lease(f"A{n}", owner="A", amounts=A_TASK) for n in range(9)]
    waiting += [a_lease(f"B{n}", owner="B", amounts=B_TASK) for n in range(9)]
    free, given_to = dict(PAPER_CAPACITY), {"A": 0, "B": 0}
    usage: dict[str, dict[str, int]] = {"A": {}, "B": {}}
    for lease in ordered(waiting, Ordering.DRF, OrderingFacts(capacity=PAPER_CAPACITY)):
        if not fits(lease.amounts, free):
            break
        free = {kind: free[kind] - lease.amounts[kind] for kind in free}
        given_to[lease.owner] += 1
        usage[lease.owner] = plus(usage[lease.owner], lease.amounts)

    assert given_to == {"A": 3, "B": 2}
    assert dominant_share(usage["A"], PAPER_CAPACITY) == Fraction(2, 3)
    assert dominant_share(usage["B"], PAPER_CAPACITY) == Fraction(2, 3)
    assert free["cpu"] == 0


def test_the_papers_schedule_alternates_as_its_table_1_says() -> None:
    waiting = [a_lease(f"B{n}", owner="B", amounts=B_TASK) for n in range(2)]
    waiting += [a_lease(f"A{n}", owner="A", amounts=A_TASK) for n in range(3)]

    sequence = ordered(waiting, Ordering.DRF, OrderingFacts(capacity=PAPER_CAPACITY))

    assert [lease.owner for lease in sequence] == ["B", "A", "A", "B", "A"]


def test_a_weight_of_two_entitles_to_twice_the_share() -> None:
    facts = OrderingFacts(capacity={"cpu": 12}, weights={"A": Fraction(2)})
    waiting = [a_lease(f"{o}{n}", owner=o, amounts={"cpu": 1}) for o in "AB" for n in range(12)]

    first = ordered(waiting, Ordering.DRF, facts)[:12]

    assert sum(lease.owner == "A" for lease in first) == 8


def test_higher_priority_goes_first_whatever_the_policy() -> None:
    waiting = [a_lease("low", priority=1), a_lease("high", priority=9), a_lease("also", priority=9)]

    for ordering in (Ordering.FIFO, Ordering.DRF, Ordering.FAIR_SHARE):
        sequence = ordered(waiting, ordering, OrderingFacts())
        assert [lease.id for lease in sequence] == ["high", "also", "low"]
    assert [lease.id for lease in ordered(waiting, Ordering.LIFO, OrderingFacts())] == [
        "also",
        "high",
        "low",
    ]


def test_what_a_higher_band_is_given_counts_in_the_next() -> None:
    waiting = [
        a_lease("urgent", owner="A", amounts={"cpu": 4}, priority=20),
        a_lease("A1", owner="A", amounts={"cpu": 1}),
        a_lease("B1", owner="B", amounts={"cpu": 1}),
    ]

    sequence = ordered(waiting, Ordering.DRF, OrderingFacts(capacity={"cpu": 8}))

    assert [lease.id for lease in sequence] == ["urgent", "B1", "A1"]


def test_who_has_no_history_goes_before_everybody_who_used_something() -> None:
    facts = OrderingFacts(factors={"heavy": Factors(owner=Decimal("0.5")), "light": Factors()})
    waiting = [a_lease("h", owner="heavy"), a_lease("n", owner="new"), a_lease("l", owner="light")]

    sequence = ordered(waiting, Ordering.FAIR_SHARE, facts)

    assert [lease.id for lease in sequence] == ["n", "l", "h"]


def test_kinds_without_capacity_do_not_count_in_a_share() -> None:
    assert dominant_share({"gpu": 5, "cpu": 1}, {"gpu": 0, "cpu": 4}) == Fraction(1, 4)
    assert dominant_share({}, {"cpu": 4}) == 0


def test_waiting_raises_a_priority_step_by_step_and_not_above_the_most() -> None:
    assert [aged(10, waited, 60_000, 12) for waited in (0, 59_999, 60_000, 600_000)] == [
        10,
        10,
        11,
        12,
    ]
    assert aged(90, 10**9, 60_000, 50) == 90


_requests = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.fixed_dictionaries({"cpu": st.integers(0, 4), "memory": st.integers(0, 4)}),
        st.sampled_from((5, 10)),
    ),
    max_size=25,
)


@settings(deadline=None)
@given(_requests)
def test_progressive_filling_always_serves_the_least_share_of_the_highest_band(
    requests: list[tuple[str, dict[str, int], int]],
) -> None:
    waiting = [
        a_lease(f"l{n}", owner=owner, amounts=amounts, priority=priority)
        for n, (owner, amounts, priority) in enumerate(requests)
    ]
    capacity = {"cpu": 16, "memory": 32}
    sequence = ordered(waiting, Ordering.DRF, OrderingFacts(capacity=capacity))

    assert sorted(x.id for x in sequence) == sorted(x.id for x in waiting)
    usage: dict[str, dict[str, int]] = {}
    left = list(waiting)
    for lease in sequence:
        top = max(other.priority for other in left)
        shares = {
            other.owner: dominant_share(usage.get(other.owner, {}), capacity)
            for other in left
            if other.priority == top
        }
        assert lease.priority == top
        assert shares[lease.owner] == min(shares.values())
        usage[lease.owner] = plus(usage.get(lease.owner, {}), lease.amounts)
        left.remove(lease)
