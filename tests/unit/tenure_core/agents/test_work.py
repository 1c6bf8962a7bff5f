"""How commands and reports move an allocation."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

from tenure_core.agents.work import (
    Allocation,
    AllocationState,
    Command,
    Report,
    ReportKind,
    Slot,
    Verb,
    after_command,
    after_report,
    outcome_of,
)
from tenure_core.leases.lease import OnLoss

SLOT = Slot("l1", 1, 0)


def told(verb: Verb, agent: str = "a1") -> Command:
    return Command("c", agent, SLOT, verb, 1, 60_000, OnLoss.STOP, b"", b"")


def said(kind: ReportKind, sequence: int = 1) -> Report:
    return Report(f"r{sequence}", "a1", "c", SLOT, kind, sequence, b"")


def started() -> Allocation:
    allocation = after_command(None, told(Verb.START), "main")
    assert isinstance(allocation, Allocation)
    return allocation


def test_a_start_makes_the_slot_wanted_and_a_prepare_does_not() -> None:
    assert started().wanted
    prepared = after_command(None, told(Verb.PREPARE), "main")
    assert isinstance(prepared, Allocation)
    assert (prepared.live, prepared.wanted) == (True, False)
    begun = after_command(prepared, told(Verb.START), "main")
    assert isinstance(begun, Allocation)
    assert begun.wanted


def test_reports_move_the_state_and_an_end_is_final() -> None:
    allocation = started()
    for sequence, (kind, state) in enumerate(
        [
            (ReportKind.STARTED, AllocationState.RUNNING),
            (ReportKind.SUSPENDED, AllocationState.SUSPENDED),
            (ReportKind.RESUMED, AllocationState.RUNNING),
            (ReportKind.ENDED, AllocationState.ENDED),
        ],
        1,
    ):
        allocation = after_report(allocation, said(kind, sequence), None)
        assert (allocation.state, allocation.last) == (state, said(kind, sequence))
    assert not allocation.live
    assert after_report(allocation, said(ReportKind.STARTED, 9), None) == allocation


def test_the_order_of_arrival_of_reports_before_the_end_does_not_matter() -> None:
    reports = [
        said(ReportKind.STARTED, 1),
        said(ReportKind.SUSPENDED, 2),
        said(ReportKind.RESUMED, 3),
    ]
    ends = set()
    for order in permutations(reports):
        allocation = started()
        for report in order:
            allocation = after_report(allocation, report, None)
        ends.add((allocation.state, allocation.last))
    assert ends == {(AllocationState.RUNNING, reports[2])}


def test_a_refusal_ends_what_it_keeps_from_starting_and_nothing_else() -> None:
    assert not after_report(started(), said(ReportKind.REFUSED), Verb.START).live
    running = after_report(started(), said(ReportKind.STARTED), Verb.START)
    refused = after_report(running, said(ReportKind.REFUSED, 2), Verb.SUSPEND)
    # Whoever asks for the last report learns that it runs, not what it would not do.
    assert refused is running


def test_what_was_refused_may_be_asked_for_again_but_a_start() -> None:
    refused = said(ReportKind.REFUSED)
    assert outcome_of(refused, Verb.STOP) == outcome_of(refused, Verb.SUSPEND) == "REFUSED"
    assert outcome_of(refused, Verb.START) == "ANSWERED"
    assert outcome_of(said(ReportKind.ENDED), Verb.STOP) == "ANSWERED"


def test_a_slot_that_runs_is_not_given_to_another_agent() -> None:
    assert after_command(started(), told(Verb.START, "a2"), "main") == "ALLOCATION_ELSEWHERE"
    prepared = after_command(None, told(Verb.PREPARE), "main")
    assert isinstance(prepared, Allocation)
    moved = after_command(prepared, told(Verb.START, "a2"), "main")
    assert isinstance(moved, Allocation)
    assert moved.agent == "a2"


def test_the_end_of_a_slot_that_was_only_told_to_stop_is_kept() -> None:
    stopped = after_command(None, told(Verb.STOP), "main")
    assert isinstance(stopped, Allocation)
    assert (stopped.live, stopped.last) == (False, None)
    end = said(ReportKind.ENDED)
    ended = after_report(stopped, end, Verb.STOP)
    assert (ended.state, ended.live, ended.last) == (AllocationState.ENDED, False, end)
    assert after_report(ended, said(ReportKind.ENDED, 9), Verb.STOP) == ended


def test_what_ended_or_was_abandoned_never_starts_again_under_its_attempt() -> None:
    ended = after_report(started(), said(ReportKind.ENDED), None)
    assert after_command(ended, told(Verb.START), "main") == "ALLOCATION_ENDED"
    abandoned = replace(started(), abandoned=True)
    assert after_command(abandoned, told(Verb.START), "main") == "ALLOCATION_ENDED"
    refused = after_report(started(), said(ReportKind.REFUSED), Verb.START)
    assert isinstance(after_command(refused, told(Verb.START), "main"), Allocation)
