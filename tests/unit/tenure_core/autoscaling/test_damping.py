"""Damping: windows, cool-downs, steps."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given
from tests.unit.tenure_core.autoscaling.group_builder import (
    NOW,
)

from tenure_core.autoscaling.damping import DampingState, after_change, damped
from tenure_core.autoscaling.drain_time import (
    WorkerSample,
)
from tenure_core.autoscaling.group_config import (
    Damping,
    DrainBand,
)

NOW_MS = NOW * 1000
BAND = DrainBand()
samples = st.lists(
    st.builds(WorkerSample, st.integers(0, 9), st.fractions(0, 60_000)), min_size=1, max_size=9
)


@given(st.lists(st.tuples(st.integers(1, 60_000), st.integers(0, 30)), min_size=1, max_size=40))
def test_p14_scaling_in_takes_the_largest_recommendation_of_its_window(
    recommendations: list[tuple[int, int]],
) -> None:
    """A dip shorter than the window removes nothing; the size never overshoots either end."""
    policy = Damping(in_window_ms=300_000, out_window_ms=0, in_cooldown_ms=0)
    state, now_ms, present, seen = DampingState(), 0, 10, list[tuple[int, int]]()
    for gap, wanted in recommendations:
        now_ms += gap
        seen.append((now_ms, wanted))
        found = damped(state, policy, recommended=wanted, present=present, now_ms=now_ms)
        state = found.state
        window = [size for at, size in seen if now_ms - at <= 300_000]
        if wanted < present:
            covered = now_ms - seen[0][0] >= 300_000
            assert found.size == (min(present, max(window)) if covered else present)
        else:
            assert found.size == wanted
        present = found.size


def test_p14_cool_downs_survive_in_the_state() -> None:
    """After growing, shrinking rests; the instant is in the durable state (P22)."""
    policy = Damping(in_window_ms=0, in_cooldown_ms=60_000)
    state = after_change(DampingState(), grew=True, shrank=False, now_ms=0)

    early = damped(state, policy, recommended=1, present=4, now_ms=59_999)
    later = damped(state, policy, recommended=1, present=4, now_ms=60_000)

    assert (early.size, early.reason) == (4, "COOLING_DOWN")
    assert later.size == 1


def test_p28_steps_in_either_direction_are_limited() -> None:
    """No decision removes or adds more than the settings allow."""
    policy = Damping(in_window_ms=0, in_cooldown_ms=0, in_step_max=1, out_step_max=2)
    state = DampingState()

    assert damped(state, policy, recommended=1, present=9, now_ms=0).size == 8
    assert damped(state, policy, recommended=9, present=1, now_ms=0).size == 3
