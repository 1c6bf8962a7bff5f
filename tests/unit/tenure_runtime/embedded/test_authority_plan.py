"""When an authority is followed by the next, and who signs meanwhile."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure_core.timebase import Interval
from tenure_runtime.embedded.authority_plan import (
    AuthorityPlan,
    CertificateTerms,
    certificate_span,
    ends_soon,
    plan_authorities,
)

TERMS = CertificateTerms(authority_ms=900, certificate_ms=90, overlap_ms=50, early_ms=10)
FIRST, SECOND = Interval(0, 910), Interval(620, 1_530)


@pytest.mark.parametrize(
    ("known", "now_ms", "plan"),
    [
        ({}, 0, AuthorityPlan((), None, needs_new=True)),
        ({1: FIRST}, 10, AuthorityPlan((1,), 1, needs_new=False)),
        ({1: FIRST}, 606, AuthorityPlan((1,), 1, needs_new=False)),
        ({1: FIRST}, 607, AuthorityPlan((1,), 1, needs_new=True)),
        ({1: FIRST, 2: SECOND}, 630, AuthorityPlan((1, 2), 1, needs_new=False)),
        ({1: FIRST, 2: SECOND}, 679, AuthorityPlan((1, 2), 1, needs_new=False)),
        ({1: FIRST, 2: SECOND}, 680, AuthorityPlan((1, 2), 2, needs_new=False)),
        ({1: FIRST, 2: SECOND}, 910, AuthorityPlan((2,), 2, needs_new=False)),
        ({1: FIRST}, 5_000, AuthorityPlan((), None, needs_new=True)),
        # Ten days in a drawer: the old one ended before the new one was settled.
        ({1: FIRST, 2: Interval(900, 1_810)}, 912, AuthorityPlan((2,), 2, needs_new=False)),
    ],
)
def test_authorities_overlap(known: dict[int, Interval], now_ms: int, plan: AuthorityPlan) -> None:
    assert plan_authorities(known, now_ms, TERMS) == plan


@given(st.lists(st.integers(1, 400), max_size=40))
def test_whoever_looks_in_time_is_never_without_a_common_authority(steps: list[int]) -> None:
    """A certificate is trusted by everybody who looked within the overlap, as long as it lives."""
    now, known, seen = 10, {}, []
    for step in steps:
        now += min(step, TERMS.overlap_ms)
        plan = plan_authorities(known, now, TERMS)
        if plan.needs_new:
            start = now - TERMS.early_ms
            known[max(known, default=0) + 1] = Interval(start, now + TERMS.authority_ms)
            plan = plan_authorities(known, now, TERMS)
        assert plan.signer in plan.trusted
        assert not ends_soon(
            known[plan.trusted[-1]],
            now,
        )
        span = certificate_span(known[plan.signer], now, TERMS)
        assert known[plan.signer].covers(span)
        if seen:
            assert plan.signer in seen[-1]
        seen.append(plan.trusted)
