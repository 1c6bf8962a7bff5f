"""Limits that vary over time, and where a subject stands under them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tenure_admission.charges import Charge, counting, exceeded
from tenure_admission.quotas import (
    Holdings,
    Quota,
    ResourceStanding,
    Standing,
    WaitingLease,
    standing_of,
)
from tenure_admission.records import Limit
from tenure_core.timebase import Interval

NOW = 5

spans = st.builds(
    lambda start, length: Interval(start, start + length), st.integers(0, 30), st.integers(1, 20)
)
limits = st.lists(
    st.builds(
        lambda number, amount, valid: Limit("owner", "a", "cpu", amount, f"q{number}", valid),
        st.integers(0, 9),
        st.integers(0, 12),
        st.none() | spans,
    ),
    max_size=5,
)
charges = st.lists(st.tuples(spans, st.integers(1, 5)), max_size=5)


def allowed_at(given: list[Limit], at: int) -> int | None:
    """Say by the rule as it is told to people what counts at an instant."""
    special = [each.amount for each in given if each.valid is not None and each.valid.contains(at)]
    usual = [each.amount for each in given if each.valid is None]
    return min(special or usual, default=None)


@given(limits, st.integers(0, 60))
@settings(max_examples=300, deadline=None)
def test_the_smallest_of_those_for_the_instant_counts_before_any_without_a_span(
    given_limits: list[Limit], at: int
) -> None:
    found = counting(given_limits, at)

    assert (None if found is None else found.amount) == allowed_at(given_limits, at)
    assert found is None or found.valid is None or found.valid.contains(at)


@given(limits, charges, spans, st.integers(1, 5))
@settings(max_examples=300, deadline=None)
def test_a_charge_is_refused_when_at_some_instant_it_would_be_too_much(
    given_limits: list[Limit], held: list[tuple[Interval, int]], span: Interval, asked: int
) -> None:
    wanted = Charge("mine", "a", "p", Interval(span.start + 10, span.end + 10), {"cpu": asked})
    others = [
        Charge(f"l{number}", "a", "p", Interval(each.start + 10, each.end + 10), {"cpu": amount})
        for number, (each, amount) in enumerate(held)
    ]

    over = exceeded(wanted, others, given_limits, NOW)

    def used(at: int) -> int:
        return sum(each.amounts["cpu"] for each in others if each.interval.contains(at))

    too_much = [
        at
        for at in range(wanted.interval.start, wanted.interval.end)
        if (most := allowed_at(given_limits, at)) is not None and used(at) + asked > most
    ]
    assert (over is not None) == bool(too_much)
    if over is not None:
        assert over.at in too_much
        assert (over.used, over.limit.amount) == (used(over.at), allowed_at(given_limits, over.at))


def test_a_limit_of_another_subject_or_resource_is_not_looked_at() -> None:
    wanted = Charge("mine", "a", "p", Interval(10, 20), {"cpu": 5})
    foreign = [
        Limit("owner", "b", "cpu", 0),
        Limit("project", "q", "cpu", 0),
        Limit("owner", "a", "memory", 0),
        Limit("owner", "a", "open_leases", 0),
    ]

    assert exceeded(wanted, [], foreign, NOW) is None


def test_a_standing_says_what_is_used_what_counts_when_it_is_over_and_who_waits() -> None:
    usual = Quota("usual", ("owner", "a"), {"cpu": 5, "open_leases": 1}, None, 1, 0, 0)
    night = Quota("night", ("owner", "a"), {"cpu": 2}, Interval(50, 60), 2, 0, 0)
    holdings = Holdings(
        subject=("owner", "a"),
        quotas=[usual, night],
        ledger={"cpu": 7, "gpu": 0},
        charges=[
            Charge("l1", "a", "p", Interval(0, 10), {"cpu": 3, "held_leases": 1}),
            Charge("l2", "a", "p", Interval(40, 70), {"cpu": 4, "held_leases": 1}),
        ],
        open_count=4,
        waiting_count=2,
        waiting=[
            WaitingLease("small", {"cpu": 2, "held_leases": 1}),
            WaitingLease("large", {"cpu": 3, "held_leases": 1}),
        ],
    )

    assert standing_of(holdings, NOW) == Standing(
        ("owner", "a"),
        (
            ResourceStanding("cpu", 3, 4, 40, 7, usual.as_limits()[0], over_at=50),
            ResourceStanding("open_leases", 4, 4, NOW, 0, usual.as_limits()[1], over_at=NOW),
            ResourceStanding("waiting_leases", 2, 2, NOW, 0, None, over_at=None),
        ),
        held_back=("large",),
    )
