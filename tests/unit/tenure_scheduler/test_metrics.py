"""What a leader shows of its pool, from what it knows anyway."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.tenure_scheduler.test_mirror import an_entry

from tenure_core.agents.states import AgentState
from tenure_core.leases.states import LeaseState
from tenure_core.planning.snapshot import ReservationKind, ReservationView
from tenure_core.resources import ResourceVector
from tenure_core.slots.operations import Node, NodeState
from tenure_core.timebase import Interval
from tenure_scheduler import metrics
from tenure_scheduler.entries import AgentEntry, Prediction, Transition, TransitionVerdict
from tenure_scheduler.mirror import PoolMirror
from tenure_scheduler.observing import observe
from tenure_scheduler.ports import Claim

CPU = ResourceVector({"cpu": 4_000})


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    observe([])


def a_leader(mirror: PoolMirror, *predictions: Prediction) -> Any:
    outcome = SimpleNamespace(predictions={each.lease: each for each in predictions})
    reign = SimpleNamespace(
        mirror=mirror,
        clock=SimpleNamespace(now_ms=lambda: 9_000),
        claim=Claim("p", 7),
        cycle=SimpleNamespace(outcome=outcome),
    )
    return SimpleNamespace(pool="p", reign=reign)


def a_row(name: str, start: int, end: int, **more: Any) -> ReservationView:
    cpu = ResourceVector({"cpu": 1_000})
    row = ReservationView(name, "x", 1, 0, "n0", Interval(start, end), cpu, ReservationKind.RUN)
    return replace(row, **more)


def test_the_queue_is_counted_by_reason_with_the_age_of_its_oldest() -> None:
    mirror = PoolMirror()
    for number, name in enumerate(("a", "b", "c")):
        entry = an_entry(name, LeaseState.QUEUED, 1)
        mirror.put_lease(replace(entry, lease=replace(entry.lease, created=1_000 * (number + 1))))
    mirror.put_lease(an_entry("runs", LeaseState.ACTIVE, 1))
    expected = [Prediction(name, None, 1, "NO_CAPACITY", "") for name in ("a", "b")]

    observe([a_leader(mirror, *expected)])

    assert metrics.QUEUE_LENGTH.values == {("p", "NO_CAPACITY"): 2, ("p", "NOT_PLANNED"): 1}
    assert metrics.QUEUE_AGE.values == {("p", "NO_CAPACITY"): 8.0, ("p", "NOT_PLANNED"): 6.0}
    assert metrics.LEASES.values["p", "QUEUED"] == 3
    assert metrics.LEASES.values["p", "ACTIVE"] == 1


def test_utilisation_is_what_is_booked_for_now_of_what_open_nodes_have() -> None:
    mirror = PoolMirror()
    mirror.put_node(Node("n0", "p", ((0, CPU),)))
    mirror.put_node(Node("n1", "p", ((0, CPU),), state=NodeState.CORDONED))
    for row in (
        *(a_row("now", 0, 10_000), a_row("later", 9_500, 20_000), a_row("over", 0, 9_000)),
        a_row("displaced", 0, 10_000, displaced=True),
    ):
        mirror.put_row(row)
    mirror.put_agent(AgentEntry("n0", AgentState.ALIVE, CPU))
    mirror.put_agent(AgentEntry("n1", AgentState.LOST, CPU))

    observe([a_leader(mirror)])

    assert metrics.CAPACITY.values == {("p", "cpu"): 4_000}
    assert metrics.BOOKED.values == {("p", "cpu"): 1_000}
    assert metrics.AGENTS.values == {("p", "ALIVE"): 1, ("p", "LOST"): 1}
    assert metrics.EPOCH.values == {("p",): 7}


def test_who_leads_no_more_shows_nothing() -> None:
    observe([a_leader(PoolMirror())])
    observe([SimpleNamespace(pool="p", reign=None)])  # type: ignore[list-item]
    assert metrics.EPOCH.values == {("p",): 0}
    assert metrics.LEASES.values == metrics.REVISION.values == {}


def test_lateness_and_preemptions_are_of_what_was_recorded() -> None:
    entry = an_entry("x", LeaseState.ACTIVE, 2)
    before = metrics.PREEMPTIONS.values["q",]

    def transition(name: str, state: LeaseState, **more: Any) -> Transition:
        return Transition(name, "x", 1, state, 1, **more)

    asked = [
        transition("late", LeaseState.ACTIVE, started=2_500),
        transition("refused", LeaseState.ACTIVE, started=9_000),
        transition("suspended", LeaseState.SUSPENDED, preempted=True, reason="PREEMPTED"),
        transition("unbooked", LeaseState.QUEUED, reason="PREEMPTED"),
        transition("resumed", LeaseState.ACTIVE),
        transition("over at once", LeaseState.DONE, started=500),
    ]
    metrics.recorded(
        "q",
        asked,
        [
            TransitionVerdict(each.id, "STALE" if each.id == "refused" else "", "", entry)
            for each in asked
        ],
    )

    late = metrics.LATENESS.values["q",]
    assert (late.count, late.total) == (2, 3_000)
    assert metrics.PREEMPTIONS.values["q",] - before == 2
