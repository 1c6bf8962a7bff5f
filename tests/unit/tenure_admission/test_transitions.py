"""The table of states is enforced pair by pair; what a transition keeps and drops."""

from __future__ import annotations

import pytest
from tests.unit.tenure_admission.records import a_record

from tenure_admission.records import ChangeVerdict, Limit, PendingChange
from tenure_admission.transitions import Book, Transition, record_all, recorded, refused
from tenure_core.leases.lease import HistoryEntry
from tenure_core.leases.states import ENDED, HOLDING, TRANSITIONS, WAITING, LeaseState
from tenure_core.timebase import Interval

S = LeaseState


def a_transition(before: LeaseState, after: LeaseState, **fields: object) -> Transition:
    """Return a transition that only the table can refuse."""
    anew = before in WAITING and after in HOLDING
    charge = Interval(10_000, 70_000) if after in HOLDING else None
    values = {"attempt": 2 if anew else 1, "charge": charge, **fields}
    return Transition("t", "x", 3, after, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize("before", list(LeaseState))
@pytest.mark.parametrize("after", list(LeaseState))
def test_exactly_the_changes_in_the_table_are_allowed(
    before: LeaseState, after: LeaseState
) -> None:
    refusal = refused(a_record(before), a_transition(before, after))

    stays = before is after and before not in ENDED
    allowed = after in TRANSITIONS[before] or stays
    assert (refusal is None) == allowed
    if refusal is not None:
        assert refusal.reason == "TRANSITION_NOT_ALLOWED"


@pytest.mark.parametrize("after", sorted(HOLDING, key=lambda state: state.value))
def test_what_holds_is_charged_and_nothing_else(after: LeaseState) -> None:
    record = recorded(a_record(S.ACTIVE), a_transition(S.ACTIVE, after, charge=None), now=9)
    assert record.charge == Interval(10_000, 70_000)

    for end in (*ENDED, S.QUEUED):
        assert recorded(record, a_transition(after, end), now=9).charge is None


def test_a_new_attempt_is_only_for_what_holds_after_it() -> None:
    def allowed(after: LeaseState, attempt: int) -> bool:
        step = a_transition(S.SCHEDULED, after, attempt=attempt)
        return refused(a_record(S.SCHEDULED), step) is None

    assert [allowed(S.SCHEDULED, attempt) for attempt in (0, 1, 2, 3)] == [
        False,
        True,
        True,
        False,
    ]
    assert [allowed(S.QUEUED, attempt) for attempt in (0, 1, 2)] == [False, True, False]


def test_the_end_is_now_unless_the_leader_knows_better() -> None:
    record = a_record(S.ACTIVE)

    assert recorded(record, a_transition(S.ACTIVE, S.DONE), now=9).lease.ended == 9
    known = a_transition(S.ACTIVE, S.DONE, ended=7)
    assert recorded(record, known, now=9).lease.ended == 7


def test_a_predicted_start_is_forgotten_when_the_lease_waits_again() -> None:
    record = a_record(S.SCHEDULED, predicted_start=50)

    assert recorded(record, a_transition(S.SCHEDULED, S.STARTING), 9).lease.predicted_start == 50
    assert recorded(record, a_transition(S.SCHEDULED, S.QUEUED), 9).lease.predicted_start is None


def test_a_verdict_must_name_the_change_that_is_undecided() -> None:
    from dataclasses import replace

    asked = PendingChange("c1", 1, node_count=5)
    record = replace(a_record(S.ACTIVE), change=asked)

    def refusal(verdict: PendingChange) -> bool:
        return refused(record, a_transition(S.ACTIVE, S.ACTIVE, verdict=verdict)) is not None

    granted = PendingChange("c1", verdict=ChangeVerdict.GRANTED)
    assert not refusal(granted)
    assert refusal(PendingChange("c2", verdict=ChangeVerdict.GRANTED))
    assert refusal(PendingChange("c1"))
    after = recorded(record, a_transition(S.ACTIVE, S.ACTIVE, verdict=granted), 9)
    assert after.lease.spec.node_count == 5
    again = a_transition(S.ACTIVE, S.ACTIVE, verdict=granted)
    assert "undecided" in str(refused(after, replace(again, version=4)))


def test_transitions_of_one_call_build_on_one_another() -> None:
    from dataclasses import replace

    book = Book({"x": a_record(S.ACTIVE)}, [Limit("owner", "ann", "cpu", 1)])
    stop = replace(a_transition(S.ACTIVE, S.STOPPING), transition_id="a")
    done = replace(a_transition(S.STOPPING, S.DONE), transition_id="b", version=4)
    late = replace(a_transition(S.DONE, S.QUEUED), transition_id="c", version=5)

    result = record_all(book, [stop, done, stop, late], now=9)

    assert [refusal and refusal.reason for refusal in result.refusals] == [
        None,
        None,
        None,
        "TRANSITION_NOT_ALLOWED",
    ]
    lease = result.changed["x"].lease
    assert (lease.state, lease.version) == (S.DONE, 5)
    assert [entry.transition_id for entry in lease.history] == ["a", "b"]


def test_a_repeat_is_known_by_its_id_whatever_its_version() -> None:
    entry = HistoryEntry(1, S.ACTIVE, "", "", 1, "t")
    book = Book({"x": a_record(S.ACTIVE, history=(entry,), version=9)})

    result = record_all(book, [a_transition(S.STARTING, S.ACTIVE)], now=9)

    assert (result.refusals, result.changed) == ((None,), {})
