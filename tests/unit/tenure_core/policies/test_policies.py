"""What each policy prefers, forbids and reads."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.tenure_core.planning.pool_in_time import spec

from tenure_core.leases.lease import Advance, BestEffort, Deadline, Immediate
from tenure_core.leases.states import LeaseState
from tenure_core.planning.plan import PreemptHow
from tenure_core.planning.snapshot import LeaseView
from tenure_core.policies.admission import AcceptAll, NoAdvance, Refusal
from tenure_core.policies.backfilling import Backfilling
from tenure_core.policies.placement import Greedy, NodeFit, RoundRobin
from tenure_core.policies.preemption import BookedPreemptBestEffort, NoPreemption
from tenure_core.timebase import FOREVER, Interval


def view(name: str, terms=None, *, arrival: int = 0, **more) -> LeaseView:
    state = more.pop("state", LeaseState.ACTIVE)
    started = more.pop("run_started", 0)
    preemptions = more.pop("preemptions", 0)
    suspendable = more.pop("suspendable", True)
    what = spec(terms or BestEffort(), **more)
    return LeaseView(
        name,
        what,
        state,
        attempt=1,
        arrival=arrival,
        created=0,
        remaining_ms=what.duration_ms,
        run_started=started,
        preemptions=preemptions,
        suspendable=suspendable,
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("off", Backfilling.OFF),
        ("EASY", Backfilling.EASY),
        ("aggressive", Backfilling.EASY),
        ("intermediate:3", Backfilling.intermediate(3)),
        ("conservative", Backfilling.CONSERVATIVE),
    ],
)
def test_backfilling_is_read_as_people_type_it_and_written_back(text, expected):
    assert Backfilling.parse(text) == expected
    assert Backfilling.parse(str(expected)) == expected


@pytest.mark.parametrize("text", ["", "intermediate", "intermediate:x", "easy:2", "fast"])
def test_other_words_are_no_backfilling(text):
    with pytest.raises(ValueError, match="none of off, easy"):
        Backfilling.parse(text)


@pytest.mark.parametrize(
    ("preemptor", "victim", "may"),
    [
        (Advance(5), BestEffort(), True),
        (Immediate(), BestEffort(), True),
        (Deadline(50), BestEffort(), False),
        (BestEffort(), BestEffort(), False),
        (Advance(5), Advance(4), False),
        (Immediate(), Deadline(50), False),
    ],
)
def test_booked_leases_preempt_best_effort_ones_only(preemptor, victim, may):
    policy = BookedPreemptBestEffort()
    assert policy.may_preempt(view("p", preemptor), view("v", victim), 5) is may
    assert NoPreemption().may_preempt(view("p", preemptor), view("v", victim), 5) is False


def test_a_victim_is_protected_by_its_wish_its_youth_and_its_budget():
    policy = BookedPreemptBestEffort(run_min_ms=10, evictions_max=2)
    urgent = view("p", Immediate())
    assert policy.may_preempt(urgent, view("v", run_started=0), 10)
    assert not policy.may_preempt(urgent, view("v", run_started=1), 10)
    assert not policy.may_preempt(urgent, view("v", preemptions=2), 10)
    assert not policy.may_preempt(urgent, view("v", preemptible=False), 10)


def test_the_unbegun_go_first_then_low_priority_then_the_newest_run():
    policy = BookedPreemptBestEffort()
    unbegun = replace(view("unbegun", priority=9), run_started=None)
    low = view("low", priority=0, run_started=1)
    newest = view("newest", priority=1, run_started=8)
    oldest = view("oldest", priority=1, run_started=2)
    ordered = sorted([oldest, newest, low, unbegun], key=lambda v: policy.reluctance(v, 10))
    assert [lease.id for lease in ordered] == ["unbegun", "low", "newest", "oldest"]


def test_what_ran_and_can_be_suspended_is_suspended():
    policy = BookedPreemptBestEffort()
    assert policy.how(view("v", run_started=0), 5) is PreemptHow.SUSPEND
    assert policy.how(view("v", run_started=5), 5) is PreemptHow.REQUEUE
    assert policy.how(view("v", suspendable=False), 5) is PreemptHow.REQUEUE


def fit(place: int, **more) -> NodeFit:
    known = {"slots": 1, "turn": 0, "free_permille": 1000, "leases": 0, "changes": FOREVER}
    return NodeFit(f"n{place}", place, 4, interval=Interval(100, 200), **{**known, **more})


def test_round_robin_goes_one_node_further_with_each_lease():
    for turn, order in ((0, [0, 1, 2, 3]), (6, [2, 3, 0, 1])):
        fits = [fit(place, turn=turn) for place in range(4)]
        ranked = sorted(fits, key=RoundRobin().key)
        assert [each.place for each in ranked] == order


def test_greedy_scores_as_the_ancestor_does():
    """Half for how far from four leases, a quarter always, one for the part without change."""
    for leases, changes, score in (
        (0, FOREVER, 0.5 + 0.25 + 0.25),
        (1, 150, 0.375 + 0.25 + 0.125),
        (4, 200, 0 + 0.25 + 0.25),
        (9, 100, 0.25),
    ):
        (key,) = Greedy().key(fit(0, leases=leases, changes=changes))
        assert 0.25 + -key / 4000 == score


def test_admission_refuses_what_books_ahead_or_nothing():
    booked, queued = view("a", Advance(9)), view("b")
    assert AcceptAll().refusal(booked, 0) is None
    assert NoAdvance().refusal(queued, 0) is None
    assert NoAdvance().refusal(booked, 0) == Refusal(
        "ADVANCE_NOT_ACCEPTED", "The pool takes no advance leases."
    )
