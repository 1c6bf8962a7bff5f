"""What every store of fleets promises; the suite runs on memory and on PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest
from tests.support.databases import open_test_pool

from tenure_autoscaler.app import PACKAGE
from tenure_autoscaler.ports import FleetStore, Store
from tenure_autoscaler.records import FleetMemory, GroupClaim, MachineRecord
from tenure_autoscaler.store.fleet_memory import MemoryFleetStore
from tenure_autoscaler.store.fleet_postgres import PostgresFleetStore
from tenure_autoscaler.store.memory import MemoryStore
from tenure_autoscaler.store.postgres import SCHEMA, PostgresStore
from tenure_autoscaler.values import Decision, Group, GroupKind, MachineState, RequestMark
from tenure_core.autoscaling.fleet import FleetState
from tenure_core.autoscaling.group_records import GroupState
from tenure_core.autoscaling.lead_times import Measured
from tenure_core.autoscaling.machines import CommandKind, CreateIntent, MachineRole
from tenure_core.autoscaling.machines import MachineRecord as CoreRecord
from tenure_core.autoscaling.provider_errors import CLEAN, ProviderErrorClass, after_failure
from tenure_core.errors import Stale, WrongState
from tenure_core.resources import ResourceVector
from tenure_runtime.clocks import SystemClock
from tenure_runtime.postgres.migrate import migrate
from tenure_runtime.rpc.draining import Draining

CPU = ResourceVector({"cpu": 4_000})
CLAIM = GroupClaim("g", 3)


@dataclass(frozen=True)
class Stores:
    """The stores of groups and of fleets over one place."""

    groups: Store
    fleets: FleetStore


@pytest.fixture(params=["memory", "postgres"])
async def stores(request: pytest.FixtureRequest, database_dsn: str) -> AsyncIterator[Stores]:
    """Empty stores of each kind, with groups g (at most 2 machines) and h."""
    if request.param == "memory":
        memory = MemoryStore(SystemClock())
        made = Stores(memory, MemoryFleetStore(memory))
        await begin(made)
        yield made
        return
    pool = await open_test_pool(database_dsn, SCHEMA)
    try:
        await migrate(pool, SCHEMA, PACKAGE)
        made = Stores(await PostgresStore.open(pool, Draining()), PostgresFleetStore(pool))
        await begin(made)
        yield made
    finally:
        await pool.close()


async def begin(stores: Stores) -> None:
    for name in ("g", "h"):
        group = Group(name, GroupKind.POOL, "main", 0, 2, "simulated", CPU, 1, False, False, 1, 0)
        await stores.groups.create_group(group, RequestMark("ops", "", b""))


def record(name: str, of: str = "g", generation: int = 1) -> MachineRecord:
    return MachineRecord(
        name, of, "main", generation, f"{of}.{name}.{generation}",
        MachineState.REQUESTED, CPU, 1_000, 1_000, reason="target",
    )  # fmt: skip


def decision(target: int) -> Decision:
    inputs = (("orders", "BOOT"),)
    return Decision("groups/g", 1_000, 0, target, "BACKLOG", "Why.", inputs, enacted=True)


async def order(stores: Stores, *records: MachineRecord, besides: int = 0) -> int:
    return await stores.fleets.order(
        CLAIM, records, FleetMemory(), decision(len(records)), besides=besides
    )


async def test_orders_decision_and_memory_are_read_back_whole(stores: Stores) -> None:
    backoff = after_failure(CLEAN, ProviderErrorClass.QUOTA, now_ms=5_000)
    memory = FleetMemory(
        FleetState(), backoff, Measured((1, 2, 3), 4, 1), {"sim-9": 77}, 5, {"m3": 9_000}
    )
    made = replace(record("m1"), provider_id="sim-1", idle_since_ms=7, before="disk-1")
    number = await stores.fleets.order(CLAIM, [made], memory, decision(1), besides=0)
    book = await stores.fleets.open_book("g")
    assert (book.records, book.memory, book.taken) == ((made,), memory, frozenset({"m1"}))
    [told] = await stores.groups.list_decisions("groups/g", 0, 9)
    assert told == replace(decision(1), number=number)
    await stores.fleets.tell_results(CLAIM, number, [("m1", "BOOTING")])
    [told] = await stores.groups.list_decisions("groups/g", 0, 9)
    assert told.results == (("m1", "BOOTING"),)


async def test_p16_the_cap_holds_with_strays_and_what_is_being_removed(stores: Stores) -> None:
    removing = replace(record("m1"), state=MachineState.REMOVING, removed_ms=5)
    await stores.fleets.write(CLAIM, [removing])
    with pytest.raises(WrongState) as refused:
        await order(stores, record("m2"), besides=1)
    assert refused.value.reason == "CAP_REACHED"
    with pytest.raises(WrongState):
        await order(stores, record("m2"), record("m3"))
    book = await stores.fleets.open_book("g")
    assert [r.machine for r in book.records] == ["m1"]
    assert await stores.groups.list_decisions("", 0, 9) == []
    await order(stores, record("m2"))
    gone = replace(removing, state=MachineState.REMOVED)
    await stores.fleets.write(CLAIM, [gone])
    await order(stores, record("m3"))
    assert (await stores.fleets.open_book("g")).taken == {"m2", "m3"}


async def test_what_an_elastic_group_remembers_is_read_back_and_its_master_is_outside_the_cap(
    stores: Stores,
) -> None:
    known = CoreRecord("g-1", MachineRole.MASTER, CommandKind.APP_INIT, 5, master_epoch=2)
    intent = CreateIntent("g-2", MachineRole.WORKER, 7, 2)
    state = GroupState("g-1", 2, False, {"g-1": known}, (intent,), 2)
    master = replace(record("m1"), role="MASTER", token="g-1", application="serve")
    workers = [replace(record(name), role="WORKER") for name in ("m2", "m3")]
    memory = FleetMemory(elastic=state)
    await stores.fleets.order(CLAIM, [master, *workers], memory, decision(3), besides=0)
    book = await stores.fleets.open_book("g")
    assert (book.records, book.memory) == ((master, *workers), memory)
    with pytest.raises(WrongState):
        await order(stores, replace(record("m4"), role="WORKER"))


async def test_p23_a_smaller_epoch_writes_nothing(stores: Stores) -> None:
    await stores.fleets.fence(CLAIM)
    old = GroupClaim("g", 2)
    for attempt in (
        stores.fleets.fence(old),
        stores.fleets.write(old, [record("m1")]),
        stores.fleets.order(old, [record("m1")], FleetMemory(), decision(1), besides=0),
        stores.fleets.tell_results(old, 1, []),
    ):
        with pytest.raises(Stale):
            await attempt
    assert not (await stores.fleets.open_book("g")).records
    await stores.fleets.write(GroupClaim("h", 1), [record("m1", "h")])


async def test_a_name_belongs_to_one_live_machine_of_all_groups(stores: Stores) -> None:
    await order(stores, record("m1"))
    other = GroupClaim("h", 1)
    with pytest.raises(WrongState) as refused:
        await stores.fleets.order(other, [record("m1", "h")], FleetMemory(), decision(1), besides=0)
    assert refused.value.reason == "MACHINE_TAKEN"
    await stores.fleets.write(CLAIM, [replace(record("m1"), state=MachineState.LOST)])
    await stores.fleets.write(other, [record("m1", "h")])
    assert [r.group for r in await stores.fleets.all_records()] == ["h"]


async def test_a_group_with_machines_or_offers_is_not_forgotten(stores: Stores) -> None:
    await order(stores, record("m1"))
    with pytest.raises(WrongState):
        await stores.groups.delete_group("g", None)
    ended = replace(record("m1"), state=MachineState.REMOVED)
    await stores.fleets.write(CLAIM, [ended], FleetMemory(offered={"m2": 5}))
    with pytest.raises(WrongState):
        await stores.groups.delete_group("g", None)
    await stores.fleets.write(CLAIM, [], FleetMemory())
    await stores.groups.delete_group("g", None)
