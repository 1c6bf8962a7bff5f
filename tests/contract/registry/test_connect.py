"""What an agent's stream promises: who may open it, what it is told, and what ends it."""

from __future__ import annotations

import asyncio

import pytest
from tests.contract.registry.conftest import World
from tests.support.fake_agent import FakeAgent, command, kinds, start

from tenure.registry.v1 import agent_pb2, registry_pb2
from tenure_core.errors import DomainError, Exhausted, Forbidden, Invalid, Stale, WrongState
from tenure_registry import metrics


async def test_a_hello_is_answered_by_the_terms_and_the_wanted_set(registry: World) -> None:
    agent = await registry.agent("a1")
    assert await agent.hello() == []
    session = agent.session
    assert (session.heartbeat_period.seconds, session.fence_duration.seconds) == (1, 6)
    assert session.loss_duration.seconds == 10
    stored = await registry.get("a1")
    assert (stored.state, stored.session) == (agent_pb2.Agent.STATE_ALIVE, session.session)
    assert (stored.pool, stored.node) == ("main", "nodes/a1")
    assert dict(stored.capacity) == {"cpu": 4_000, "memory": 8 * 2**30}


async def test_an_agent_speaks_only_for_itself(registry: World) -> None:
    agent = await registry.agent("a2", caller="a1")
    await agent.say_hello()
    with pytest.raises(Forbidden, match="may not speak for") as refused:
        await agent.end()
    assert refused.value.reason == "AGENT_NOT_ALLOWED"


async def test_users_may_not_connect_as_agents(registry: World) -> None:
    agent = await registry.agent("a1", caller="ann")
    with pytest.raises(Forbidden) as refused:
        await agent.hello()
    assert refused.value.reason == "METHOD_FORBIDDEN"


async def test_the_first_message_must_be_a_hello(registry: World) -> None:
    agent = await registry.agent("a1")
    await agent.beat()
    with pytest.raises(WrongState) as refused:
        await agent.end()
    assert refused.value.reason == "HELLO_EXPECTED"


async def test_a_bad_hello_names_everything_wrong_with_it(registry: World) -> None:
    agent = await registry.agent("a1")
    await agent.say_hello(incarnation="", protocol_version=0, pool="no/pool")
    with pytest.raises(Invalid) as refused:
        await agent.end()
    assert [violation.field for violation in refused.value.violations] == [
        "hello.incarnation",
        "hello.protocol_version",
        "hello.pool",
    ]


async def test_claimed_capacity_is_cut_to_what_is_believed(registry: World) -> None:
    capacity = {"cpu": 2**52, "memory": -5, "Bad Kind!": 7, "licence": 3}
    await registry.joined("a1", capacity=capacity)
    assert dict((await registry.get("a1")).capacity) == {"cpu": 4_096_000, "licence": 3}


async def test_beats_are_answered_in_order(registry: World) -> None:
    agent = await registry.joined("a1")
    for _ in range(20):
        await agent.beat(cpu_permille=250, running_count=3)
    acks = [(await agent.next("heartbeat_ack")).heartbeat_ack.sequence for _ in range(20)]
    assert acks == list(range(1, 21))
    load = (await registry.get("a1")).load
    assert (load.cpu_permille, load.running_count) == (250, 3)


async def test_a_beat_that_goes_backward_ends_the_stream(registry: World) -> None:
    agent = await registry.joined("a1")
    await agent.beat(5)
    await agent.beat(5)
    with pytest.raises(WrongState) as ended:
        await agent.end()
    assert ended.value.reason == "SEQUENCE_BACKWARD"


async def _flood(agent: FakeAgent) -> None:
    for _ in range(200):
        await agent.beat()
    await agent.end()


async def test_a_flood_ends_its_own_stream_and_no_other(world: World) -> None:
    await world.start(stream_burst_bytes=128 * 1024, stream_bytes_per_s=64 * 1024)
    calm, flooding = await world.joined("a1"), await world.joined("a2")
    before = metrics.REFUSED_STREAMS.values[("FLOODING",)]
    # A client that writes into a stream which just ended does not always see why (grpc/grpc#36066).
    with pytest.raises(DomainError):
        await _flood(flooding)
    assert metrics.REFUSED_STREAMS.values[("FLOODING",)] == before + 1
    await calm.answered_beat()


async def test_a_message_of_more_than_a_mebibyte_is_refused(registry: World) -> None:
    agent = await registry.joined("a1")
    chunk = registry_pb2.LogChunk(log_request_id="x", data=b"0" * (1024 * 1024 + 1))
    await agent.send(log_chunk=chunk)
    with pytest.raises(Exhausted) as ended:
        await agent.end()
    assert ended.value.reason == "MESSAGE_TOO_LARGE"


async def test_a_newer_stream_of_an_agent_supersedes_the_older(registry: World) -> None:
    first = await registry.joined("a1")
    second = await registry.joined("a1")
    with pytest.raises(Stale) as ended:
        await first.end()
    assert ended.value.reason == "SESSION_SUPERSEDED"
    assert (await registry.get("a1")).session == second.session.session != first.session.session
    await registry.dispatch(start("a1"))
    assert (await second.command()).session == second.session.session


async def test_the_wanted_set_comes_before_what_was_not_delivered(registry: World) -> None:
    await registry.joined("a1")
    reasons = await registry.dispatch(
        start("a1", "x"), start("a1", "y"), command("a1", "stop", "y")
    )
    assert reasons == ["", "", ""]
    again = await registry.agent("a1")
    wanted = await again.hello()
    assert [(a.lease, a.attempt, a.rank) for a in wanted] == [
        ("leases/x", 1, 0),
        ("leases/y", 1, 0),
    ]
    # What a stop overtook is not sent any more.
    sent = [(await again.command()).command_id for _ in range(2)]
    assert sent == ["x.1.0.start.0", "y.1.0.stop.0"]
    assert kinds(again.heard)[:2] == ["session", "wanted_set"]


async def test_a_command_is_delivered_until_its_report_is_stored(registry: World) -> None:
    agent = await registry.joined("a1")
    await registry.dispatch(start("a1"))
    command = await agent.command()
    again = await registry.joined("a1")
    assert (await again.command()).command_id == command.command_id
    await again.report(again.about(command, "STARTED"))
    third = await registry.agent("a1")
    wanted = await third.hello()
    assert [(a.lease, a.state) for a in wanted] == [
        ("leases/l1", agent_pb2.Allocation.STATE_RUNNING)
    ]
    await third.answered_beat()
    assert "command" not in kinds(third.heard)


async def test_what_ended_is_not_wanted_any_more(registry: World) -> None:
    agent = await registry.joined("a1")
    await registry.dispatch(start("a1"))
    command = await agent.command()
    await agent.report(agent.about(command, "STARTED"), agent.about(command, "ENDED", exit_code=0))
    assert await (await registry.agent("a1")).hello() == []


async def test_the_validity_that_is_left_travels_with_a_late_command(registry: World) -> None:
    await registry.joined("a1")
    late = start("a1")
    late.valid_duration.FromMilliseconds(5_000)
    await registry.dispatch(late)
    await asyncio.sleep(0.05)
    again = await registry.joined("a1")
    left_ms = (await again.command()).valid_duration.ToMilliseconds()
    assert 0 < left_ms <= 4_950


async def test_an_agent_that_does_not_read_harms_no_other(registry: World) -> None:
    await registry.joined("a1")  # Never reads again.
    reading = await registry.joined("a2")
    for n in range(10):
        await registry.dispatch(*(start("a1", f"l{n}-{i}", n=n) for i in range(100)))
    await registry.dispatch(start("a2", "mine"))
    assert (await reading.command()).command_id == "mine.1.0.start.0"
