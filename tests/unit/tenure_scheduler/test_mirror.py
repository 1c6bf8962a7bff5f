"""What a leader knows of its pool: who may run where, and until when."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tenure_core.agents.states import AgentState
from tenure_core.leases.lease import BestEffort, Lease, LeaseSpec, Placement
from tenure_core.leases.states import ENDED, PLACED, WAITING, LeaseState
from tenure_core.planning.snapshot import ReservationKind, ReservationView
from tenure_core.resources import ResourceVector
from tenure_core.timebase import Interval
from tenure_scheduler.entries import AgentEntry, LeaseEntry, TableState
from tenure_scheduler.mirror import PoolMirror

CPU = ResourceVector({"cpu": 2})
SPAN = Interval(0, 1_000)


def an_entry(name: str, state: LeaseState, version: int, attempt: int = 1) -> LeaseEntry:
    spec = LeaseSpec("ada", "p", "pool", BestEffort(), 1, CPU, 1_000)
    where = (Placement(0, "n0", SPAN),)
    lease = Lease(name, spec, state, 0, attempt=attempt, placements=where, version=version)
    return LeaseEntry(lease)


@pytest.mark.parametrize(
    "after", sorted(WAITING | ENDED | {LeaseState.SCHEDULED}, key=lambda state: state.value)
)
def test_a_lease_that_is_with_no_agent_occupies_no_node(after: LeaseState) -> None:
    """Also when its agent never heard of it, and so never says that it ended."""
    mirror = PoolMirror()
    mirror.put_agent(AgentEntry("n0", AgentState.ALIVE, CPU))
    mirror.put_lease(an_entry("first", LeaseState.STARTING, 1))
    mirror.put_lease(an_entry("next", LeaseState.SCHEDULED, 1))
    row = ReservationView("r", "next", 1, 0, "n0", SPAN, CPU, ReservationKind.RUN)
    mirror.put_row(row)
    mirror.enter("first", 1, 0, "n0")
    waiting = mirror.leases["next"]
    assert not mirror.has_room(waiting, [row])
    mirror.take_due(0)

    mirror.put_lease(an_entry("first", after, 2))

    assert mirror.has_room(waiting, [row])
    assert "next" in mirror.take_due(0)


@pytest.mark.parametrize("state", sorted(PLACED, key=lambda state: state.value))
def test_a_lease_that_agents_know_of_occupies_its_nodes(state: LeaseState) -> None:
    mirror = PoolMirror()
    mirror.put_agent(AgentEntry("n0", AgentState.ALIVE, CPU))
    mirror.put_lease(an_entry("first", LeaseState.STARTING, 1))
    mirror.enter("first", 1, 0, "n0")
    row = ReservationView("r", "next", 1, 0, "n0", SPAN, CPU, ReservationKind.RUN)
    entry = an_entry("next", LeaseState.SCHEDULED, 1)

    mirror.put_lease(an_entry("first", state, 2))

    assert not mirror.has_room(entry, [row])
    assert mirror.has_room(entry, [replace(row, amounts=ResourceVector())])


def test_leases_are_counted_by_the_state_they_are_in() -> None:
    """Whether to plan again is asked of these counts in each cycle."""
    mirror = PoolMirror()
    mirror.put_lease(an_entry("first", LeaseState.PENDING, 1))
    mirror.put_lease(an_entry("next", LeaseState.PENDING, 1))
    mirror.put_lease(an_entry("first", LeaseState.SCHEDULED, 2))
    mirror.put_lease(an_entry("first", LeaseState.PENDING, 1))
    counted = [mirror.count_in(state) for state in (LeaseState.PENDING, LeaseState.SCHEDULED)]
    assert counted == [1, 1]

    mirror.put_lease(an_entry("first", LeaseState.DONE, 3))
    mirror.load(TableState((), (), "", 0, 0), [an_entry("next", LeaseState.QUEUED, 2)])

    states = (LeaseState.PENDING, LeaseState.QUEUED, LeaseState.SCHEDULED, LeaseState.DONE)
    assert [mirror.count_in(state) for state in states] == [0, 1, 0, 0]
