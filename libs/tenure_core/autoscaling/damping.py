"""What keeps a size from swinging: recommendation windows and cool-downs (P14).

Works on any integer size, of a group or of a fleet. The state is durable, so a restart neither
forgets a cool-down nor starts one anew (P22).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tenure_core.autoscaling.group_config import Damping
from tenure_core.timebase import Millis


@dataclass(frozen=True, slots=True)
class DampingState:
    """Recent recommendations as (instant, size), oldest first, and the last changes of size."""

    recommendations: tuple[tuple[Millis, int], ...] = ()
    observed_since_ms: Millis | None = None
    last_out_ms: Millis | None = None
    last_in_ms: Millis | None = None


@dataclass(frozen=True, slots=True)
class Damped:
    """The size to aim at now, and why it differs from the recommendation, if it does."""

    size: int
    state: DampingState
    reason: str = "AS_RECOMMENDED"


def damped(
    state: DampingState, policy: Damping, *, recommended: int, present: int, now_ms: Millis
) -> Damped:
    """Return the size between `present` and `recommended` that the policy lets through.

    Scaling in takes the largest recommendation of its window, and only once the window has been
    observed in full; scaling out takes the smallest of its window. Then come cool-downs and
    steps. O(entries in the windows).
    """
    window = max(policy.in_window_ms, policy.out_window_ms)
    kept = tuple(entry for entry in state.recommendations if now_ms - entry[0] <= window)
    since = state.observed_since_ms if state.observed_since_ms is not None else now_ms
    state = replace(state, recommendations=(*kept, (now_ms, recommended)), observed_since_ms=since)
    if recommended < present:
        return _inwards(state, policy, present=present, now_ms=now_ms)
    if recommended > present:
        return _outwards(state, policy, present=present, now_ms=now_ms)
    return Damped(present, state)


def _inwards(state: DampingState, policy: Damping, *, present: int, now_ms: Millis) -> Damped:
    assert state.observed_since_ms is not None
    if now_ms - state.observed_since_ms < policy.in_window_ms:
        return Damped(present, state, "WINDOW_NOT_COVERED")
    changes = [at for at in (state.last_out_ms, state.last_in_ms) if at is not None]
    if changes and now_ms - max(changes) < policy.in_cooldown_ms:
        return Damped(present, state, "COOLING_DOWN")
    size = max(size for at, size in state.recommendations if now_ms - at <= policy.in_window_ms)
    size = min(size, present)
    if policy.in_step_max is not None and present - size > policy.in_step_max:
        return Damped(present - policy.in_step_max, state, "STEP_LIMITED")
    recommended = state.recommendations[-1][1]
    return Damped(size, state, "AS_RECOMMENDED" if size == recommended else "STABILISING")


def _outwards(state: DampingState, policy: Damping, *, present: int, now_ms: Millis) -> Damped:
    if state.last_out_ms is not None and now_ms - state.last_out_ms < policy.out_cooldown_ms:
        return Damped(present, state, "COOLING_DOWN")
    size = min(size for at, size in state.recommendations if now_ms - at <= policy.out_window_ms)
    size = max(size, present)
    if policy.out_step_max is not None and size - present > policy.out_step_max:
        return Damped(present + policy.out_step_max, state, "STEP_LIMITED")
    recommended = state.recommendations[-1][1]
    return Damped(size, state, "AS_RECOMMENDED" if size == recommended else "STABILISING")


def after_change(state: DampingState, *, grew: bool, shrank: bool, now_ms: Millis) -> DampingState:
    """Return the state once a change of size has been commanded."""
    if grew:
        state = replace(state, last_out_ms=now_ms)
    if shrank:
        state = replace(state, last_in_ms=now_ms)
    return state
