from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from tenure_core.admission.budgets import Budget, day_of, month_of, split
from tenure_core.admission.cohorts import Borrowing, CohortMember, judge, unused
from tenure_core.admission.quota_timeline import LimitPlan, Overrun, QuotaTimeline
from tenure_core.admission.quotas import Excess
from tenure_core.timebase import DAY_MS, Interval

CPU = "cpu"


def test_a_limit_must_hold_at_every_instant_of_the_span() -> None:
    nights = LimitPlan({CPU: 4}, ((Interval(10, 20), {CPU: 8}),))
    quota = QuotaTimeline(nights)

    assert quota.charge("night", Interval(10, 20), {CPU: 8}) is None
    assert quota.charge("over", Interval(19, 21), {CPU: 1}) == Overrun(19, (Excess(CPU, 8, 1, 8),))
    assert quota.charge("long", Interval(20, 30), {CPU: 5}) == Overrun(20, (Excess(CPU, 0, 5, 4),))
    assert quota.charge("day", Interval(20, 30), {CPU: 4}) is None


def test_charging_anew_replaces_so_a_lease_can_be_moved_into_its_own_time() -> None:
    quota = QuotaTimeline(LimitPlan({CPU: 4}))
    quota.charge("l", Interval(0, 10), {CPU: 4})

    assert quota.charge("l", Interval(5, 15), {CPU: 4}) is None
    assert [quota.held_at(t).get(CPU, 0) for t in (4, 5, 14, 15)] == [0, 4, 4, 0]


def test_an_early_end_gives_the_rest_back_once() -> None:
    quota = QuotaTimeline(LimitPlan({CPU: 4}))
    quota.charge("l", Interval(0, 10), {CPU: 4})

    assert [quota.release("l", 6), quota.release("l", 6)] == [True, False]
    assert [quota.held_at(t).get(CPU, 0) for t in (5, 6)] == [4, 0]
    assert quota.release("l", 0)
    assert quota.charges == {}


def test_lowering_a_limit_touches_nothing_that_is_charged_and_says_where_it_is_over() -> None:
    quota = QuotaTimeline(LimitPlan({CPU: 8}))
    quota.charge("l", Interval(0, 10), {CPU: 8})

    quota.plan = LimitPlan({CPU: 4})

    assert quota.held_at(0) == {CPU: 8}
    assert quota.over(Interval(0, 20)) == [Overrun(0, (Excess(CPU, 0, 8, 4),))]
    assert quota.refusal("more", Interval(10, 20), {CPU: 4}) is None


_spans = st.tuples(st.integers(0, 12), st.integers(1, 6)).map(
    lambda pair: Interval(pair[0], pair[0] + pair[1])
)
_limits = st.integers(0, 6) | st.none()


@settings(deadline=None)
@given(
    _limits,
    st.lists(st.tuples(_spans, _limits), max_size=3),
    st.lists(st.tuples(st.sampled_from("abcd"), _spans, st.integers(1, 4)), max_size=8),
)
def test_no_instant_is_ever_over_the_limit_and_nothing_that_fits_is_refused(
    base: int | None,
    changes: list[tuple[Interval, int | None]],
    charges: list[tuple[str, Interval, int]],
) -> None:
    plan = LimitPlan({CPU: base}, tuple((span, {CPU: limit}) for span, limit in changes))
    quota = QuotaTimeline(plan)
    for lease, span, cpu in charges:
        others = {n: c for n, c in quota.charges.items() if n != lease}
        fits = all(
            (limit := plan.at(t)[CPU]) is None
            or cpu + sum(a[CPU] for during, a in others.values() if during.contains(t)) <= limit
            for t in range(span.start, span.end)
        )
        assert (quota.charge(lease, span, {CPU: cpu}) is None) == fits
        assert quota.over(Interval(0, 30)) == []


def test_a_month_is_a_calendar_month() -> None:
    leap_day = (2 * 365 + 31 + 28) * DAY_MS  # 29 February 1972

    assert month_of(leap_day).duration_ms == 29 * DAY_MS
    assert month_of(0) == Interval(0, 31 * DAY_MS)


def test_a_booking_is_charged_to_every_period_that_it_touches() -> None:
    budget = Budget({CPU: 10 * DAY_MS}, day_of)
    span = Interval(DAY_MS // 2, 2 * DAY_MS)

    assert budget.charge("l", span, {CPU: 10, "memory": 1}) == ()
    assert budget.left(0) == {CPU: 5 * DAY_MS}
    assert budget.left(DAY_MS) == {CPU: 0}
    refused = budget.charge("more", Interval(DAY_MS, DAY_MS + 1), {CPU: 1})
    assert refused == (Excess(CPU, 10 * DAY_MS, 1, 10 * DAY_MS),)


def test_what_an_early_end_leaves_unused_comes_back() -> None:
    budget = Budget({CPU: DAY_MS}, day_of)
    budget.charge("l", Interval(0, DAY_MS), {CPU: 1})

    assert [budget.settle("l", 100), budget.settle("l", 100)] == [True, False]
    assert budget.charged(0) == {CPU: 100}


@settings(deadline=None)
@given(st.integers(0, 10**12), st.integers(1, 200 * DAY_MS))
def test_a_span_is_cut_into_pieces_that_follow_one_another_and_lie_in_one_period(
    start: int, length: int
) -> None:
    pieces = split(Interval(start, start + length), month_of)

    assert pieces[0].start == start
    assert pieces[-1].end == start + length
    assert all(a.end == b.start for a, b in pairwise(pieces))
    assert all(month_of(p.start) == month_of(p.end - 1) for p in pieces)


def _cohort(**members: tuple[int, int]) -> dict[str, CohortMember]:
    return {n: CohortMember({CPU: own}, held={CPU: held}) for n, (own, held) in members.items()}


def test_what_others_leave_unused_may_be_borrowed_up_to_the_limit() -> None:
    cohort = _cohort(a=(4, 4), b=(4, 1))
    careful = {**cohort, "a": CohortMember({CPU: 4}, borrow_max={CPU: 2}, held={CPU: 4})}

    assert judge(cohort, "a", {CPU: 3}).granted
    assert judge(cohort, "a", {CPU: 4}).over_cohort == (Excess(CPU, 5, 4, 8),)
    assert judge(careful, "a", {CPU: 3}).over_member == (Excess(CPU, 4, 3, 6),)
    assert unused(cohort) == {CPU: 3}


def test_what_is_a_members_own_comes_back_from_those_who_borrow_most() -> None:
    cohort = _cohort(wants=(6, 0), little=(8, 10), much=(2, 5), nothing=(0, 1))

    verdict = judge(cohort, "wants", {CPU: 5})

    assert verdict == Borrowing(
        takes_back={"nothing": {CPU: 1}, "much": {CPU: 3}, "little": {CPU: 1}}
    )
    assert not verdict.granted


_members = st.dictionaries(
    st.sampled_from("abcd"),
    st.tuples(st.integers(0, 6), st.integers(0, 9)),
    min_size=1,
)


@settings(deadline=None)
@given(_members, st.integers(1, 6))
def test_nobody_is_refused_what_is_his_own_and_nobody_gives_more_than_he_borrowed(
    members: dict[str, tuple[int, int]], wanted: int
) -> None:
    cohort = _cohort(**members)
    total_own = sum(own for own, _ in members.values())
    if sum(held for _, held in members.values()) > total_own:
        return
    for name, (own, held) in members.items():
        verdict = judge(cohort, name, {CPU: wanted})
        free = unused(cohort)[CPU]
        assert verdict.granted == (wanted <= free)
        if held + wanted <= own and not verdict.granted:
            back = {n: amounts[CPU] for n, amounts in verdict.takes_back.items()}
            assert sum(back.values()) == wanted - free
            assert all(part <= cohort[n].borrowed(CPU) for n, part in back.items())
            assert verdict.over_cohort == ()
