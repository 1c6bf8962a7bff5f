"""The charge ledger's arithmetic, against counting instant by instant."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tenure_admission.charges import Charge, Excess, exceeded, peak, usage_deltas
from tenure_admission.records import Limit
from tenure_core.timebase import FOREVER, Interval

NOW = 5

charges = st.lists(
    st.builds(
        lambda owner, start, length, amount: (owner, start, start + length, amount),
        st.sampled_from("ab"),
        st.integers(0, 20),
        st.integers(1, 10),
        st.integers(1, 5),
    ),
    max_size=6,
).map(
    lambda items: [
        Charge(f"l{n}", owner, "p", Interval(start, end), {"cpu": amount})
        for n, (owner, start, end, amount) in enumerate(items)
    ]
)


def level(items: list[Charge], instant: int) -> int:
    """Return what is charged at an instant; what should have ended but is held counts on."""
    return sum(
        item.amounts["cpu"]
        for item in items
        if item.interval.start <= instant
        and (instant < item.interval.end or item.interval.end <= NOW)
    )


@given(charges, st.integers(0, 30), st.integers(1, 10))
@settings(max_examples=200, deadline=None)
def test_the_peak_is_the_largest_level_at_any_instant(
    items: list[Charge], start: int, length: int
) -> None:
    span = Interval(start, start + length)

    expected = max(level(items, instant) for instant in range(span.start, span.end))

    assert peak(items, "cpu", span, NOW) == expected


@given(charges, charges)
@settings(max_examples=100, deadline=None)
def test_usage_changes_by_what_comes_less_what_goes(
    before: list[Charge], after: list[Charge]
) -> None:
    pairs = [(item, None) for item in before] + [(None, item) for item in after]

    deltas = usage_deltas(pairs)

    for owner in "ab":
        expected = sum(c.amounts["cpu"] for c in after if c.owner == owner) - sum(
            c.amounts["cpu"] for c in before if c.owner == owner
        )
        assert deltas.get(("owner", owner, "cpu"), 0) == expected
    assert 0 not in deltas.values()


def test_replacing_a_charge_by_itself_changes_nothing() -> None:
    charge = Charge("l", "a", "p", Interval(1, 2), {"cpu": 3})

    assert usage_deltas([(charge, charge)]) == {}


def test_a_limit_counts_others_but_not_what_the_lease_held_before() -> None:
    held = Charge("mine", "a", "p", Interval(0, FOREVER), {"cpu": 4})
    other = Charge("other", "a", "q", Interval(10, 20), {"cpu": 4})
    foreign = Charge("foreign", "b", "p", Interval(0, 100), {"cpu": 100})
    wanted = Charge("mine", "a", "p", Interval(5, 15), {"cpu": 5})
    limit = Limit("owner", "a", "cpu", 9)

    assert exceeded(wanted, [held, other, foreign], [limit], NOW) is None
    tighter = Limit("owner", "a", "cpu", 8)
    assert exceeded(wanted, [held, other, foreign], [tighter], NOW) == Excess(
        tighter, used=4, asked=5, at=10
    )
    assert exceeded(wanted, [other], [Limit("owner", "b", "cpu", 0)], NOW) is None
    project = Limit("project", "p", "cpu", 50)
    assert exceeded(wanted, [foreign], [project], NOW) == Excess(project, used=100, asked=5, at=5)
