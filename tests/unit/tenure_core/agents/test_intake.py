"""What one stream may send, which states follow which, and what is believed of a machine."""

from __future__ import annotations

import pytest

from tenure_core.agents.agent import believed_capacity
from tenure_core.agents.intake import Intake, IntakeLimits
from tenure_core.agents.states import TRANSITIONS, AgentState, may_change
from tenure_core.errors import Exhausted, WrongState
from tenure_core.resources import AMOUNT_MAX, ResourceVector

LIMITS = IntakeLimits(burst_bytes=100, bytes_per_s=10, message_weight=10, message_bytes_max=50)


def test_a_burst_is_allowed_and_then_the_steady_rate() -> None:
    intake = Intake(LIMITS, 0)
    for _ in range(10):
        intake.take(3, 0)
    with pytest.raises(Exhausted) as flooded:
        intake.take(3, 999)
    assert flooded.value.reason == "FLOODING"
    intake = Intake(LIMITS, 0)
    for _ in range(10):
        intake.take(3, 0)
    for second in range(1, 100):
        intake.take(3, second * 1_000)


def test_a_large_message_is_refused_at_any_rate() -> None:
    intake = Intake(LIMITS, 0)
    intake.take(50, 0)
    with pytest.raises(Exhausted) as refused:
        intake.take(51, 10**9)
    assert refused.value.reason == "MESSAGE_TOO_LARGE"


def test_beats_only_go_forward() -> None:
    intake = Intake(LIMITS, 0)
    intake.beat(1)
    intake.beat(5)
    for sequence in (5, 1, 0, -1):
        with pytest.raises(WrongState) as refused:
            intake.beat(sequence)
        assert refused.value.reason == "SEQUENCE_BACKWARD"
    intake.beat(6)


def test_only_a_suspected_agent_is_lost_and_a_retired_one_never_returns() -> None:
    assert [s for s in AgentState if may_change(s, AgentState.LOST)] == [AgentState.SUSPECT]
    assert TRANSITIONS[AgentState.RETIRED] == frozenset()
    assert may_change(AgentState.LOST, AgentState.ALIVE)


def test_capacity_is_cut_to_its_limits_and_nonsense_left_out() -> None:
    claimed = {"cpu": 10**9, "memory": -1, "disk": 5, "x/y": AMOUNT_MAX + 1, "": 4, "UPPER": 1}
    expected = ResourceVector({"cpu": 4_096_000, "disk": 5, "x/y": AMOUNT_MAX})
    assert believed_capacity(claimed) == expected
    assert len(believed_capacity({f"kind{i:03}": 1 for i in range(500)})) == 32
