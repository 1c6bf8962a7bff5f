from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from tenure_core.admission.lifecycle import (
    ENDED,
    LEASE_FORCIBLE,
    LEASE_STATE,
    STEPS,
    Outcome,
    Promotion,
    Stage,
    demoted,
    may_write,
    promotion,
)
from tenure_core.admission.member_events import GONE, Effect, MemberEvent, react
from tenure_core.admission.node_events import NodeEffect, NodeEvent, NodeState
from tenure_core.admission.node_events import react as node_reacts
from tenure_core.leases.states import ENDED as ENDED_STATES


def test_every_stage_belongs_to_a_state_of_the_lease_book_and_ends_with_ends() -> None:
    assert set(LEASE_STATE) == set(Stage)
    assert {stage for stage in Stage if LEASE_STATE[stage] in ENDED_STATES} == ENDED


def test_every_stage_of_a_lease_that_is_no_end_can_be_ended_by_force() -> None:
    of_members_only = {Stage.BUILDING, Stage.RESIZING, Stage.SUSPENDED}

    assert set(Stage) - ENDED - of_members_only == LEASE_FORCIBLE


def test_no_step_takes_or_leaves_an_end() -> None:
    for step in STEPS.values():
        assert not ENDED & set(step.leases or ())


def test_a_step_writes_nothing_for_an_outcome_that_it_does_not_name() -> None:
    assert STEPS["preempt"].written(Outcome.SUCCESS) is None


def test_a_priority_sinks_by_ten_and_not_below_zero() -> None:
    assert [demoted(n) for n in (25, 10, 3, 0)] == [15, 0, 0, 0]


def test_a_dead_member_goes_before_every_other_condition() -> None:
    for lease in (Stage.PREPARING, Stage.PULLING, Stage.STARTING, Stage.SCHEDULED):
        assert promotion(lease, [Stage.PREPARED, Stage.DONE]) is Promotion.MEMBER_DIED


def test_a_write_needs_the_stage_it_was_decided_on() -> None:
    assert may_write(Stage.WAITING, Stage.WAITING, Stage.SCHEDULED)
    assert not may_write(Stage.STOPPING, Stage.PREPARED, Stage.STARTING)


def test_an_end_is_never_overwritten_and_stopping_only_by_an_end() -> None:
    for found, decided_on, target in product(Stage, repeat=3):
        if not may_write(found, decided_on, target):
            continue
        assert found is decided_on
        assert found not in ENDED
        assert found is not Stage.STOPPING or target in ENDED


_of_members = st.sampled_from(
    [Stage.WAITING, Stage.PREPARING, Stage.PULLING, Stage.ACTIVE, Stage.STOPPING, Stage.FAILED]
)
_RESERVES = {Effect.RESERVE}
_RELEASES = {Effect.RELEASE_HELD, Effect.RELEASE_REQUESTED, Effect.RECOUNT_ALL}


@settings(deadline=None)
@given(st.lists(st.sampled_from(MemberEvent), max_size=20))
def test_whatever_events_arrive_in_whatever_order_room_is_released_exactly_once(
    events: list[MemberEvent],
) -> None:
    stage, reserved, released = Stage.WAITING, 0, 0
    for event in events:
        found = react(stage, event)
        reserved += bool(_RESERVES & set(found.effects))
        releases = bool(_RELEASES & set(found.effects))
        assert not releases or found.stage in GONE
        released += releases
        assert stage not in GONE or found.stage is stage
        assert stage is not Stage.STOPPING or found.stage in {stage, *GONE, Stage.FAILED}
        stage = found.stage
    assert reserved <= 1
    assert released <= 1
    assert stage not in GONE or released >= reserved


@settings(deadline=None)
@given(_of_members, st.sampled_from(MemberEvent))
def test_an_event_that_arrives_twice_does_what_it_does_once(
    stage: Stage, event: MemberEvent
) -> None:
    once = react(stage, event)
    again = react(once.stage, event)

    assert again.stage is once.stage or again.stage in GONE
    if event is not MemberEvent.FORCE_STOP:
        assert not _RELEASES & set(again.effects) or once.stage not in GONE


def test_whatever_lives_can_be_stopped() -> None:
    for stage in set(Stage) - GONE:
        assert react(stage, MemberEvent.FORCE_STOP).stage in GONE
        assert react(stage, MemberEvent.STOP).stage in {Stage.STOPPING, *GONE}


def test_a_node_that_comes_back_after_the_grace_time_is_reconciled_and_before_it_is_not() -> None:
    in_time = node_reacts(NodeState.LOST, NodeEvent.HEARTBEAT)
    too_late = node_reacts(NodeState.FENCED, NodeEvent.HEARTBEAT)

    assert NodeEffect.RECONCILE not in in_time.effects
    assert NodeEffect.RECONCILE in too_late.effects
    assert in_time.state is too_late.state is NodeState.ALIVE


def test_a_restarting_node_comes_back_by_its_heartbeat() -> None:
    assert node_reacts(NodeState.RESTARTING, NodeEvent.HEARTBEAT).state is NodeState.ALIVE


def test_the_end_of_the_grace_time_means_nothing_to_a_node_that_is_back() -> None:
    assert node_reacts(NodeState.ALIVE, NodeEvent.GRACE_OVER).effects == ()
