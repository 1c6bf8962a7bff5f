"""What every store of the autoscaler promises; the suite runs on memory and on PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace

import pytest
from tests.support.databases import open_test_pool

from tenure_autoscaler.app import PACKAGE
from tenure_autoscaler.ports import Store
from tenure_autoscaler.store.memory import MemoryStore
from tenure_autoscaler.store.postgres import SCHEMA, PostgresStore
from tenure_autoscaler.values import (
    Decision,
    ElasticPolicy,
    Group,
    GroupChange,
    GroupKind,
    Machine,
    MachineState,
    RequestMark,
)
from tenure_core.errors import AlreadyExists, Conflict, Invalid, NotFound
from tenure_core.resources import ResourceVector
from tenure_runtime.clocks import SystemClock
from tenure_runtime.postgres.migrate import migrate
from tenure_runtime.rpc.draining import Draining

CPU = ResourceVector({"cpu": 4_000})
MARK = RequestMark("ops", "", b"")


@pytest.fixture(params=["memory", "postgres"])
async def store(request: pytest.FixtureRequest, database_dsn: str) -> AsyncIterator[Store]:
    """An empty store of each kind."""
    if request.param == "memory":
        yield MemoryStore(SystemClock())
        return
    pool = await open_test_pool(database_dsn, SCHEMA)
    try:
        await migrate(pool, SCHEMA, PACKAGE)
        postgres = await PostgresStore.open(pool, Draining())
        running = asyncio.create_task(postgres.run())
        yield postgres
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    finally:
        await pool.close()


def group(name: str) -> Group:
    return Group(
        name, GroupKind.POOL, "main", 1, 5, "observe", CPU, 120_000, False, False, 1, 1_000
    )


def machine(name: str, state: MachineState = MachineState.RUNNING, of: str = "") -> Machine:
    return Machine(name, of, "main", state, CPU, 1_000)


def decision(subject: str, target: int, at_ms: int = 1_000) -> Decision:
    return Decision(subject, at_ms, 1, target, "HOLD", "Says why.", (("queue", "1"),))


async def test_a_group_is_created_once_for_each_request(store: Store) -> None:
    mark = RequestMark("ops", "6f1b3b0e-0000-4000-8000-000000000001", b"one")
    first = await store.create_group(group("g"), mark)
    assert first == group("g")
    assert await store.create_group(group("g"), mark) == first
    with pytest.raises(Invalid) as reused:
        await store.create_group(group("h"), replace(mark, request=b"other"))
    assert reused.value.reason == "REQUEST_ID_REUSED"
    with pytest.raises(AlreadyExists):
        await store.create_group(group("g"), MARK)
    assert await store.list_groups("", 9) == [first]


async def test_how_an_elastic_group_is_kept_is_stored_and_changed_and_is_for_such_groups(
    store: Store,
) -> None:
    farm = replace(group("g"), kind=GroupKind.ELASTIC, elastic=ElasticPolicy("serve", 1_000))
    mark = RequestMark("ops", "6f1b3b0e-0000-4000-8000-000000000002", b"one")
    assert [await store.create_group(farm, mark) for _ in range(2)] == [farm, farm]
    assert await store.get_group("g") == farm
    slower = ElasticPolicy("serve --slowly", 1_000, 90_000)
    changed = await store.change_group("g", GroupChange(elastic=slower), None)
    assert changed == replace(farm, elastic=slower, version=2) == await store.get_group("g")
    await store.create_group(group("p"), MARK)
    with pytest.raises(Invalid):
        await store.change_group("p", GroupChange(elastic=slower), None)


async def test_groups_are_listed_by_name(store: Store) -> None:
    for name in ("b", "a", "c"):
        await store.create_group(group(name), MARK)
    assert [g.group for g in await store.list_groups("", 2)] == ["a", "b"]
    assert [g.group for g in await store.list_groups("b", 2)] == ["c"]


async def test_a_change_compares_the_version_and_the_sizes(store: Store) -> None:
    await store.create_group(group("g"), MARK)
    changed = await store.change_group("g", GroupChange(size_max=9, boot_ms=5), 1)
    assert changed == replace(group("g"), size_max=9, boot_ms=5, version=2)
    assert await store.get_group("g") == changed
    assert await store.change_group("g", GroupChange(size_max=9), None) == changed
    with pytest.raises(Conflict):
        await store.change_group("g", GroupChange(size_max=8), 1)
    with pytest.raises(Invalid):
        await store.change_group("g", GroupChange(size_min=10), None)
    with pytest.raises(NotFound):
        await store.change_group("none", GroupChange(), None)
    with pytest.raises(Conflict):
        await store.delete_group("g", 1)
    await store.delete_group("g", 2)
    with pytest.raises(NotFound):
        await store.get_group("g")


async def test_only_machines_that_differ_are_changes(store: Store) -> None:
    _, token = await store.list_machines("", "", "", 9)
    assert await store.sync_machines([machine("a"), machine("b")]) == 2
    assert await store.sync_machines([machine("a"), machine("b", of="g")]) == 1
    assert await store.sync_machines([machine("a", MachineState.LOST), machine("b", of="g")]) == 1
    seen = []
    async with aclosing(store.watch_machines(token)) as changes:
        async for change in changes:
            if change.machine is not None:
                seen.append((change.machine.machine, change.machine.state.value))
            if len(seen) == 4:
                break
    assert seen == [("a", "RUNNING"), ("b", "RUNNING"), ("b", "RUNNING"), ("a", "LOST")]
    in_group, _ = await store.list_machines("g", "main", "", 9)
    assert in_group == [replace(machine("b", of="g"), version=2)]


async def test_a_decision_that_says_nothing_new_is_not_stored(store: Store) -> None:
    assert await store.add_decision(decision("groups/g", 2))
    assert not await store.add_decision(decision("groups/g", 2, 2_000))
    assert await store.add_decision(decision("groups/h", 2))
    assert await store.add_decision(decision("groups/g", 3))
    newest = await store.list_decisions("", 0, 2)
    assert [(d.subject, d.target) for d in newest] == [("groups/g", 3), ("groups/h", 2)]
    older = await store.list_decisions("", newest[-1].number, 9)
    assert [(d.subject, d.target, d.inputs) for d in older] == [("groups/g", 2, (("queue", "1"),))]
    assert await store.forget(60_000) == 1
    kept = await store.list_decisions("", 0, 9)
    assert [(d.subject, d.target) for d in kept] == [("groups/g", 3), ("groups/h", 2)]
