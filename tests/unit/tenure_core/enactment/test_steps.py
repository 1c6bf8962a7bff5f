"""The next step of a lease, state by state, and what agents must have been told."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure_core.agents.work import ReportKind, Verb
from tenure_core.enactment.commands import CommandWish, implied_commands
from tenure_core.enactment.facts import Facts, Step
from tenure_core.enactment.ranks import (
    NOT_OF_THE_WORK,
    Rank,
    RankState,
    Report,
    fold,
)
from tenure_core.enactment.steps import next_step
from tenure_core.leases.lease import (
    Advance,
    BestEffort,
    Lease,
    LeaseSpec,
    OnFailure,
    Placement,
)
from tenure_core.leases.states import TRANSITIONS, LeaseState
from tenure_core.planning.snapshot import ReservationKind, ReservationView
from tenure_core.resources import ResourceVector
from tenure_core.timebase import FOREVER, Interval

S = LeaseState
START, DURATION = 100_000, 60_000
END = START + DURATION
RUNNING, SUSPENDED = Rank(RankState.RUNNING), Rank(RankState.SUSPENDED)
WELL, BADLY = Rank(RankState.ENDED, 0, "EXITED"), Rank(RankState.ENDED, 7, "EXITED")
LOST = Rank(RankState.ENDED, None, "AGENT_LOST", lost=True)


def a_lease(state: LeaseState, **changes: object) -> Lease:
    spec = LeaseSpec(
        "ada", "p", "pool", BestEffort(), 2, ResourceVector({"cpu": 1}), DURATION,
        stop_grace_ms=5_000,
    )  # fmt: skip
    placements = tuple(Placement(r, f"n{r}", Interval(START, END)) for r in range(2))
    lease = Lease("l", spec, state, 0, attempt=1, placements=placements, remaining_ms=DURATION)
    return replace(lease, **changes)


def a_row(
    rank: int, start: int, end: int, kind: ReservationKind = ReservationKind.RUN
) -> ReservationView:
    name = f"{kind.value}.{rank}.{start}"
    return ReservationView(
        name, "l", 1, rank, f"n{rank}", Interval(start, end), ResourceVector({"cpu": 1}), kind
    )


RUNS = tuple(a_row(rank, START, END) for rank in range(2))


def facts(state: LeaseState, *ranks: Rank | None, **changes: object) -> Facts:
    known = {number: rank for number, rank in enumerate(ranks) if rank is not None}
    base = Facts(a_lease(state), RUNS, known, run_started=START)
    return replace(base, **changes)


def outcome(step: Step | None) -> tuple[LeaseState, str] | None:
    return None if step is None else (step.state, step.reason)


def test_a_booked_lease_starts_when_its_time_has_come() -> None:
    assert next_step(facts(S.SCHEDULED), START - 1) is None
    assert outcome(next_step(facts(S.SCHEDULED), START)) == (S.STARTING, "DUE")


def test_it_starts_where_it_is_booked_whatever_an_older_plan_said() -> None:
    """A charge is recorded before its plan is committed, and that may come to nothing."""
    moved = tuple(replace(row, node=f"m{row.rank}") for row in RUNS)
    where = tuple(Placement(r, f"m{r}", Interval(START, END)) for r in range(2))

    same, elsewhere = (next_step(facts(S.SCHEDULED, rows=rows), START) for rows in (RUNS, moved))

    assert same is not None
    assert elsewhere is not None
    assert (same.placements, elsewhere.placements) == ((), where)


def test_a_start_whose_booking_is_gone_is_stopped() -> None:
    """Its capacity was given back, but the record of its end was lost."""
    gone = facts(S.STARTING, RUNNING, rows=())

    assert outcome(next_step(gone, START)) == (S.STOPPING, "BOOKING_LOST")
    assert outcome(next_step(replace(gone, ranks={}), START)) == (S.STOPPING, "BOOKING_LOST")


def test_a_start_waits_for_whoever_still_runs_there() -> None:
    assert next_step(facts(S.SCHEDULED, has_room=False), START) is None


def test_a_start_that_could_not_be_kept_is_told() -> None:
    late = facts(S.SCHEDULED, has_room=False)
    booked = replace(late.lease, spec=replace(late.lease.spec, terms=Advance(START)))

    assert outcome(next_step(late, END)) == (S.QUEUED, "START_MISSED")
    assert outcome(next_step(replace(late, lease=booked), END)) == (S.FAILED, "START_MISSED")


def test_a_lease_charged_without_a_booking_is_planned_anew() -> None:
    older = tuple(replace(row, attempt=0) for row in RUNS)

    for rows in ((), RUNS[:1], older):
        step = next_step(facts(S.SCHEDULED, rows=rows), 0)
        assert (outcome(step), step and step.release) == ((S.QUEUED, "BOOKING_LOST"), True)


def test_it_is_active_once_all_its_slots_run() -> None:
    assert next_step(facts(S.STARTING, RUNNING), START) is None

    step = next_step(facts(S.STARTING, RUNNING, RUNNING), START + 5)

    assert step == Step(
        "l", S.ACTIVE, "RUNNING", "Runs on all its nodes.", release_past=True, started=START + 5
    )


def test_work_that_is_over_before_it_was_seen_to_run_is_done() -> None:
    ran = replace(WELL, run_ms=40)

    step = next_step(facts(S.STARTING, WELL, ran), START + 50)

    assert step is not None
    assert (step.state, step.reason, step.started) == (S.DONE, "COMPLETED", START + 10)


def test_it_is_done_once_all_its_slots_ended_well() -> None:
    assert next_step(facts(S.ACTIVE, WELL, RUNNING), START) is None

    step = next_step(facts(S.ACTIVE, WELL, WELL), START + 9)

    assert step == Step(
        "l", S.DONE, "COMPLETED", "All its work ended with exit code 0.", release=True,
        ended=START + 9, exit_code=0,
    )  # fmt: skip


def test_one_slot_that_fails_stops_the_others_and_fails_the_lease() -> None:
    first = next_step(facts(S.ACTIVE, BADLY, RUNNING), START)
    killed = Rank(RankState.ENDED, 143, "STOPPED")
    stopping = facts(
        S.STOPPING, BADLY, killed, lease=a_lease(S.STOPPING, reason="WORK_FAILED", exit_code=7)
    )

    assert outcome(first) == (S.STOPPING, "WORK_FAILED")
    last = next_step(stopping, START)
    assert last is not None
    assert (last.state, last.reason, last.exit_code, last.release) == (
        S.FAILED,
        "WORK_FAILED",
        7,
        True,
    )


def test_a_failed_lease_starts_again_while_attempts_are_left() -> None:
    spec = replace(a_lease(S.ACTIVE).spec, on_failure=OnFailure.RESTART, max_attempts=2)
    once = a_lease(S.ACTIVE, spec=spec)
    twice = replace(once, failures=1)

    again = next_step(facts(S.ACTIVE, BADLY, WELL, lease=once), START)
    over = next_step(facts(S.ACTIVE, BADLY, WELL, lease=twice), START)

    assert again is not None
    assert (again.state, again.reason, again.failed) == (S.QUEUED, "RESTARTING", True)
    assert again.remaining_ms == DURATION
    assert outcome(over) == (S.FAILED, "WORK_FAILED")


def test_a_lost_node_means_another_attempt_that_does_not_count() -> None:
    lost = facts(S.ACTIVE, RUNNING, RUNNING, gone=frozenset({"n0", "n1"}))
    half = facts(S.ACTIVE, RUNNING, RUNNING, gone=frozenset({"n1"}))

    step = next_step(lost, START)

    assert step is not None
    assert (step.state, step.reason, step.failed) == (S.QUEUED, "NODE_LOST", False)
    assert outcome(next_step(half, START)) == (S.STOPPING, "NODE_LOST")


def test_it_is_told_to_stop_its_grace_before_the_end() -> None:
    running = facts(S.ACTIVE, RUNNING, RUNNING)

    assert next_step(running, END - 5_001) is None
    assert outcome(next_step(running, END - 5_000)) == (S.STOPPING, "TIME_OVER")


def test_a_short_run_is_not_all_grace() -> None:
    short = replace(a_lease(S.ACTIVE).spec, duration_ms=2_000, stop_grace_ms=60_000)
    rows = tuple(a_row(rank, START, START + 2_000) for rank in range(2))
    running = facts(
        S.ACTIVE, RUNNING, RUNNING, rows=rows,
        lease=a_lease(S.ACTIVE, spec=short, remaining_ms=2_000),
    )  # fmt: skip

    assert next_step(running, START + 1_799) is None
    assert outcome(next_step(running, START + 1_800)) == (S.STOPPING, "TIME_OVER")


def test_a_run_that_was_cut_before_a_resident_is_suspended_there() -> None:
    cut = START + 20_000
    rows = (
        *(a_row(rank, START, cut) for rank in range(2)),
        *(a_row(rank, cut, FOREVER, ReservationKind.RESIDENT) for rank in range(2)),
    )
    running = facts(S.ACTIVE, RUNNING, RUNNING, rows=rows)
    stopped = facts(S.SUSPENDING, SUSPENDED, SUSPENDED, rows=rows)

    assert next_step(running, cut - 1) is None
    assert outcome(next_step(running, cut)) == (S.SUSPENDING, "PREEMPTED")
    step = next_step(stopped, cut + 10)
    assert step is not None
    assert (step.state, step.remaining_ms, step.preempted, step.release_past) == (
        S.SUSPENDED,
        DURATION - 20_010,
        True,
        True,
    )


def test_a_resumed_lease_is_not_suspended_for_where_it_came_from() -> None:
    """The RESIDENT that ended when it resumed lies behind it."""
    back = START + 30_000
    rows = (
        *(a_row(rank, START + 20_000, back, ReservationKind.RESIDENT) for rank in range(2)),
        *(a_row(rank, back, back + 40_000) for rank in range(2)),
    )
    lease = a_lease(S.ACTIVE, remaining_ms=40_000)

    assert next_step(facts(S.ACTIVE, RUNNING, RUNNING, rows=rows, lease=lease), back + 1) is None


def test_a_run_that_was_cut_short_without_a_place_to_stay_waits_again() -> None:
    cut = tuple(a_row(rank, START, START + 20_000) for rank in range(2))
    running = facts(S.ACTIVE, RUNNING, RUNNING, rows=cut)
    homeless = facts(S.ACTIVE, RUNNING, RUNNING, rows=())

    assert outcome(next_step(running, START + 15_000)) == (S.STOPPING, "PREEMPTED")
    assert outcome(next_step(homeless, START)) == (S.STOPPING, "PREEMPTED")
    stopping = facts(
        S.STOPPING, BADLY, BADLY, rows=(), lease=a_lease(S.STOPPING, reason="PREEMPTED")
    )
    assert outcome(next_step(stopping, START)) == (S.QUEUED, "PREEMPTED")


def test_a_suspended_lease_resumes_when_its_next_run_begins() -> None:
    rows = (
        *(a_row(rank, START, END, ReservationKind.RESIDENT) for rank in range(2)),
        *(a_row(rank, END, END + 9_000) for rank in range(2)),
    )
    asleep = facts(S.SUSPENDED, SUSPENDED, SUSPENDED, rows=rows)

    assert next_step(asleep, END - 1) is None
    assert outcome(next_step(asleep, END)) == (S.RESUMING, "DUE")
    awake = facts(S.RESUMING, RUNNING, RUNNING, rows=rows)
    assert outcome(next_step(awake, END + 1)) == (S.ACTIVE, "RUNNING")


def test_a_start_that_nobody_answered_by_its_end_is_stopped_and_tried_again() -> None:
    rows = tuple(a_row(rank, START, END) for rank in range(2))
    silent = facts(S.STARTING, RUNNING, None, rows=rows)

    assert next_step(silent, END - 1) is None
    assert outcome(next_step(silent, END)) == (S.STOPPING, "NODE_LOST")


def test_a_suspended_lease_whose_next_run_nobody_began_gives_only_that_back() -> None:
    """Else it would stay suspended for ever: its run lies behind it and nobody plans another."""
    rows = (
        *(a_row(rank, START, END, ReservationKind.RESIDENT) for rank in range(2)),
        *(a_row(rank, END, END + 9_000) for rank in range(2)),
    )
    missed = facts(S.SUSPENDED, SUSPENDED, SUSPENDED, rows=rows)
    step = next_step(missed, END + 9_000)

    assert step is not None
    assert (step.state, step.release, step.release_past) == (S.SUSPENDED, False, True)
    kept = facts(S.SUSPENDED, SUSPENDED, SUSPENDED, rows=rows[:2])
    assert next_step(kept, END + 9_000) is None


def test_a_cancelled_lease_ends_only_after_every_slot_did() -> None:
    assert next_step(facts(S.CANCELLING, RUNNING, WELL), START) is None
    assert next_step(facts(S.CANCELLING, None, WELL), START) is None

    step = next_step(facts(S.CANCELLING, BADLY, WELL), START)

    assert step is not None
    assert (step.state, step.release) == (S.CANCELLED, True)


def test_what_an_ended_placement_left_in_the_table_is_given_back() -> None:
    step = next_step(facts(S.QUEUED), START)

    assert step is not None
    assert (step.state, step.release) == (S.QUEUED, True)
    assert next_step(facts(S.QUEUED, rows=()), START) is None


def test_states_imply_commands_for_slots_that_have_not_obeyed() -> None:
    starting = facts(S.STARTING, RUNNING)
    stopping = facts(S.STOPPING, BADLY, RUNNING)
    suspending = facts(S.SUSPENDING, RUNNING, SUSPENDED)
    unheard = facts(S.CANCELLING)

    assert implied_commands(starting, S.STARTING) == (CommandWish(1, "n1", Verb.START),)
    assert implied_commands(stopping, S.STOPPING) == (CommandWish(1, "n1", Verb.STOP),)
    assert implied_commands(suspending, S.SUSPENDING) == (CommandWish(0, "n0", Verb.SUSPEND),)
    # A START may be on its way although nobody reported it.
    assert implied_commands(unheard, S.CANCELLING) == (
        CommandWish(0, "n0", Verb.STOP),
        CommandWish(1, "n1", Verb.STOP),
    )
    assert implied_commands(facts(S.ACTIVE, RUNNING, RUNNING), S.ACTIVE) == ()


def test_a_slot_that_lost_its_booking_is_not_started() -> None:
    displaced = facts(S.STARTING, rows=(RUNS[0], replace(RUNS[1], displaced=True)))
    moved = facts(S.STARTING, rows=(RUNS[0], replace(RUNS[1], node="n7")))

    assert implied_commands(displaced, S.STARTING) == (CommandWish(0, "n0", Verb.START),)
    assert implied_commands(moved, S.STARTING) == (CommandWish(0, "n0", Verb.START),)


ranks = st.sampled_from([None, RUNNING, SUSPENDED, WELL, BADLY, LOST])


@given(
    state=st.sampled_from(list(LeaseState)),
    first=ranks,
    second=ranks,
    rows=st.sampled_from([RUNS, ()]),
    reason=st.sampled_from(["", "TIME_OVER", "PREEMPTED", "NODE_LOST", "WORK_FAILED"]),
    now=st.integers(0, END + 10_000),
    has_room=st.booleans(),
)
def test_every_step_is_one_that_the_table_of_states_allows(
    state: LeaseState,
    first: Rank | None,
    second: Rank | None,
    rows: tuple[ReservationView, ...],
    reason: str,
    now: int,
    has_room: bool,
) -> None:
    lease = a_lease(state, reason=reason)
    step = next_step(facts(state, first, second, rows=rows, lease=lease, has_room=has_room), now)

    if step is not None and step.state is not state:
        assert step.state in TRANSITIONS[state]


@pytest.mark.parametrize("again", [ReportKind.STARTED, ReportKind.SUSPENDED, ReportKind.ENDED])
def test_an_end_absorbs_whatever_is_reported_after_it(again: ReportKind) -> None:
    ended = fold(None, Report("l", 1, 0, ReportKind.ENDED, exit_code=3, reason="EXITED"))

    assert fold(ended, Report("l", 1, 0, again, exit_code=0)) == ended


def test_a_refused_start_ends_a_slot_and_other_refusals_do_not() -> None:
    refused = Report("l", 1, 0, ReportKind.REFUSED, "l.1.0.start.0", reason="STALE_EPOCH")
    stop = replace(refused, command="l.1.0.stop.0")

    assert fold(None, refused) == Rank(RankState.ENDED, None, "STALE_EPOCH", lost=True)
    # Its START may be on its way.
    assert fold(None, stop) is None
    assert fold(RUNNING, stop) is RUNNING


@pytest.mark.parametrize("reason", sorted(NOT_OF_THE_WORK))
def test_work_that_its_node_failed_is_tried_again_and_has_not_failed(reason: str) -> None:
    """An agent that was away past its fence reports an exit code of 137: nobody's failure."""
    end = Report("l", 1, 0, ReportKind.ENDED, exit_code=137, reason=reason, message="Out of it.")
    rank = fold(RUNNING, end)

    both = next_step(facts(S.ACTIVE, rank, rank), START + 1)
    one = next_step(facts(S.ACTIVE, rank, RUNNING), START + 1)

    assert both is not None
    assert (both.state, both.reason, both.failed) == (S.QUEUED, "NODE_LOST", False)
    assert outcome(one) == (S.STOPPING, "NODE_LOST")


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("TIME_OVER", "TIME_OVER"),
        ("PREEMPTED", "PREEMPTED"),
        ("HOST_STOPS", "NODE_LOST"),
        ("AGENT_STOPS", "NODE_LOST"),
    ],
)
@pytest.mark.parametrize("code", [0, 143])
def test_a_stop_that_nobody_recorded_is_recorded_with_the_reason_it_gave(
    message: str, reason: str, code: int
) -> None:
    """The leader that sent it died before it recorded so, or the host stops."""
    rank = Rank(RankState.ENDED, code, "STOPPED", message)

    assert outcome(next_step(facts(S.ACTIVE, rank, rank), START + 1)) == (S.STOPPING, reason)
    assert outcome(next_step(facts(S.ACTIVE, rank, RUNNING), START + 1)) == (S.STOPPING, reason)


def test_work_that_was_over_before_it_was_heard_of_still_says_when_it_began() -> None:
    quick = Rank(RankState.ENDED, 0, "EXITED", run_ms=40)
    slower = Rank(RankState.ENDED, 0, "EXITED", run_ms=60)
    refused = Rank(RankState.ENDED, None, "START_FAILED")

    done = next_step(facts(S.STARTING, quick, slower), START + 100)
    never = next_step(facts(S.STARTING, refused, refused), START + 100)

    assert done is not None
    assert (done.state, done.started, done.ended) == (S.DONE, START + 40, START + 100)
    assert never is not None
    assert (never.state, never.started) == (S.FAILED, None)


def test_what_nobody_confirms_is_given_up_in_two_steps() -> None:
    """What is booked is given back only once its owner can no longer confirm it."""
    held = a_lease(S.SCHEDULED, hold_expires=START - 10)
    assert next_step(Facts(held, RUNS, {}), START - 11) is None
    first = next_step(Facts(held, RUNS, {}), START - 10)
    assert first == Step("l", S.CANCELLING, "HOLD_EXPIRED", "Nobody confirmed it in time.")
    given_up = replace(held, state=S.CANCELLING, reason=first.reason, message=first.message)
    assert implied_commands(Facts(given_up, RUNS, {}), S.CANCELLING) == ()
    assert next_step(Facts(given_up, RUNS, {}), START) == Step(
        "l",
        S.CANCELLED,
        "HOLD_EXPIRED",
        "Nobody confirmed it in time.",
        release=True,
        ended=START,
    )
    waits = a_lease(S.QUEUED, hold_expires=START)
    assert outcome(next_step(Facts(waits, (), {}), START)) == (S.CANCELLED, "HOLD_EXPIRED")


def test_a_lease_does_not_start_before_it_is_confirmed() -> None:
    held = a_lease(S.SCHEDULED, hold_expires=END)
    assert next_step(Facts(held, RUNS, {}), START) is None


def test_slots_given_back_before_that_is_recorded_lose_no_booking() -> None:
    shrinking = facts(S.SCHEDULED, rows=RUNS[:1], asked_slots=1)
    assert next_step(shrinking, START) is None
    assert outcome(next_step(replace(shrinking, rows=()), 0)) == (S.QUEUED, "BOOKING_LOST")


def test_slots_booked_before_that_is_recorded_neither_start_nor_lose_the_booking() -> None:
    third = replace(RUNS[-1], id="more", rank=len(RUNS))
    widening = facts(S.SCHEDULED, rows=(*RUNS, third), asked_slots=len(RUNS) + 1)
    assert next_step(widening, START) is None
    unasked = replace(widening, asked_slots=0)
    assert outcome(next_step(unasked, START)) == (S.QUEUED, "BOOKING_LOST")
