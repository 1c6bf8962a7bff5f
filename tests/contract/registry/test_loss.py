"""Losing agents: when, what it does in one transaction, and how one comes back."""

from __future__ import annotations

import asyncio
import time

import pytest
from tests.contract.registry.conftest import QUICK, World, beating
from tests.support.fake_agent import command, kinds, start

from tenure.registry.v1 import agent_pb2, registry_pb2
from tenure.registry.v1.registry_pb2_grpc import RegistryServiceStub
from tenure.type.v1 import work_pb2
from tenure_core.errors import Stale, Unavailable

LOST = agent_pb2.Report.KIND_LOST


def kept(agent: str, lease: str) -> agent_pb2.Command:
    """Return a START of work that is to be kept on loss."""
    return start(agent, lease, start=agent_pb2.StartCommand(on_loss=work_pb2.ON_LOSS_KEEP))


async def test_a_silent_agent_is_suspected_then_lost_and_no_sooner(world: World) -> None:
    await world.start(**QUICK)
    agent = await world.joined("a1")
    await agent.answered_beat()
    silent_since = time.monotonic()
    await world.until_state("a1", "SUSPECT")
    lost = await world.until_state("a1", "LOST")
    assert time.monotonic() - silent_since >= 0.7
    assert lost.session == ""
    with pytest.raises(Stale) as ended:
        await agent.end()
    assert ended.value.reason == "SESSION_LOST"


async def test_an_agent_that_beats_again_is_no_longer_suspected(world: World) -> None:
    await world.start(**{**QUICK, "fence_ms": 2_000, "loss_ms": 3_000})
    agent = await world.joined("a1")
    await world.until_state("a1", "SUSPECT")
    async with beating(agent):
        await world.until_state("a1", "ALIVE")


async def test_a_loss_ends_what_stops_on_loss_and_voids_what_was_not_delivered(
    world: World,
) -> None:
    await world.start(**QUICK)
    agent = await world.joined("a1")
    undelivered = command("a1", "suspend", "stops")
    assert await world.dispatch(start("a1", "stops"), kept("a1", "keeps"), undelivered) == [""] * 3
    sent = [await agent.command() for _ in range(3)]
    await agent.report(*(agent.about(each, "STARTED") for each in sent[:2]))
    await world.until_state("a1", "LOST")
    last = {report.lease: report for report in await world.reports()}
    assert last["leases/stops"].kind == LOST
    assert (last["leases/stops"].reason, last["leases/stops"].agent) == ("AGENT_LOST", "agents/a1")
    assert last["leases/keeps"].kind == agent_pb2.Report.KIND_STARTED
    # A repeat of what became void says so, and so does anything new for a lost agent.
    assert await world.dispatch(undelivered, start("a1", "new")) == ["AGENT_LOST", "AGENT_LOST"]
    back = await world.agent("a1")
    wanted = await back.hello()
    assert [a.lease for a in wanted] == ["leases/keeps"]
    assert back.session.session != agent.session.session
    async with beating(back):
        await world.until_state("a1", "ALIVE")
    await back.answered_beat()
    assert "command" not in kinds(back.heard)


async def test_what_was_to_be_kept_but_never_started_ends_when_its_agent_says_so(
    world: World,
) -> None:
    await world.start(**QUICK)
    await world.joined("a1")
    await world.dispatch(kept("a1", "never"), kept("a1", "runs"))
    await world.until_state("a1", "LOST")
    assert await world.reports() == []
    runs = agent_pb2.Allocation(lease="leases/runs", attempt=1, rank=0)
    back = await world.agent("a1")
    assert [a.lease for a in await back.hello(allocations=[runs])] == ["leases/runs"]
    assert [(r.lease, r.kind) for r in await world.reports()] == [("leases/never", LOST)]


async def test_a_report_that_comes_after_the_loss_is_kept_and_revives_nothing(
    world: World,
) -> None:
    await world.start(**QUICK)
    agent = await world.joined("a1")
    await world.dispatch(start("a1"))
    started = await agent.command()
    await world.until_state("a1", "LOST")
    back = await world.joined("a1")
    assert await back.report(back.about(started, "STARTED")) == 1
    assert [report.kind for report in await world.reports()] == [LOST]
    assert await world.dispatch(start("a1", n=1)) == ["ALLOCATION_ENDED"]


async def test_a_new_disk_ends_old_work_only_after_its_fence(world: World) -> None:
    await world.start(**QUICK)
    agent = await world.joined("a1")
    await world.dispatch(start("a1", "told"), start("a1", "untold"))
    told = await agent.command()
    await agent.report(agent.about(told, "STARTED"))
    new = await world.agent("a1")
    renewed = time.monotonic()
    assert await new.hello(incarnation="disk-2") == []
    async with beating(new):
        async with asyncio.timeout(5):
            while [r.kind for r in await world.reports()] != [LOST, LOST]:
                await asyncio.sleep(0.02)
        assert time.monotonic() - renewed >= 0.7
    # What the old disk may have started is never delivered to the new one.
    assert "command" not in kinds(new.heard)


async def test_a_crowd_that_falls_silent_is_given_a_second_look(world: World) -> None:
    await world.start(**QUICK)
    silent_since = time.monotonic()
    crowd = [await world.joined(name) for name in ("a1", "a2", "a3")]
    quiet = await world.joined("a4")
    async with beating(quiet):
        for agent in ("a1", "a2", "a3"):
            await world.until_state(agent, "LOST")
        assert time.monotonic() - silent_since >= 1.4
        assert (await world.get("a4")).state == agent_pb2.Agent.STATE_ALIVE
    assert len(crowd) == 3


async def test_a_stopping_registry_tells_its_agents_and_the_next_one_loses_none(
    world: World,
) -> None:
    await world.start("r1", **QUICK)
    agent = await world.joined("a1")
    await world.dispatch(start("a1"))
    sent = await agent.command()
    await world.stop("r1")
    with pytest.raises(Unavailable) as ended:
        await agent.end()
    assert ended.value.reason == "SERVER_DRAINING"
    assert "redirect" in kinds(agent.heard)
    await world.start("r2", **QUICK)
    again = await world.agent("a1", "r2")
    wanted = await again.hello()
    assert [a.lease for a in wanted] == ["leases/l1"]
    assert (await again.command()).command_id == sent.command_id
    async with beating(again):
        assert (await world.get("a1", "r2")).state == agent_pb2.Agent.STATE_ALIVE
    assert await world.reports("r2") == []


async def test_an_agent_that_never_returns_is_lost_a_loss_time_after_the_restart(
    world: World,
) -> None:
    await world.start("r1", **QUICK)
    await world.joined("a1")
    await world.stop("r1")
    restarted = time.monotonic()
    await world.start("r2", **QUICK)
    await world.until_state("a1", "LOST", "r2")
    assert time.monotonic() - restarted >= 0.7


async def test_replicas_share_agents(world: World) -> None:
    await world.start("r1")
    await world.start("r2")
    agent = await world.joined("a1", "r1")
    assert await world.dispatch(start("a1"), instance="r2") == [""]
    sent = await agent.command()
    assert await agent.report(agent.about(sent, "STARTED")) == 1
    assert [r.lease for r in await world.reports("r2")] == ["leases/l1"]
    client = await world.client("svc", "r2")
    request = registry_pb2.StreamLogsRequest(lease="leases/l1")
    async with client.stream(RegistryServiceStub(client.channel).StreamLogs, request) as stream:
        with pytest.raises(Unavailable) as elsewhere:
            await stream.read()
    assert (elsewhere.value.reason, elsewhere.value.metadata["replica"]) == (
        "AGENT_ELSEWHERE",
        "r1",
    )


async def test_a_stream_at_another_replica_supersedes_too(world: World) -> None:
    await world.start("r1")
    await world.start("r2")
    first = await world.joined("a1", "r1")
    second = await world.joined("a1", "r2")
    with pytest.raises(Stale) as ended:
        await first.end()
    assert ended.value.reason == "SESSION_SUPERSEDED"
    assert await world.dispatch(start("a1"), instance="r1") == [""]
    assert (await second.command()).session == second.session.session


async def test_watchers_see_each_change_of_state_and_no_beats(world: World) -> None:
    await world.start(**QUICK)
    client = await world.client("ops")
    stub = RegistryServiceStub(client.channel)
    request = registry_pb2.ListAgentsRequest(pool="main")
    token = (await client.call(stub.ListAgents, request)).resume_token
    agent = await world.joined("a1")
    for _ in range(5):
        await agent.answered_beat()
    states = []
    watch = registry_pb2.WatchAgentsRequest(resume_token=token, pool="main")
    async with client.stream(stub.WatchAgents, watch) as stream:
        async for event in stream:
            if event.HasField("agent"):
                states.append(agent_pb2.Agent.State.Name(event.agent.state))
            if states and states[-1] == "STATE_LOST":
                break
    assert states == ["STATE_ALIVE", "STATE_SUSPECT", "STATE_LOST"]


async def test_beats_write_nothing(world: World) -> None:
    import asyncpg

    await world.start(**{**QUICK, "replica_loss_ms": 600_000})
    agent = await world.joined("a1")
    await agent.answered_beat()
    connection = await asyncpg.connect(world.dsn)
    try:
        # A transaction that writes nothing takes no id.
        sql = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
        before = await connection.fetchval(sql)
        for _ in range(200):
            await agent.answered_beat()
        assert await connection.fetchval(sql) == before
    finally:
        await connection.close()
