"""When agents are suspected and lost, and when their observer is."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure_core.agents.loss import Judgement, LossTiming, Outlook, awake, judge
from tenure_core.agents.states import AgentState

TIMING = LossTiming(heartbeat_ms=1_000, fence_ms=6_000, loss_ms=10_000)
START = 1_000_000


@dataclass
class Seen:
    agent: str
    contact_ms: int
    state: AgentState = AgentState.ALIVE
    steady_since_ms: int = 0
    suspicions: int = 1


def at(
    now_ms: int, agents: list[Seen], *, floor_ms: int = 0, look_ms: int | None = None
) -> Judgement:
    return judge(now_ms, agents, TIMING, Outlook(floor_ms, now_ms - 500, look_ms))


def test_lengths_must_grow_from_beat_to_fence_to_loss() -> None:
    for lengths in ((1_000, 1_500, 10_000), (1_000, 10_000, 10_000), (0, 5, 10)):
        with pytest.raises(ValueError, match="lengths must grow"):
            LossTiming(*lengths)


def test_one_late_beat_is_no_reason_and_two_missed_ones_are() -> None:
    seen = [
        Seen("on-time", START - 1_000),
        Seen("late", START - 2_400),
        Seen("missed", START - 2_500),
    ]
    judged = at(START, seen)
    assert (judged.alive, judged.suspect, judged.lost) == ((), ("missed",), ())


def test_a_suspected_agent_that_beats_is_alive_again() -> None:
    assert at(START, [Seen("a", START - 10, AgentState.SUSPECT)]).alive == ("a",)


def test_the_more_often_one_was_suspected_the_longer_it_must_be_steady() -> None:
    assert [TIMING.steady_ms(count) for count in (0, 1, 2, 3, 6, 99)] == [
        1_000, 1_000, 2_000, 4_000, 32_000, 32_000,
    ]  # fmt: skip
    flapping = Seen("a", START, AgentState.SUSPECT, START - 3_999, 3)
    assert at(START, [flapping]).alive == ()
    flapping.steady_since_ms -= 1
    assert at(START, [flapping]).alive == ("a",)


def test_an_agent_is_lost_at_its_loss_time_and_not_a_millisecond_before() -> None:
    assert at(START, [Seen("a", START - 9_999)]).lost == ()
    assert at(START, [Seen("a", START - 10_000)]).lost == ("a",)


def test_silence_from_before_the_observer_began_does_not_count() -> None:
    silent = [Seen("a", 0, AgentState.SUSPECT)]
    assert at(START, silent, floor_ms=START - 9_999).lost == ()
    assert at(START, silent, floor_ms=START - 10_000).lost == ("a",)
    # Nor is it proof of life.
    assert at(START, silent, floor_ms=START - 10).alive == ()


def test_an_observer_that_was_paused_begins_anew() -> None:
    silent = [Seen("a", START - 60_000)]
    paused = Outlook(0, START - 3_001)
    judged = judge(START, silent, TIMING, paused)
    assert (judged.lost, judged.outlook.floor_ms) == ((), START)
    assert awake(START, TIMING, Outlook(0, START - 3_000)).floor_ms == 0


def test_a_crowd_that_falls_silent_within_a_beat_is_looked_at_twice() -> None:
    together = [Seen(f"a{i}", START - 10_000 + i * 100) for i in range(9)]
    others = [Seen(f"b{i}", START) for i in range(8)]
    first = at(START, together + others)
    assert (first.lost, first.outlook.second_look_ms) == ((), START + 10_000)
    for seen in others:
        seen.contact_ms = START + 9_999
    before = at(START + 9_999, together + others, look_ms=first.outlook.second_look_ms)
    assert (before.lost, before.outlook.second_look_ms) == ((), START + 10_000)
    second = at(START + 10_000, together + others, look_ms=before.outlook.second_look_ms)
    assert second.lost == tuple(f"a{i}" for i in range(9))


def test_a_crowd_that_returns_clears_the_doubt() -> None:
    agents = [Seen(f"a{i}", START) for i in range(8)] + [Seen("gone", START - 10_000)]
    judged = at(START, agents, look_ms=START + 4_000)
    assert (judged.lost, judged.outlook.second_look_ms) == (("gone",), None)


def test_two_of_two_are_no_crowd() -> None:
    assert at(START, [Seen("a", 0), Seen("b", 0)]).lost == ("a", "b")


contacts = st.lists(st.integers(START - 30_000, START), max_size=30)


@given(
    contacts,
    st.integers(START - 30_000, START),
    st.none() | st.integers(START - 9_000, START + 9_000),
)
def test_no_agent_is_ever_lost_within_the_loss_time_of_its_contact(
    instants: list[int], floor_ms: int, look_ms: int | None
) -> None:
    agents = [Seen(f"a{i}", instant) for i, instant in enumerate(instants)]
    judged = at(START, agents, floor_ms=floor_ms, look_ms=look_ms)
    by_name = {seen.agent: seen for seen in agents}
    for name in judged.lost:
        assert START - max(by_name[name].contact_ms, floor_ms) >= TIMING.loss_ms
    assert not set(judged.lost) & set(judged.alive)
