from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tenure_core.admission.retries import (
    RetryLimits,
    RetryOverride,
    RetryPolicy,
    Try,
    TryOutcome,
    Verdict,
    after_failure,
    backoff,
    overdue,
)

FAIL, SKIP, SUCCESS = TryOutcome.FAIL, TryOutcome.SKIP, TryOutcome.SUCCESS


def _tries(*outcomes: tuple[str, TryOutcome]) -> list[Try]:
    return [Try(step, at, outcome) for at, (step, outcome) in enumerate(outcomes)]


def test_skips_other_steps_and_other_errors_do_not_give_back_attempts() -> None:
    earlier = _tries(("start", FAIL), ("start", SKIP), ("prepare", FAIL), ("start", FAIL))
    failed = Try("start", 9, FAIL, error="another")

    assert after_failure(earlier, failed, RetryLimits(attempts=2)) is Verdict.GIVE_UP
    assert after_failure(earlier, failed, RetryLimits(attempts=3)) is Verdict.NEED_RETRY


def test_a_success_of_the_step_starts_its_count_again() -> None:
    earlier = _tries(("start", FAIL), ("start", FAIL), ("start", SUCCESS))

    verdict = after_failure(earlier, Try("start", 9, FAIL), RetryLimits(attempts=2))

    assert verdict is Verdict.NEED_RETRY


def test_time_runs_from_the_first_failure() -> None:
    earlier = [Try("start", 100, FAIL), Try("start", 150, FAIL)]
    limits = RetryLimits(attempts=None, timeout=60)

    assert after_failure(earlier, Try("start", 160, FAIL), limits) is Verdict.NEED_RETRY
    assert after_failure(earlier, Try("start", 161, FAIL), limits) is Verdict.EXPIRED


def test_an_override_of_none_leaves_the_default() -> None:
    policy = RetryPolicy(RetryLimits(3, 10), {"start": RetryOverride(attempts=9)})

    assert policy.limits("start") == RetryLimits(9, 10)
    assert policy.limits("other") == RetryLimits(3, 10)


def test_a_wait_is_overdue_after_its_own_limit_and_never_without_one() -> None:
    assert [overdue(0, now, 60) for now in (59, 60, 61)] == [False, False, True]
    assert not overdue(0, 10**9, 0)


def test_the_wait_before_an_attempt_doubles_up_to_the_longest() -> None:
    assert [backoff(n, 2, 20) for n in (1, 2, 3, 4, 5, 500)] == [2, 4, 8, 16, 20, 20]


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(("start", "prepare")), st.sampled_from(TryOutcome))),
    st.integers(1, 4),
)
def test_no_interleaving_gives_a_step_more_failures_than_its_limit(
    history: list[tuple[str, TryOutcome]], attempts: int
) -> None:
    tries = _tries(*history)
    in_a_row = 0
    for place, entry in enumerate(tries):
        if entry.step != "start":
            continue
        if entry.outcome is SUCCESS:
            in_a_row = 0
        if entry.outcome is FAIL:
            verdict = after_failure(tries[:place], entry, RetryLimits(attempts))
            assert (verdict is Verdict.GIVE_UP) == (in_a_row >= attempts)
            in_a_row += 1
