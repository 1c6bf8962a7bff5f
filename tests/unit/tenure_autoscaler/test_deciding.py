"""What the autoscaler would do about a group, and why; over the memory store."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tenure_autoscaler.deciding import decide, machines_of
from tenure_autoscaler.store.fleet_memory import MemoryFleetStore
from tenure_autoscaler.store.memory import MemoryStore
from tenure_autoscaler.usecases import Groups, Observing
from tenure_autoscaler.values import (
    Booking,
    Decision,
    Group,
    GroupChange,
    GroupKind,
    MachineState,
    PoolView,
    RequestMark,
    SeenAgent,
)
from tenure_core.autoscaling.fleet import FleetState
from tenure_core.autoscaling.queue_packing import WaitingLease
from tenure_core.errors import WrongState
from tenure_core.resources import ResourceVector
from tenure_core.timebase import FOREVER, HOUR_MS, Interval

NOW = 10 * HOUR_MS
CPU = ResourceVector({"cpu": 4_000})


class FixedClock:
    def __init__(self) -> None:
        self.at_ms = NOW

    def now_ms(self) -> int:
        return self.at_ms


class FixedFleet:
    def __init__(self, agents: Sequence[SeenAgent] | None) -> None:
        self.seen = agents

    def agents(self) -> Sequence[SeenAgent] | None:
        return self.seen


class FixedDemand:
    def __init__(self, view: PoolView) -> None:
        self.now_known = view

    async def view(self, pool: str, now_ms: int) -> PoolView:
        return self.now_known


def group(name: str = "g", size_min: int = 0, size_max: int = 5, **given: object) -> Group:
    fields: dict[str, object] = {
        "kind": GroupKind.POOL, "pool": "main", "provider": "observe", "amounts": CPU,
        "boot_ms": 120_000, "paused": False, "dry_run": False, "version": 1, "created_ms": NOW,
    }  # fmt: skip
    return Group(name, size_min=size_min, size_max=size_max, **{**fields, **given})  # type: ignore[arg-type]


def agent(name: str, *, group: str = "", pool: str = "main", cpu: int = 4_000) -> SeenAgent:
    return SeenAgent(name, pool, MachineState.RUNNING, ResourceVector({"cpu": cpu}), group, NOW)


def waiting(count: int) -> tuple[WaitingLease, ...]:
    return tuple(WaitingLease(f"l{i}", 1, CPU) for i in range(count))


def decided(of: Group, agents: Sequence[SeenAgent], view: PoolView) -> Decision:
    return decide(of, machines_of(agents, [of]), view, FleetState(), NOW)[0]


def test_a_pools_only_group_claims_machines_that_have_its_amounts() -> None:
    agents = [agent("big"), agent("small", cpu=1_000), agent("far", pool="other")]
    assert [m.group for m in machines_of(agents, [group()])] == ["g", "", ""]


def test_of_several_groups_a_machine_belongs_to_the_one_that_its_agent_names() -> None:
    agents = [agent("a", group="h"), agent("b"), agent("c", group="none")]
    assert [m.group for m in machines_of(agents, [group("g"), group("h")])] == ["h", "", ""]


def test_what_waits_asks_for_machines_up_to_the_limit() -> None:
    told = decided(group(), [agent("a")], PoolView(waiting(3), ()))
    assert (told.current, told.target, told.rule) == (1, 3, "BACKLOG")
    told = decided(group(), [], PoolView(waiting(9), ()))
    assert (told.current, told.target, told.rule) == (0, 5, "BACKLOG")
    full = decided(group(size_max=1), [agent("a")], PoolView(waiting(9), (held("a"),)))
    assert (full.current, full.target) == (1, 1)


def held(node: str, start: int = NOW - 1_000, end: int = FOREVER) -> Booking:
    return Booking(node, Interval(start, end), CPU)


def test_bookings_that_come_within_the_boot_time_ask_for_machines() -> None:
    soon = PoolView((), tuple(held(f"n{i}", NOW + 60_000) for i in range(3)))
    told = decided(group(), [agent("n0")], soon)
    assert (told.current, told.target, told.rule) == (1, 3, "BOOKED")
    later = PoolView((), tuple(held(f"n{i}", NOW + 2 * HOUR_MS) for i in range(3)))
    assert decided(group(), [agent("n0")], later).target == 1


def test_an_unknown_queue_gives_nothing_up() -> None:
    for view in (PoolView(None, ()), PoolView((), None), PoolView(None, None)):
        told = decided(group(), [agent("a"), agent("b")], view)
        assert (told.target, told.rule) == (2, "QUEUE_UNKNOWN")


def test_a_group_keeps_its_minimum() -> None:
    told = decided(group(size_min=2), [], PoolView((), ()))
    assert (told.current, told.target, told.rule) == (0, 2, "MINIMUM")


def test_an_elastic_group_without_a_master_is_left_alone() -> None:
    told = decided(group(kind=GroupKind.ELASTIC), [agent("a")], PoolView((), ()))
    assert (told.current, told.target, told.rule) == (1, 1, "NO_MEASUREMENT")


async def test_each_change_of_mind_is_one_decision() -> None:
    clock = FixedClock()
    store = MemoryStore(clock)
    fleet, demand = FixedFleet([agent("a")]), FixedDemand(PoolView((), ()))
    observing = Observing(store, MemoryFleetStore(store), fleet, demand, clock)
    await observing.run_once()
    await observing.run_once()
    assert [d.rule for d in await store.list_decisions("", 0, 9)] == ["NO_GROUP"]
    await Groups(store).create(group(), RequestMark("ops", "", b""))
    demand.now_known = PoolView(waiting(3), ())
    await observing.run_once()
    await observing.run_once()
    decisions = await store.list_decisions("groups/g", 0, 9)
    assert [(d.current, d.target, d.rule) for d in decisions] == [(1, 3, "BACKLOG")]
    machines, _ = await store.list_machines("g", "", "", 9)
    assert [(m.machine, m.version) for m in machines] == [("a", 2)]


async def test_a_registry_that_was_never_heard_is_not_an_empty_fleet() -> None:
    clock = FixedClock()
    store = MemoryStore(clock)
    await Observing(
        store,
        MemoryFleetStore(store),
        FixedFleet([agent("a")]),
        FixedDemand(PoolView((), ())),
        clock,
    ).run_once()
    deaf = Observing(
        store, MemoryFleetStore(store), FixedFleet(None), FixedDemand(PoolView((), ())), clock
    )
    assert await deaf.run_once() == 0
    assert len((await store.list_machines("", "", "", 9))[0]) == 1


async def test_a_group_with_machines_is_not_forgotten() -> None:
    clock = FixedClock()
    store = MemoryStore(clock)
    groups = Groups(store)
    await groups.create(group(), RequestMark("ops", "", b""))
    fleet = FixedFleet([agent("a")])
    observing = Observing(
        store, MemoryFleetStore(store), fleet, FixedDemand(PoolView((), ())), clock
    )
    await observing.run_once()
    with pytest.raises(WrongState) as used:
        await store.delete_group("g", None)
    assert used.value.reason == "GROUP_IN_USE"
    await groups.change("g", GroupChange(paused=True))
    lost = SeenAgent("a", "main", MachineState.LOST, CPU, "", NOW)
    fleet.seen = [lost]
    await observing.run_once()
    await store.delete_group("g", None)
