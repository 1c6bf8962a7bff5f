from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tenure_core.admission.capacity_ledger import CapacityLedger
from tenure_core.admission.ledger_rows import (
    Bucket,
    LeaseRow,
    MemberRow,
    NodeAccount,
    Overreport,
    Report,
)
from tenure_core.admission.lifecycle import ENDED, Stage

CPU = "cpu"


def _ledger(capacity: int = 10, **leases: int) -> CapacityLedger:
    return CapacityLedger(
        {"n": NodeAccount({CPU: capacity})},
        {name: LeaseRow([MemberRow("n", {CPU: cpu})]) for name, cpu in leases.items()},
    )


def _buckets(ledger: CapacityLedger) -> tuple[int, int, int]:
    account = ledger.nodes["n"]
    return tuple(account.amount(b, CPU) for b in (Bucket.RESERVED, Bucket.HELD, Bucket.USED))  # type: ignore[return-value]


def _run(ledger: CapacityLedger, lease: str) -> None:
    ledger.allocate([lease])
    ledger.leases[lease].members[0].stage = Stage.STARTING
    assert ledger.report(lease, 0, Report.ACTIVE)
    assert ledger.write_stage(lease, Stage.WAITING, Stage.ACTIVE)


def test_a_lease_that_lost_a_race_does_not_undo_the_others_of_its_batch() -> None:
    ledger = _ledger(4, ok=2, big=3)

    assert ledger.allocate(["ok", "big"]) == ["ok"]
    assert _buckets(ledger) == (2, 0, 0)
    assert _ledger(4, ok=2, big=3).allocate(["ok", "big"], all_or_none=True) == []


def test_a_cancelled_lease_is_not_reported_as_allocated() -> None:
    ledger = _ledger(ok=2)
    ledger.stop("ok", forced=False)

    assert ledger.allocate(["ok"]) == []
    assert not ledger.write_stage("ok", Stage.WAITING, Stage.SCHEDULED)
    assert ledger.leases["ok"].stage is Stage.CANCELLED


def test_a_report_of_an_older_attempt_changes_nothing() -> None:
    ledger = _ledger(ok=2)
    ledger.allocate(["ok"])
    ledger.requeue(["ok"])
    ledger.allocate(["ok"])

    assert not ledger.report("ok", 0, Report.ENDED, attempt=1)
    assert _buckets(ledger) == (2, 0, 0)
    assert ledger.report("ok", 0, Report.ENDED, attempt=2)
    assert _buckets(ledger) == (0, 0, 0)


def test_a_report_above_the_reservation_is_taken_and_flagged() -> None:
    ledger = _ledger(4, ok=4)
    ledger.allocate(["ok"])
    ledger.leases["ok"].members[0].stage = Stage.PREPARED

    assert ledger.report("ok", 0, Report.ACTIVE, used={CPU: 6})
    assert _buckets(ledger) == (0, 0, 6)
    assert ledger.overreports == [Overreport("ok", 0, {CPU: 2})]


def test_a_smaller_promise_never_overtakes_an_earlier_one() -> None:
    ledger = _ledger(4, running=3, first=3, second=1)
    _run(ledger, "running")
    assert ledger.hold(["first"]) == ["first"]
    assert ledger.hold(["second"]) == ["second"]

    assert ledger.admit(["first", "second"]) == []
    ledger.report("running", 0, Report.ENDED)
    assert ledger.admit(["first", "second"]) == [("first", 0), ("second", 0)]


def test_a_lease_stopped_between_the_two_writes_of_its_placement_leaves_nothing_behind() -> None:
    ledger = _ledger(ok=2)
    ledger.allocate(["ok"])

    assert ledger.stop("ok", forced=False) is Stage.CANCELLED
    assert _buckets(ledger) == (0, 0, 0)


def test_stopping_twice_and_after_the_end_changes_nothing() -> None:
    ledger = _ledger(ok=2)
    _run(ledger, "ok")

    assert [ledger.stop("ok", forced=True), ledger.stop("ok", forced=True)] == [Stage.DONE, None]
    assert _buckets(ledger) == (0, 0, 0)


def test_reconciling_frees_what_leaked_and_finds_nothing_the_second_time() -> None:
    ledger = _ledger(ok=2, gone=3)
    ledger.allocate(["ok", "gone"])
    ledger.stop("gone", forced=False, releases=False)
    ledger.nodes["n"].buckets[Bucket.USED] = {CPU: 1}

    assert _buckets(ledger) == (5, 0, 1)
    assert [ledger.reconcile(), ledger.reconcile()] == [2, 0]
    assert _buckets(ledger) == (2, 0, 0)


_step = st.one_of(
    st.tuples(st.just("allocate"), st.lists(st.sampled_from("abc"), min_size=1, unique=True)),
    st.tuples(st.just("hold"), st.lists(st.sampled_from("abc"), min_size=1, unique=True)),
    st.tuples(st.just("admit"), st.lists(st.sampled_from("abc"), min_size=1, unique=True)),
    st.tuples(st.just("requeue"), st.lists(st.sampled_from("abc"), min_size=1, unique=True)),
    st.tuples(st.just("ready"), st.sampled_from("abc")),
    st.tuples(st.just("report"), st.tuples(st.sampled_from("abc"), st.sampled_from(Report))),
    st.tuples(st.just("stop"), st.tuples(st.sampled_from("abc"), st.booleans())),
)


@settings(deadline=None)
@given(st.lists(_step, max_size=40))
def test_no_order_of_events_makes_a_node_hold_more_than_it_has_or_drift(steps) -> None:  # type: ignore[no-untyped-def]
    ledger = _ledger(5, a=2, b=3, c=4)
    ended: dict[str, Stage] = {}
    for name, argument in steps:
        if name == "ready":
            row = ledger.leases[argument].members[0]
            row.stage = Stage.PREPARED if row.stage is Stage.SCHEDULED else row.stage
        elif name == "report":
            ledger.report(argument[0], 0, argument[1])
        elif name == "stop":
            ledger.stop(argument[0], forced=argument[1])
        elif name == "requeue":
            live = [lease for lease in argument if ledger.leases[lease].stage not in ENDED]
            ledger.requeue(live)
        else:
            getattr(ledger, name)(argument)

        reserved, held, used = _buckets(ledger)
        assert ledger.drift() == []
        assert min(reserved, held, used) >= 0
        assert reserved + used <= 5
        assert reserved + held <= 5
        for lease, row in ledger.leases.items():
            if lease in ended:
                assert row.stage is ended[lease]
            elif row.stage in ENDED:
                ended[lease] = row.stage
    for lease in ledger.leases:
        ledger.stop(lease, forced=True)
        ledger.report(lease, 0, Report.ENDED)
        ledger.report(lease, 0, Report.CANCELLED)
    assert _buckets(ledger) == (0, 0, 0)
