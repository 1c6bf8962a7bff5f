"""What every store of the registry promises; the suite runs on memory and on PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace

import pytest
from tests.support.databases import open_test_pool

from tenure_core.agents.agent import Claim
from tenure_core.agents.states import AgentState
from tenure_core.agents.work import (
    AllocationState,
    Command,
    Report,
    ReportKind,
    Slot,
    Verb,
)
from tenure_core.errors import Invalid, NotFound, Stale
from tenure_core.leases.lease import OnLoss
from tenure_core.resources import ResourceVector
from tenure_registry.app import PACKAGE
from tenure_registry.convert import lost_report
from tenure_registry.ports import Store
from tenure_registry.store.memory import MemoryStore
from tenure_registry.store.postgres import SCHEMA, PostgresStore
from tenure_registry.values import (
    ApplicationOrder,
    Dispatch,
    Opening,
    Outgoing,
    ReportGroup,
    StateChange,
    StoredApplication,
)
from tenure_runtime.clocks import SystemClock
from tenure_runtime.postgres.migrate import migrate
from tenure_runtime.rpc.draining import Draining

LOSS_MS = 60


@pytest.fixture(params=["memory", "postgres"])
async def store(request: pytest.FixtureRequest, database_dsn: str) -> AsyncIterator[Store]:
    """An empty store of each kind."""
    if request.param == "memory":
        yield MemoryStore(SystemClock(), lost_report, LOSS_MS)
        return
    pool = await open_test_pool(database_dsn, SCHEMA)
    try:
        await migrate(pool, SCHEMA, PACKAGE)
        postgres = await PostgresStore.open(pool, Draining(), lost_report, LOSS_MS)
        running = asyncio.create_task(postgres.run())
        yield postgres
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    finally:
        await pool.close()


def hello(
    agent: str, session: str = "s1", *, replica: str = "r1", disk: str = "d1", pool: str = "main"
) -> Opening:
    claim = Claim(
        agent, pool, disk, "0.1", ResourceVector({"cpu": 1000}), (("zone", "a"),), ("memory",)
    )
    return Opening(claim, session, replica, frozenset())


def told(
    command_id: str,
    agent: str = "a1",
    lease: str = "l1",
    verb: Verb = Verb.START,
    *,
    epoch: int = 1,
    valid_ms: int = 60_000,
    on_loss: OnLoss = OnLoss.STOP,
    digest: bytes = b"same",
) -> Command:
    body = f"{command_id}@{epoch}".encode()
    return Command(
        command_id, agent, Slot(lease, 1, 0), verb, epoch, valid_ms, on_loss, digest, body
    )


def said(command: Command, kind: ReportKind, sequence: int = 1, agent: str | None = None) -> Report:
    return Report(
        f"r{sequence}",
        agent or command.agent,
        command.command_id,
        command.slot,
        kind,
        sequence,
        b"body",
    )


def dispatch(*commands: Command, epoch: int = 1) -> Dispatch:
    return Dispatch("main", epoch, commands)


def ids(outgoing: list[Outgoing] | tuple[Outgoing, ...]) -> list[str]:
    return [each.command.command_id for each in outgoing]


async def test_a_hello_stores_the_claim_and_replaces_the_session(store: Store) -> None:
    first = await store.open_session(hello("a1"))
    assert first.replica_before == ""
    second = await store.open_session(hello("a1", "s2", replica="r2"))
    assert (second.replica_before, second.agent.session) == ("r1", "s2")
    agent, allocations = await store.get_agent("a1")
    assert (agent, allocations) == (second.agent, [])
    assert (agent.state, agent.suspended_keeps) == (AgentState.ALIVE, ("memory",))
    assert agent.attributes == (("zone", "a"),)
    assert await store.superseded({"a1": "s1"}) == [agent]
    assert await store.superseded({"a1": "s2", "none": "s"}) == []
    with pytest.raises(NotFound):
        await store.get_agent("none")


async def test_hellos_at_once_are_all_answered(store: Store) -> None:
    opened = await asyncio.gather(*(store.open_session(hello(f"a{i}", f"s{i}")) for i in range(50)))
    assert [each.agent.session for each in opened] == [f"s{i}" for i in range(50)]


async def test_commands_stay_pending_until_answered_in_the_order_of_dispatch(store: Store) -> None:
    await store.open_session(hello("a1"))
    first, second = told("c1"), told("c2", lease="l2")
    dispatched = await store.dispatch(dispatch(second, first))
    assert (dispatched.reasons, ids(dispatched.deliveries)) == (("", ""), ["c2", "c1"])
    assert dispatched.replicas == {"a1": "r1"}
    pending = await store.pending(["a1"])
    assert ids(pending) == ["c2", "c1"]
    assert all(0 < each.remaining_ms <= 60_000 for each in pending)
    assert pending[0].command == second
    await store.record(ReportGroup("a1", (said(second, ReportKind.STARTED),)))
    assert ids(await store.pending(["a1"])) == ["c1"]


async def test_a_repeat_is_a_repeat_and_another_content_is_refused(store: Store) -> None:
    await store.open_session(hello("a1"))
    await store.dispatch(dispatch(told("c1")))
    again = await store.dispatch(dispatch(told("c1"), told("c1", digest=b"other")))
    assert (again.reasons, again.deliveries) == (("", "COMMAND_ID_REUSED"), ())


async def test_a_command_dispatched_twice_at_once_is_stored_once(store: Store) -> None:
    await store.open_session(hello("a1"))
    commands = [told(f"c{i}", lease=f"l{i}") for i in range(20)]
    both = await asyncio.gather(
        *(store.dispatch(dispatch(*commands)) for _ in range(2)),
        *(store.dispatch(dispatch(command)) for command in reversed(commands)),
    )
    assert [set(each.reasons) for each in both] == [{""}] * 22
    delivered = [name for each in both for name in ids(each.deliveries)]
    assert sorted(delivered) == sorted(command.command_id for command in commands)


async def test_a_new_epoch_renews_what_has_no_answer(store: Store) -> None:
    await store.open_session(hello("a1"))
    await store.dispatch(dispatch(told("c1"), told("c2", lease="l2")))
    await store.record(ReportGroup("a1", (said(told("c2", lease="l2"), ReportKind.STARTED),)))
    again = await store.dispatch(
        dispatch(told("c1", epoch=2), told("c2", lease="l2", epoch=2), epoch=2)
    )
    assert (again.reasons, ids(again.deliveries)) == (("", ""), ["c1"])
    assert (await store.pending(["a1"]))[0].command.body == b"c1@2"


async def test_an_older_epoch_is_stale_everywhere(store: Store) -> None:
    await store.open_session(hello("a1"))
    assert await store.fence("pool/main", 5) == 5
    with pytest.raises(Stale):
        await store.dispatch(dispatch(told("c1"), epoch=4))
    assert await store.pending(["a1"]) == []
    await store.dispatch(dispatch(told("c1", epoch=6), epoch=6))
    with pytest.raises(Stale):
        await store.fence("pool/main", 5)
    assert (await store.open_session(hello("a1", "s2"))).epochs == {"pool/main": 6}


async def test_an_end_settles_what_else_was_to_be_done(store: Store) -> None:
    await store.open_session(hello("a1"))
    start, stop = told("c1"), told("c2", verb=Verb.STOP)
    await store.dispatch(dispatch(start, stop))
    await store.record(
        ReportGroup("a1", (said(start, ReportKind.STARTED), said(start, ReportKind.ENDED, 2)))
    )
    assert await store.pending(["a1"]) == []
    allocation = await store.find_allocation("l1", 0, 0)
    assert (allocation.live, allocation.state) == (False, AllocationState.ENDED)
    assert allocation.last == said(start, ReportKind.ENDED, 2)


async def test_whose_an_allocation_is_stays_known_from_its_start_on(store: Store) -> None:
    await store.open_session(hello("a1"))
    prepare = told("c0", verb=Verb.PREPARE)
    await store.dispatch(dispatch(prepare))
    unknown = await store.find_allocation("l1", 0, 0)
    start = replace(told("c1"), owner="ann", project="physics")
    await store.dispatch(dispatch(start))
    await store.record(ReportGroup("a1", (said(start, ReportKind.STARTED),)))
    known = await store.find_allocation("l1", 0, 0)
    assert (unknown.owner, unknown.project) == ("", "")
    assert (known.owner, known.project) == ("ann", "physics")


async def test_reports_are_stored_once_and_watched_in_order(store: Store) -> None:
    await store.open_session(hello("a1"))
    start = told("c1")
    await store.dispatch(dispatch(start))
    _, token = await store.last_reports("main", None, 10)
    started, ended = said(start, ReportKind.STARTED), said(start, ReportKind.ENDED, 2)
    stranger = said(start, ReportKind.ENDED, 7, agent="a2")
    groups = [
        ReportGroup("a1", (started,)),
        ReportGroup("a1", (started, ended)),
        ReportGroup("a2", (stranger,)),
    ]
    for group in groups:
        await store.record(group)
    seen = []
    async with aclosing(store.watch_reports(token, "main")) as changes:
        async for change in changes:
            seen.append(change)
            if len(seen) == 2:
                break
    assert [change.report for change in seen] == [started, ended]
    async with aclosing(store.watch_reports(seen[0].token, "main")) as changes:
        assert (await anext(changes)).report == ended
    assert (await store.last_reports("main", None, 10))[0] == [ended]
    assert (await store.last_reports("other", None, 10))[0] == []
    with pytest.raises(Invalid):
        async with aclosing(store.watch_reports("no token", "main")) as changes:
            await anext(changes)


async def test_states_change_only_for_the_session_given_and_along_the_table(store: Store) -> None:
    await store.open_session(hello("a1"))
    _, token = await store.list_agents("", (), "", 10)
    await store.change_states(
        [
            StateChange("a1", "old", AgentState.SUSPECT, 1),
            StateChange("none", "s", AgentState.SUSPECT, 1),
        ]
    )
    await store.change_states([StateChange("a1", "s1", AgentState.ALIVE, 1)])
    await store.change_states([StateChange("a1", "s1", AgentState.SUSPECT, 1)])
    async with aclosing(store.watch_agents(token, "main")) as changes:
        change = await anext(changes)
    assert change.agent is not None
    assert change.agent.state is AgentState.SUSPECT


async def test_a_loss_is_one_change_of_everything(store: Store) -> None:
    await store.open_session(hello("a1"))
    await store.open_session(hello("a2", "s2"))
    stop, keep = told("c1"), told("c2", lease="l2", on_loss=OnLoss.KEEP)
    other = told("c3", "a2", "l3")
    await store.dispatch(dispatch(stop, keep, other))
    assert await store.declare_lost({"a1": "older"}, "r1") == []
    assert await store.declare_lost({"a1": "s1"}, "elsewhere") == []
    assert await store.declare_lost({"a1": "s1", "a9": "s"}, "r1") == ["a1"]
    agent, live = await store.get_agent("a1")
    assert (agent.state, agent.session) == (AgentState.LOST, "")
    assert [allocation.slot.lease for allocation in live] == ["l2"]
    assert ids(await store.pending(["a1", "a2"])) == ["c3"]
    reports, _ = await store.last_reports("main", None, 10)
    assert [(r.slot.lease, r.kind) for r in reports] == [("l1", ReportKind.LOST)]
    refused = await store.dispatch(dispatch(told("c1"), told("c4", lease="l4")))
    assert refused.reasons == ("AGENT_LOST", "AGENT_LOST")
    back = await store.open_session(hello("a1", "s9"))
    # The one to be kept never started: its START was void and the agent does not have it.
    assert (back.wanted, back.commands) == ((), ())
    reports, _ = await store.last_reports("main", None, 10)
    assert [r.slot.lease for r in reports] == ["l1", "l2"]


async def test_work_of_an_old_disk_ends_a_loss_time_later(store: Store) -> None:
    await store.open_session(hello("a1"))
    await store.dispatch(dispatch(told("c1"), told("c2", lease="l2", on_loss=OnLoss.KEEP)))
    renewed = await store.open_session(hello("a1", "s2", disk="d2"))
    assert [a.slot.lease for a in renewed.wanted] == ["l2"]
    assert renewed.commands == ()
    assert await store.end_abandoned() == 0
    await asyncio.sleep(LOSS_MS / 1_000 + 0.02)
    assert await store.end_abandoned() == 1
    reports, _ = await store.last_reports("main", None, 10)
    assert [(r.slot.lease, r.kind) for r in reports] == [("l1", ReportKind.LOST)]
    assert (await store.open_session(hello("a1", "s3", disk="d2"))).wanted != ()


async def test_work_that_a_clone_knew_nothing_of_is_found_again(store: Store) -> None:
    await store.open_session(hello("a1"))
    start = told("c1")
    await store.dispatch(dispatch(start))
    await store.record(ReportGroup("a1", (said(start, ReportKind.STARTED),)))
    assert (await store.open_session(hello("a1", "s2", disk="clone"))).wanted == ()
    true = replace(hello("a1", "s3"), present=frozenset({start.slot}))
    assert [a.slot for a in (await store.open_session(true)).wanted] == [start.slot]
    await asyncio.sleep(LOSS_MS / 1_000 + 0.02)
    assert await store.end_abandoned() == 0
    assert (await store.find_allocation("l1", 1, 0)).live


async def test_agents_of_a_dead_replica_are_watched_by_a_live_one(store: Store) -> None:
    await store.renew_replica("r1", 10_000)
    await store.renew_replica("r2", 10_000)
    await store.open_session(hello("a1"))
    assert await store.renew_replica("r2", 10_000) == []
    await store.leave_replica("r1")
    [adopted] = await store.renew_replica("r2", 10_000)
    assert (adopted.agent, adopted.session, adopted.replica) == ("a1", "s1", "r2")
    assert await store.watched_by("r2") == [adopted]
    assert await store.declare_lost({"a1": "s1"}, "r1") == []


async def test_lists_are_in_pages_and_filtered(store: Store) -> None:
    for name, pool in (("a1", "main"), ("a2", "main"), ("b1", "other")):
        await store.open_session(hello(name, f"s{name}", pool=pool))
    await store.change_states([StateChange("a2", "sa2", AgentState.SUSPECT, 1)])

    async def names(pool: str, states: tuple[AgentState, ...], after: str, limit: int) -> list[str]:
        agents, _ = await store.list_agents(pool, states, after, limit)
        return [agent.agent for agent in agents]

    assert await names("", (), "", 2) == ["a1", "a2"]
    assert await names("", (), "a2", 2) == ["b1"]
    assert await names("main", (), "", 9) == ["a1", "a2"]
    assert await names("", (AgentState.SUSPECT, AgentState.LOST), "", 9) == ["a2"]


async def test_flags_that_are_so_already_are_no_change(store: Store) -> None:
    await store.open_session(hello("a1"))
    _, token = await store.list_agents("", (), "", 1)
    first = await store.set_flags("a1", cordoned=True, draining=False)
    assert await store.set_flags("a1", cordoned=True, draining=False) == first
    await store.set_flags("a1", cordoned=True, draining=True)
    async with aclosing(store.watch_agents(token, "")) as changes:
        flags = [((await anext(changes)).agent) for _ in range(2)]
    assert [(a.cordoned, a.draining) for a in flags if a] == [(True, False), (True, True)]
    assert (await store.open_session(hello("a1", "s2"))).agent.draining


async def test_only_what_is_over_is_forgotten(store: Store) -> None:
    await store.open_session(hello("a1"))
    over, live = told("c1"), told("c2", lease="l2")
    await store.dispatch(dispatch(over, live))
    await store.record(
        ReportGroup("a1", (said(over, ReportKind.ENDED), said(live, ReportKind.STARTED, 2)))
    )
    assert await store.forget(3_600_000) == 0
    await asyncio.sleep(0.01)
    await store.forget(0)
    with pytest.raises(NotFound):
        await store.find_allocation("l1", 1, 0)
    assert (await store.find_allocation("l2", 1, 0)).live
    # A repeat of the START of what still runs is recognised.
    assert (await store.dispatch(dispatch(live))).deliveries == ()


@pytest.mark.parametrize("disk", ["d1", "d2"])
async def test_a_stop_outlives_the_loss_of_its_agent(store: Store, disk: str) -> None:
    """Its leader was told that it is stored; nobody would send it again."""
    await store.open_session(hello("a1"))
    start = told("c1", on_loss=OnLoss.KEEP)
    stop = told("c2", verb=Verb.STOP, on_loss=OnLoss.KEEP)
    unstarted = told("c3", lease="l2", verb=Verb.STOP)
    await store.dispatch(dispatch(start, stop, unstarted))
    await store.declare_lost({"a1": "s1"}, "r1")
    again = await store.dispatch(dispatch(start, stop))
    assert (again.reasons, again.deliveries) == (("", ""), ())
    opened = await store.open_session(hello("a1", "s2", disk=disk))
    assert set(ids(opened.commands)) >= {"c3"}
    assert "c1" not in ids(opened.commands)


async def test_an_applications_report_is_answered_with_the_order_for_its_incarnation(
    store: Store,
) -> None:
    await store.open_session(hello("a1"))
    assert await store.application_reported("a1", "s1", b"first") is None
    await store.order_applications("group/g", 2, [ApplicationOrder("a1", "d1", "o1", b"start")])
    assert await store.application_reported("a1", "s1", b"second") == b"start"
    [known] = await store.applications(["a1", "a2"])
    assert 0 <= known.age_ms < 10_000
    assert replace(known, age_ms=0) == StoredApplication("a1", "d1", 2, 0, b"second", "o1")
    await store.open_session(hello("a1", "s2", disk="d2"))
    assert await store.application_reported("a1", "s2", b"third") is None
    [known] = await store.applications(["a1"])
    assert replace(known, age_ms=0) == StoredApplication("a1", "d2", 3, 0, b"third", "")


async def test_a_report_of_a_session_that_is_over_is_dropped(store: Store) -> None:
    await store.open_session(hello("a1"))
    await store.open_session(hello("a1", "s2"))
    assert await store.application_reported("a1", "s1", b"late") is None
    assert await store.applications(["a1"]) == []


async def test_p23_an_older_leader_orders_no_application(store: Store) -> None:
    await store.open_session(hello("a1"))
    order = ApplicationOrder("a1", "d1", "o2", b"new")
    await store.order_applications("group/g", 5, [order])
    with pytest.raises(Stale) as refused:
        await store.order_applications("group/g", 4, [replace(order, body=b"old")])
    assert refused.value.reason == "STALE_EPOCH"
    assert await store.application_reported("a1", "s1", b"x") == b"new"
    await store.order_applications("group/g", 6, [replace(order, order_id="o3", body=b"newer")])
    assert await store.application_reported("a1", "s1", b"x") == b"newer"
