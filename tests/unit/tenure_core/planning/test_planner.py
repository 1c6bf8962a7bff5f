"""What the planner promises, shown on small pools where the answer is plain."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.tenure_core.planning.pool_in_time import CPU, Pool, node, spec

from tenure_core.leases.lease import Advance, Deadline, Immediate, Placement
from tenure_core.leases.states import LeaseState
from tenure_core.planning.plan import Preempt, PreemptHow, Queue, Reject, Resume, Schedule
from tenure_core.planning.planner import plan
from tenure_core.planning.snapshot import Blocked, ReservationKind, ReservationView, Snapshot
from tenure_core.policies.admission import Refusal
from tenure_core.policies.backfilling import Backfilling
from tenure_core.policies.bundle import Overheads, Policies
from tenure_core.policies.placement import Greedy, RoundRobin
from tenure_core.resources import ResourceVector
from tenure_core.timebase import FOREVER, Interval


def two_nodes(**more: object) -> Pool:
    return Pool([node("a"), node("b")], Policies(**more))  # type: ignore[arg-type]


def test_a_best_effort_lease_starts_at_once_when_it_fits():
    pool = two_nodes()
    pool.submit("x", spec(nodes=2))
    result = pool.cycle()
    interval = Interval(0, 10)
    assert result.decisions == (
        Schedule("x", 1, interval, (Placement(0, "a", interval), Placement(1, "b", interval)), "x"),
    )
    assert pool.leases["x"].state is LeaseState.ACTIVE


def test_the_head_gets_a_stored_promise_and_backfill_does_not_delay_it():
    pool = two_nodes()
    pool.submit("running", spec(duration=10))
    pool.submit("head", spec(nodes=2, duration=5))
    pool.submit("too-long", spec(duration=11))
    pool.submit("short", spec(duration=10))
    pool.cycle()
    assert pool.starts == {"running": [0], "short": [0]}
    assert [row.interval for row in pool.run_rows("head")] == [Interval(10, 15)] * 2
    assert pool.queued["too-long"].reason == "WAITING_FOR_CAPACITY"
    pool.run(60)
    assert pool.starts["head"] == [10]
    assert pool.starts["too-long"] == [15]


def test_an_early_end_moves_the_promise_forward():
    pool = two_nodes()
    pool.submit("running", spec(nodes=2, duration=100), real=30)
    pool.submit("head", spec(nodes=2, duration=5))
    pool.cycle()
    assert pool.promised["head"] == [100]
    pool.run(30)
    assert pool.promised["head"] == [100, 30]
    assert pool.starts["head"] == [30]


def test_with_backfilling_off_nobody_passes_a_blocked_head():
    pool = two_nodes(backfilling=Backfilling.OFF)
    pool.submit("running", spec(duration=10))
    pool.submit("head", spec(nodes=2, duration=5))
    pool.submit("short", spec(duration=1))
    pool.cycle()
    assert pool.starts == {"running": [0]}
    assert pool.queued["head"].reason == "WAITING_FOR_CAPACITY"
    assert pool.queued["short"].reason == "BEHIND_ANOTHER"


def test_conservative_promises_every_lease_a_start():
    pool = two_nodes(backfilling=Backfilling.CONSERVATIVE)
    pool.submit("running", spec(nodes=2, duration=10))
    for number in range(3):
        pool.submit(f"w{number}", spec(nodes=2, duration=5))
    pool.cycle()
    assert [pool.promised[f"w{n}"] for n in range(3)] == [[10], [15], [20]]


def test_intermediate_promises_as_many_as_it_says():
    pool = two_nodes(backfilling=Backfilling.intermediate(2))
    pool.submit("running", spec(nodes=2, duration=10))
    for number in range(3):
        pool.submit(f"w{number}", spec(nodes=2, duration=5))
    pool.cycle()
    assert sorted(pool.promised) == ["running", "w0", "w1"]


def test_immediate_is_now_or_never():
    pool = two_nodes()
    pool.submit("first", spec(Immediate(), nodes=2))
    pool.submit("second", spec(Immediate()))
    pool.cycle()
    assert pool.starts == {"first": [0]}
    assert pool.rejected == {"second": "NOT_AVAILABLE_NOW"}


def test_a_refusal_says_from_when_it_would_fit():
    pool = two_nodes()
    pool.submit("booked", spec(Advance(50_000), nodes=2, duration=10_000))
    pool.submit("clash", spec(Advance(45_000), duration=10_000))
    pool.submit("late", spec(Deadline(61_000, 50_000), duration=10_000))
    pool.submit("huge", spec(Advance(90_000), nodes=3))
    taken = {each.lease: each.message for each in pool.cycle().decisions if type(each) is Reject}
    assert taken == {
        "clash": "It does not fit at that time; it would from 1970-01-01 00:01:00 UTC.",
        "late": "It does not fit at that time; it would from 1970-01-01 00:01:00 UTC.",
        "huge": "No set of nodes of the pool is large enough, even empty.",
    }


def test_advance_is_booked_at_its_start_or_refused():
    pool = two_nodes()
    pool.submit("booked", spec(Advance(50), nodes=2, duration=10))
    pool.submit("clash", spec(Advance(55), duration=10))
    pool.submit("after", spec(Advance(60), duration=10))
    pool.submit("huge", spec(Advance(90), nodes=3))
    pool.cycle()
    assert pool.rejected == {"clash": "NOT_AVAILABLE_AT_START", "huge": "NOT_AVAILABLE_AT_START"}
    pool.run(100)
    assert pool.starts == {"booked": [50], "after": [60]}


def test_advance_in_the_past_is_refused():
    pool = two_nodes()
    pool.now = 5
    pool.submit("late", spec(Advance(4)))
    pool.cycle()
    assert pool.rejected == {"late": "START_PASSED"}


def test_deadline_is_booked_to_end_in_time_and_not_before_its_earliest_start():
    pool = two_nodes()
    pool.submit("running", spec(nodes=2, duration=30))
    pool.cycle()
    pool.submit("fits", spec(Deadline(60, earliest_start=40), nodes=2, duration=20))
    pool.submit("cannot", spec(Deadline(60), nodes=1, duration=20))
    pool.submit("beside", spec(Deadline(40), nodes=1, duration=10))
    pool.cycle()
    assert pool.promised == {"running": [0], "fits": [40], "beside": [30]}
    assert pool.rejected == {"cannot": "DEADLINE_CANNOT_BE_MET"}


def test_deadline_leases_are_booked_before_the_queue():
    pool = two_nodes()
    pool.submit("queue", spec(nodes=2, duration=30))
    pool.submit("due", spec(Deadline(15), nodes=2, duration=10))
    pool.cycle()
    assert pool.promised == {"due": [0], "queue": [10]}


def test_advance_suspends_a_running_best_effort_lease_in_place_and_it_resumes():
    pool = Pool([node("a", cpu=1, memory=4)])
    pool.submit("victim", spec(duration=30, memory=2))
    pool.cycle()
    pool.now = 5
    pool.submit("booked", spec(Advance(10), duration=10, memory=2))
    result = pool.cycle()
    assert result.decisions[0] == Preempt(
        "victim", 1, "booked", PreemptHow.SUSPEND, at=10, free_by=10, group="booked"
    )
    kinds = [(row.kind, row.interval) for row in pool.table.of_lease("victim")]
    assert kinds == [
        (ReservationKind.RUN, Interval(0, 10)),
        (ReservationKind.RESIDENT, Interval(10, FOREVER)),
    ]
    pool.run(10)
    assert pool.leases["victim"].state is LeaseState.SUSPENDED
    assert pool.starts["booked"] == [10]
    pool.run(100)
    assert pool.starts["victim"] == [0, 20]
    assert pool.ends == {"booked": 20, "victim": 40}


def _without_run(pool: Pool, name: str) -> Snapshot:
    """Return the pool as it is when what a lease ran in was given back."""
    runs = {row.id for row in pool.run_rows(name)}
    now = pool.snapshot()
    rows = tuple(row for row in now.reservations if row.id not in runs)
    return replace(now, reservations=rows)


def _cut_for_a_booking() -> Pool:
    pool = Pool([node("a", cpu=1, memory=4)])
    pool.submit("victim", spec(duration=30, memory=2))
    pool.cycle()
    pool.now = 5
    pool.submit("booked", spec(Advance(10), duration=10, memory=2))
    pool.cycle()
    return pool


def test_a_victim_that_was_cut_before_it_was_seen_to_run_has_nothing_to_go_on_with():
    pool = _cut_for_a_booking()
    pool.now = 11
    assert plan(_without_run(pool, "victim"), pool.policies).groups == ()


def test_what_a_suspended_lease_keeps_stays_past_a_resume_that_nobody_began():
    pool = _cut_for_a_booking()
    pool.run(10)
    pool.cycle()
    kinds = [(row.kind, row.interval) for row in pool.table.of_lease("victim")]
    assert kinds == [
        (ReservationKind.RESIDENT, Interval(10, 20)),
        (ReservationKind.RUN, Interval(20, 40)),
    ]
    missed = replace(_without_run(pool, "victim"), now=45)
    rows = tuple(row for row in missed.reservations if row.lease == "victim")
    leases = tuple(view for view in missed.leases if view.id == "victim")
    made = plan(replace(missed, reservations=rows, leases=leases), pool.policies)
    assert [type(each) for each in made.decisions] == [Resume]
    assert made.decisions[0].interval == Interval(45, 65)


def test_a_victim_whose_memory_does_not_fit_beside_the_preemptor_is_requeued():
    pool = Pool([node("a", cpu=1, memory=4)])
    pool.submit("victim", spec(duration=30, memory=3))
    pool.cycle()
    pool.submit("booked", spec(Advance(10), duration=10, memory=2))
    pool.cycle()
    pool.run(100)
    assert pool.starts == {"victim": [0, 20], "booked": [10]}
    assert pool.ends == {"booked": 20, "victim": 50}


def test_immediate_preempts_now():
    pool = two_nodes()
    pool.submit("victim", spec(nodes=2, duration=30))
    pool.cycle()
    pool.run(5)
    pool.now = 7
    pool.submit("urgent", spec(Immediate(), duration=10))
    pool.cycle()
    assert pool.starts["urgent"] == [7]
    pool.run(200)
    assert pool.starts["victim"] == [0, 17]
    assert pool.ends["victim"] == 17 + 23


def test_leases_that_say_so_are_not_preempted():
    pool = two_nodes()
    pool.submit("mine", spec(nodes=2, duration=30, preemptible=False))
    pool.cycle()
    pool.submit("booked", spec(Advance(10)))
    pool.cycle()
    assert pool.rejected == {"booked": "NOT_AVAILABLE_AT_START"}


def test_only_those_victims_are_taken_that_are_needed():
    pool = Pool([node("a", cpu=4, memory=16), node("b", cpu=1, memory=16)])
    pool.submit("big", spec(cpu=4, duration=100))
    pool.cycle()
    pool.run(1)
    pool.submit("small", spec(cpu=1, duration=100))
    pool.cycle()
    pool.now = 2
    pool.submit("urgent", spec(Immediate(), cpu=4))
    result = pool.cycle()
    preempted = [d.lease for d in result.decisions if isinstance(d, Preempt)]
    assert preempted == ["big"]


def test_a_promise_gives_way_to_an_advance_lease_and_is_planned_again():
    pool = two_nodes()
    pool.submit("running", spec(nodes=2, duration=10, preemptible=False))
    pool.submit("head", spec(nodes=2, duration=10))
    pool.cycle()
    assert pool.promised["head"] == [10]
    pool.submit("booked", spec(Advance(15), nodes=2, duration=5))
    pool.cycle()
    assert pool.promised["booked"] == [15]
    assert pool.promised["head"] == [10, 20]
    pool.run(50)
    assert pool.starts == {"running": [0], "booked": [15], "head": [20]}


def test_a_cut_run_goes_on_when_its_preemptor_is_cancelled():
    pool = two_nodes()
    pool.submit("victim", spec(nodes=2, duration=30))
    pool.cycle()
    pool.submit("booked", spec(Advance(10), nodes=2, duration=5))
    pool.cycle()
    pool.run(5)
    pool.end("booked", LeaseState.CANCELLED)
    pool.cycle()
    pool.run(100)
    assert pool.starts["victim"] == [0]
    assert pool.ends["victim"] == 30


def test_suspend_and_resume_take_the_time_they_are_said_to_take():
    pool = Pool([node("a")], Policies(overheads=Overheads(suspend_ms=2, resume_ms=3)))
    pool.submit("victim", spec(duration=30))
    pool.cycle()
    pool.submit("booked", spec(Advance(10), duration=10))
    pool.cycle()
    kinds = [(row.kind, row.interval) for row in pool.table.of_lease("victim")]
    assert kinds == [
        (ReservationKind.RUN, Interval(0, 8)),
        (ReservationKind.SUSPEND, Interval(8, 10)),
        (ReservationKind.RESIDENT, Interval(10, FOREVER)),
    ]
    pool.run(200)
    assert pool.starts["victim"] == [0, 23]
    assert pool.ends["victim"] == 23 + 22


def test_slots_may_share_a_node_unless_spread():
    pool = Pool([node("a", cpu=4, memory=16), node("b", cpu=1, memory=16)])
    pool.submit("together", spec(nodes=3))
    pool.submit("apart", spec(nodes=2, spread=True))
    pool.cycle()
    assert [row.node for row in pool.run_rows("together")] == ["a", "a", "a"]
    assert {row.node for row in pool.run_rows("apart")} == {"a", "b"}


def test_node_selector_chooses_nodes_by_attribute():
    pool = Pool([node("a", cpu=4), node("b", cpu=4, gpu="yes")])
    pool.submit("x", spec(nodes=2, node_selector={"gpu": "yes"}))
    pool.submit("y", spec(node_selector={"gpu": "no"}))
    pool.cycle()
    assert [row.node for row in pool.run_rows("x")] == ["b", "b"]
    assert pool.queued["y"].reason == "NO_SUITABLE_NODES"


def test_a_blocked_lease_waits_with_its_own_reason_and_blocks_nobody():
    pool = two_nodes(backfilling=Backfilling.OFF)
    pool.submit("x", spec(nodes=2), blocked=Blocked("DEPENDENCY_PENDING", "waits for w"))
    pool.submit("y", spec(nodes=2))
    pool.cycle()
    assert pool.queued == {"x": Queue("x", "DEPENDENCY_PENDING", "waits for w")}
    assert pool.starts == {"y": [0]}


def test_a_lease_larger_than_the_pool_waits_and_holds_nobody_up():
    pool = two_nodes()
    pool.submit("huge", spec(nodes=3))
    pool.submit("x", spec(nodes=2))
    pool.submit("y", spec(nodes=2))
    pool.cycle()
    assert pool.queued["huge"].reason == "NO_SUITABLE_NODES"
    assert pool.promised == {"x": [0], "y": [10]}


def test_an_overrun_goes_on_occupying_its_node():
    pool = two_nodes(overrun_ms=50)
    pool.submit("x", spec(nodes=2))
    late = ReservationView(
        "old", "w", 1, 0, "a", Interval(0, 90), ResourceVector({"cpu": CPU}), ReservationKind.RUN
    )
    pool.now = 100
    snapshot = pool.snapshot()
    result = plan(replace(snapshot, reservations=(late,)), pool.policies)
    assert isinstance(result.decisions[0], Schedule)
    assert result.decisions[0].interval == Interval(150, 160)


def test_a_displaced_booking_moves_to_another_node_at_the_same_time():
    pool = Pool([node("a"), node("b"), node("c")])
    pool.submit("booked", spec(Advance(20), nodes=2))
    pool.cycle()
    pool.lose("a")
    pool.cycle()
    assert [(row.node, row.displaced) for row in pool.run_rows("booked")] == [
        ("c", False),
        ("b", False),
    ]
    pool.run(50)
    assert pool.starts["booked"] == [20]


def test_a_displaced_booking_that_fits_nowhere_is_lost_and_its_owner_told():
    pool = two_nodes()
    pool.submit("booked", spec(Advance(20), nodes=2))
    pool.cycle()
    pool.lose("a")
    pool.cycle()
    assert pool.rejected == {"booked": "NOT_AVAILABLE_AT_START"}
    assert pool.ended == {"booked": LeaseState.FAILED}


def test_a_running_lease_on_a_lost_node_is_queued_for_a_new_attempt():
    pool = Pool([node("a"), node("b"), node("c")])
    pool.submit("x", spec(nodes=2, duration=30))
    pool.cycle()
    pool.now = 5
    pool.lose("a")
    pool.cycle()
    assert pool.leases["x"].attempt == 2
    assert pool.starts["x"] == [0, 5]


def test_nothing_new_goes_to_a_node_that_is_not_schedulable():
    pool = Pool([replace(node("a"), schedulable=False), node("b")])
    pool.submit("x", spec(nodes=2))
    pool.submit("y", spec())
    pool.cycle()
    assert pool.starts == {"y": [0]}


def test_a_suspended_lease_is_promised_its_resumption_under_easy():
    pool = Pool([node("a", memory=16)])
    pool.submit("victim", spec(duration=30))
    pool.cycle()
    pool.now = 5
    pool.submit("urgent", spec(Immediate(), duration=10))
    pool.cycle()
    pool.leases["victim"] = replace(
        pool.leases["victim"], state=LeaseState.SUSPENDED, remaining_ms=25, run_started=None
    )
    result = pool.cycle()
    assert isinstance(result.decisions[0], Resume)
    assert result.decisions[0].interval == Interval(15, 40)


def test_a_suspended_lease_whose_state_is_nowhere_starts_anew():
    pool = Pool([node("a"), node("b")])
    pool.submit("lost", spec(duration=30))
    pool.leases["lost"] = replace(
        pool.leases["lost"], state=LeaseState.SUSPENDED, attempt=1, remaining_ms=10
    )
    result = pool.cycle()
    assert result.decisions[0] == Preempt(
        "lost", 1, "", PreemptHow.REQUEUE, at=0, free_by=0, group="lost"
    )
    assert pool.leases["lost"].attempt == 2
    assert [row.interval for row in pool.run_rows("lost")] == [Interval(0, 30)]


def test_a_lease_is_asked_about_once_when_it_is_planned_for_the_first_time():
    asked: set[tuple[str, int]] = set()

    class Notes:
        def refusal(self, lease, now):
            asked.add((lease.id, now))
            return Refusal("NOT_HERE", "Not in this pool.") if lease.id == "c" else None

    pool = Pool([node("n", 1)], Policies(admission=Notes()))
    for name in ("a", "b", "c"):
        pool.submit(name, spec())
    pool.submit("d", spec(Advance(30)))
    pool.cycle()
    pool.run(60)
    assert asked == {(name, 0) for name in "abcd"}
    assert pool.rejected == {"c": "NOT_HERE"}
    assert (pool.starts["a"], pool.starts["b"], pool.starts["d"]) == ([0], [10], [30])


def test_round_robin_sends_leases_to_one_node_after_the_other():
    pool = Pool([node(f"n{i}", 4) for i in range(3)], Policies(host_selection=RoundRobin()))
    for number in range(4):
        pool.submit(f"l{number}", spec(nodes=2))
    pool.cycle()
    assert [[row.node for row in pool.run_rows(f"l{n}")] for n in range(4)] == [
        ["n0", "n1"],
        ["n1", "n2"],
        ["n2", "n0"],
        ["n0", "n1"],
    ]


def test_greedy_takes_the_node_with_fewer_leases_on_which_nothing_changes_soon():
    pool = Pool([node(f"n{i}", 4, 8) for i in range(3)], Policies(host_selection=Greedy()))
    pool.submit("runs", spec(duration=100))
    pool.submit("booked", spec(Advance(3)))
    pool.cycle()
    pool.submit("asks", spec())
    pool.cycle()
    nodes = {name: pool.run_rows(name)[0].node for name in ("runs", "booked", "asks")}
    assert nodes == {"booked": "n0", "runs": "n1", "asks": "n2"}
