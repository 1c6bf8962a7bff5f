"""A forecast says when each waiting lease starts when nothing new comes."""

from __future__ import annotations

from tenure_core.leases.lease import Advance, BestEffort, LeaseSpec, Terms
from tenure_core.leases.states import LeaseState
from tenure_core.planning.snapshot import (
    Blocked,
    LeaseView,
    NodeView,
    ReservationKind,
    ReservationView,
    Snapshot,
)
from tenure_core.policies.backfilling import Backfilling
from tenure_core.policies.bundle import Policies
from tenure_core.policies.ordering import parse_ordering
from tenure_core.resources import ResourceVector
from tenure_core.timebase import FOREVER, Interval
from tenure_sim.forward import forecast

CPU = ResourceVector({"cpu": 1000})
NOW = 1_000_000
EASY = Policies()


def view(
    name: str,
    arrival: int,
    *,
    slots: int = 1,
    duration: int = 100,
    state: LeaseState = LeaseState.QUEUED,
    terms: Terms | None = None,
    **more: object,
) -> LeaseView:
    spec = LeaseSpec("o", "p", "sim", terms or BestEffort(), slots, CPU, duration)
    more.setdefault("remaining_ms", duration)
    return LeaseView(name, spec, state, 1, arrival, NOW - 500 + arrival, **more)  # type: ignore[arg-type]


def row(
    lease: str,
    start: int,
    end: int,
    kind: ReservationKind = ReservationKind.RUN,
    rank: int = 0,
    amounts: ResourceVector = CPU,
) -> ReservationView:
    name = f"{lease}-{kind.value}-{rank}-{start}"
    return ReservationView(name, lease, 1, rank, "n1", Interval(start, end), amounts, kind)


def snapshot(*leases: LeaseView, rows: tuple[ReservationView, ...] = (), cpu: int = 2) -> Snapshot:
    node = NodeView("n1", ((0, CPU * cpu),))
    return Snapshot(NOW, (node,), rows, leases)


def starts(taken: Snapshot, policies: Policies = EASY) -> dict[str, int | None]:
    return {
        each.lease: None if each.start is None else each.start - NOW
        for each in forecast(taken, policies)
    }


def running(name: str, arrival: int, began: int, ends: int, slots: int = 1):
    lease = view(
        name,
        arrival,
        slots=slots,
        duration=ends - began,
        state=LeaseState.ACTIVE,
        run_started=NOW + began,
    )
    rows = tuple(row(name, NOW + began, NOW + ends, rank=rank) for rank in range(slots))
    return lease, rows


def test_what_waits_starts_when_what_runs_has_used_up_its_time():
    lease, rows = running("a", 0, -50, 50, slots=2)
    taken = snapshot(lease, view("b", 1, slots=2), view("c", 2), rows=rows)
    assert starts(taken) == {"b": 50, "c": 150}


def test_another_policy_gives_another_order():
    lease, rows = running("a", 0, -50, 50, slots=2)
    waiting = (view("long", 1, duration=500, slots=2), view("brief", 2, duration=10, slots=2))
    taken = snapshot(lease, *waiting, rows=rows)
    assert starts(taken) == {"long": 50, "brief": 550}
    assert starts(taken, Policies(ordering=parse_ordering("shortest"))) == {"long": 60, "brief": 50}


def test_backfilling_passes_the_head_and_without_it_nobody_does():
    lease, rows = running("a", 0, -50, 50)
    taken = snapshot(lease, view("wide", 1, slots=2), view("brief", 2, duration=50), rows=rows)
    assert starts(taken) == {"wide": 50, "brief": 0}
    off = Policies(backfilling=Backfilling.OFF)
    assert starts(taken, off) == {"wide": 50, "brief": 150}


def test_a_lease_that_is_held_back_does_not_start_and_says_why():
    held = view("held", 0, blocked=Blocked("QUOTA_EXCEEDED", "the project has no quota left"))
    told = forecast(snapshot(held, view("free", 1)), EASY)
    assert [(each.lease, each.start, each.reason) for each in told] == [
        ("held", None, "QUOTA_EXCEEDED"),
        ("free", NOW, ""),
    ]


def test_a_booked_lease_starts_at_its_time_and_is_not_run_over():
    booked = view("booked", 0, slots=2, state=LeaseState.SCHEDULED, terms=Advance(NOW + 80))
    rows = tuple(row("booked", NOW + 80, NOW + 180, rank=rank) for rank in range(2))
    taken = snapshot(booked, view("long", 1), view("brief", 2, duration=80), rows=rows)
    assert starts(taken) == {"booked": 80, "long": 180, "brief": 0}


def test_a_suspended_lease_resumes_for_what_it_still_owes():
    lease, rows = running("a", 0, -50, 50, slots=2)
    suspended = view(
        "s", 1, state=LeaseState.SUSPENDED, duration=100, remaining_ms=30, preemptions=1
    )
    kept = row("s", NOW - 60, FOREVER, ReservationKind.RESIDENT, amounts=ResourceVector())
    taken = snapshot(lease, suspended, view("b", 2, slots=2), rows=(*rows, kept))
    assert starts(taken) == {"s": 50, "b": 80}


def test_a_lease_that_fits_no_node_is_never_started():
    (told,) = forecast(snapshot(view("huge", 0, slots=9)), EASY)
    assert (told.start, told.reason) == (None, "NO_SUITABLE_NODES")


def test_an_empty_pool_has_no_forecast_and_the_same_snapshot_the_same_one():
    assert forecast(snapshot(), EASY) == []
    lease, rows = running("a", 0, -50, 50, slots=2)
    taken = snapshot(lease, *(view(f"w{i}", i + 1, slots=1 + i % 2) for i in range(9)), rows=rows)
    assert forecast(taken, EASY) == forecast(taken, EASY)
