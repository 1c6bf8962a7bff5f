"""Commands and reports: verdicts, epochs, delivery, and storing each once."""

from __future__ import annotations

import asyncio

import pytest
from tests.contract.registry.conftest import World
from tests.support.fake_agent import command, start

from tenure.registry.v1 import agent_pb2, registry_pb2
from tenure.registry.v1.registry_pb2_grpc import RegistryServiceStub
from tenure_core.errors import Invalid, NotFound, Stale

Kind = agent_pb2.Report.Kind


async def test_each_command_has_a_verdict_of_its_own(registry: World) -> None:
    await registry.joined("a1")
    await registry.joined("a2", pool="other")
    changed = start("a1")
    changed.start.node_count = 7
    assert await registry.dispatch(
        start("a1"), start("a1"), changed, start("a2", "l2"), start("a9", "l3")
    ) == ["", "", "COMMAND_ID_REUSED", "AGENT_NOT_FOUND", "AGENT_NOT_FOUND"]


async def test_a_slot_has_one_agent_and_one_end(registry: World) -> None:
    first = await registry.joined("a1")
    await registry.joined("a2")
    await registry.dispatch(start("a1"))
    assert await registry.dispatch(start("a2", n=1)) == ["ALLOCATION_ELSEWHERE"]
    await first.report(first.about(await first.command(), "ENDED"))
    assert await registry.dispatch(start("a1", n=2)) == ["ALLOCATION_ENDED"]


async def test_a_refused_start_may_be_tried_again(registry: World) -> None:
    agent = await registry.joined("a1")
    await registry.dispatch(start("a1"))
    await agent.report(agent.about(await agent.command(), "REFUSED", reason="EXPIRED"))
    assert await registry.dispatch(start("a1", n=1)) == [""]
    assert (await agent.command()).command_id == "l1.1.0.start.1"


async def test_an_older_epoch_changes_nothing(registry: World) -> None:
    agent = await registry.joined("a1")
    fence = registry_pb2.FenceEpochRequest(scope="pool/main", epoch=7)
    assert (await registry.call("FenceEpoch", fence)).epoch == 7
    assert (await registry.call("FenceEpoch", fence)).epoch == 7
    with pytest.raises(Stale) as refused:
        await registry.dispatch(start("a1"), epoch=6)
    assert (refused.value.reason, refused.value.metadata["current"]) == ("STALE_EPOCH", "7")
    fence.epoch = 6
    with pytest.raises(Stale):
        await registry.call("FenceEpoch", fence)
    assert await registry.dispatch(start("a1", "l2"), epoch=8) == [""]
    sent = await agent.command()
    assert (sent.lease, sent.epoch, sent.scope) == ("leases/l2", 8, "pool/main")
    with pytest.raises(Stale):
        await registry.dispatch(start("a1"), epoch=7)
    again = await registry.joined("a1")
    assert dict(again.session.epochs) == {"pool/main": 8}


async def test_a_new_leader_that_repeats_a_command_has_it_sent_under_its_epoch(
    registry: World,
) -> None:
    agent = await registry.joined("a1")
    await registry.dispatch(start("a1"), epoch=1)
    assert (await agent.command()).epoch == 1
    assert await registry.dispatch(start("a1"), epoch=2) == [""]
    assert (await agent.command()).epoch == 2


async def test_what_had_no_effect_is_sent_again_when_it_is_repeated(registry: World) -> None:
    agent = await registry.joined("a1")
    await registry.dispatch(start("a1"))
    await agent.report(agent.about(await agent.command(), "STARTED"))
    stop = command("a1", "stop")
    await registry.dispatch(stop)
    await agent.report(agent.about(await agent.command(), "REFUSED", reason="STALE_EPOCH"))
    assert await registry.dispatch(stop) == [""]
    again = await agent.command()
    assert again.WhichOneof("kind") == "stop"
    await agent.report(agent.about(again, "ENDED"))
    # Its answer is known now: nothing more is sent.
    assert await registry.dispatch(stop, start("a1", "l2")) == ["", ""]
    assert (await agent.command()).lease == "leases/l2"


async def test_what_a_stop_overtook_is_not_begun_by_an_agent_that_comes_back(
    registry: World,
) -> None:
    await registry.joined("a1")
    await registry.dispatch(start("a1"))
    await registry.dispatch(command("a1", "stop"))
    again = await registry.joined("a1")
    told = await again.command()
    assert (told.command_id, told.WhichOneof("kind")) == ("l1.1.0.stop.0", "stop")
    await again.report(again.about(told, "ENDED", reason="NOT_STARTED"))
    # The START is known, and over.
    assert await registry.dispatch(start("a1"), start("a1", "l2")) == ["", ""]
    assert (await again.command()).lease == "leases/l2"


async def test_five_hundred_commands_go_out_at_once(registry: World) -> None:
    agent = await registry.joined("a1")
    commands = [start("a1", f"l{i}") for i in range(500)]
    assert await registry.dispatch(*commands) == [""] * 500
    sent = [(await agent.command()).lease for _ in range(500)]
    assert sent == [f"leases/l{i}" for i in range(500)]


async def test_bad_commands_are_refused_with_all_that_is_wrong(registry: World) -> None:
    bad = start("a1", rank=-1)
    bad.agent = "a1"
    bad.ClearField("kind")
    with pytest.raises(Invalid) as refused:
        await registry.dispatch(bad, epoch=0)
    assert [violation.field for violation in refused.value.violations] == [
        "epoch",
        "commands[0].agent",
        "commands[0].rank",
        "commands[0].kind",
    ]


async def test_reports_are_stored_once_however_often_they_come(registry: World) -> None:
    agent = await registry.joined("a1")
    client = await registry.client("svc")
    stub = RegistryServiceStub(client.channel)
    request = registry_pb2.ListReportsRequest(pool="main")
    token = (await client.call(stub.ListReports, request)).resume_token
    await registry.dispatch(start("a1"))
    command = await agent.command()
    started, ended = agent.about(command, "STARTED"), agent.about(command, "ENDED", exit_code=3)
    assert await agent.report(started) == 1
    assert await agent.report(started, ended) == 2
    again = await registry.joined("a1")
    assert await again.report(ended, started) == 2
    sentinel = again.about(command, "REFUSED", report_id="last", sequence=9)
    await again.report(sentinel)
    watch = registry_pb2.WatchReportsRequest(pool="main", resume_token=token)
    seen = []
    async with client.stream(stub.WatchReports, watch) as stream:
        async for event in stream:
            if event.HasField("report"):
                assert event.record_time.seconds > 0
                seen.append(event.report)
            if seen and seen[-1].report_id == "last":
                break
    assert seen == [started, ended, sentinel]
    assert await registry.reports() == [ended]


async def test_a_report_that_was_overtaken_changes_no_state(registry: World) -> None:
    agent = await registry.joined("a1")
    await registry.dispatch(start("a1"))
    command = await agent.command()
    started, suspended = agent.about(command, "STARTED"), agent.about(command, "SUSPENDED")
    await agent.report(suspended)
    await agent.report(started)
    assert [report.kind for report in await registry.reports()] == [Kind.KIND_SUSPENDED]


async def test_reports_about_work_of_others_are_harmless(registry: World) -> None:
    honest, liar = await registry.joined("a1"), await registry.joined("a2")
    await registry.dispatch(start("a1"))
    command = await honest.command()
    assert await liar.report(liar.about(command, "ENDED")) == 1
    assert await liar.report(liar.about(command, "ENDED", lease="leases/none")) == 2
    assert await registry.reports() == []
    again = await registry.agent("a1")
    assert [a.lease for a in await again.hello()] == ["leases/l1"]
    assert (await again.command()).command_id == command.command_id


async def test_agents_cannot_write_what_only_the_registry_writes(registry: World) -> None:
    agent = await registry.joined("a1")
    await registry.dispatch(start("a1"))
    lie = agent.about(await agent.command(), "LOST")
    await agent.send(report_batch=registry_pb2.ReportBatch(reports=[lie]))
    with pytest.raises(Invalid):
        await agent.end()
    assert await registry.reports() == []


async def test_pages_of_reports_join_without_gap_or_repeat(registry: World) -> None:
    agent = await registry.joined("a1")
    await registry.dispatch(*(start("a1", f"l{i}") for i in range(7)))
    commands = [await agent.command() for _ in range(7)]
    await agent.report(*(agent.about(command, "STARTED") for command in commands))
    request = registry_pb2.ListReportsRequest(pool="main", page_size=3)
    leases = []
    while True:
        page = await registry.call("ListReports", request)
        leases.append([report.lease for report in page.reports])
        request.page_token = page.next_page_token
        if not request.page_token:
            break
    names = [f"leases/l{i}" for i in range(7)]
    assert leases == [names[:3], names[3:6], names[6:]]


async def test_cordon_drain_and_uncordon_are_idempotent_changes(registry: World) -> None:
    await registry.joined("a1")
    client = await registry.client("svc")
    stub = RegistryServiceStub(client.channel)
    listed = await client.call(stub.ListAgents, registry_pb2.ListAgentsRequest(pool="main"))
    assert [agent.name for agent in listed.agents] == ["agents/a1"]
    for _ in range(2):
        await client.call(stub.CordonAgent, registry_pb2.CordonAgentRequest(name="agents/a1"))
    await client.call(stub.DrainAgent, registry_pb2.DrainAgentRequest(name="agents/a1"))
    await client.call(stub.UncordonAgent, registry_pb2.UncordonAgentRequest(name="agents/a1"))
    watch = registry_pb2.WatchAgentsRequest(resume_token=listed.resume_token, pool="main")
    flags = []
    async with client.stream(stub.WatchAgents, watch) as stream:
        async for event in stream:
            if event.HasField("agent"):
                flags.append((event.agent.cordoned, event.agent.draining))
            if len(flags) == 3:
                break
    assert flags == [(True, False), (True, True), (False, False)]
    with pytest.raises(NotFound) as missing:
        await registry.call("CordonAgent", registry_pb2.CordonAgentRequest(name="agents/none"))
    assert missing.value.reason == "AGENT_NOT_FOUND"


async def test_logs_are_relayed_from_the_agent(registry: World) -> None:
    agent = await registry.joined("a1")
    await registry.dispatch(start("a1"))
    await agent.report(agent.about(await agent.command(), "STARTED"))
    client = await registry.client("svc")
    stub = RegistryServiceStub(client.channel)
    request = registry_pb2.StreamLogsRequest(lease="leases/l1", follow=True, offset=-10)
    async with client.stream(stub.StreamLogs, request) as stream:
        asked = (await agent.next("log_request")).log_request
        assert (asked.lease, asked.attempt, asked.offset, asked.follow) == (
            "leases/l1",
            1,
            -10,
            True,
        )
        for offset, data, end in ((90, b"hello", False), (95, b" you", True)):
            chunk = registry_pb2.LogChunk(
                log_request_id=asked.log_request_id, offset=offset, data=data, end=end
            )
            await agent.send(log_chunk=chunk)
        parts = [(part.offset, part.data) async for part in stream]
    assert parts == [(90, b"hello"), (95, b" you")]


async def test_a_reader_of_logs_that_leaves_ends_the_request(registry: World) -> None:
    agent = await registry.joined("a1")
    await registry.dispatch(start("a1"))
    await agent.command()
    client = await registry.client("svc")
    request = registry_pb2.StreamLogsRequest(lease="leases/l1", follow=True)
    async with client.stream(RegistryServiceStub(client.channel).StreamLogs, request):
        asked = (await agent.next("log_request")).log_request
    ended = (await agent.next("log_request")).log_request
    assert (ended.log_request_id, ended.cancel) == (asked.log_request_id, True)


async def test_a_slow_reader_of_logs_holds_the_agent_back_and_misses_nothing(
    registry: World,
) -> None:
    agent = await registry.joined("a1")
    await registry.dispatch(start("a1"))
    await agent.command()
    client = await registry.client("svc")
    size, total = 64 * 1024, 300
    requests: list[registry_pb2.LogRequest] = []

    async def send(asked: registry_pb2.LogRequest) -> None:
        """Send what is asked for to its end, as fast as the stream takes it."""
        for index in range(asked.offset // size, total):
            chunk = registry_pb2.LogChunk(
                log_request_id=asked.log_request_id,
                offset=index * size,
                data=bytes([index % 256]) * size,
                end=index == total - 1,
            )
            await agent.send(log_chunk=chunk)

    async def serve() -> None:
        while True:
            asked = (await agent.next("log_request", 20)).log_request
            requests.append(asked)
            if not asked.cancel:
                await send(asked)

    serving = asyncio.create_task(serve())
    request = registry_pb2.StreamLogsRequest(lease="leases/l1")
    got = bytearray()
    async with client.stream(RegistryServiceStub(client.channel).StreamLogs, request) as stream:
        async for part in stream:
            assert part.offset == len(got)
            got += part.data
            if len(requests) == 1:
                await asyncio.sleep(0.005)
    serving.cancel()
    assert len([asked for asked in requests if not asked.cancel]) > 1
    assert bytes(got) == b"".join(bytes([index % 256]) * size for index in range(total))


async def test_logs_of_what_nobody_knows_are_not_found(registry: World) -> None:
    client = await registry.client("svc")
    request = registry_pb2.StreamLogsRequest(lease="leases/none")
    with pytest.raises(NotFound) as missing:
        async with client.stream(RegistryServiceStub(client.channel).StreamLogs, request) as stream:
            await stream.read()
    assert missing.value.reason == "ALLOCATION_NOT_FOUND"


def owned(owner: str, lease: str, **fields: int) -> agent_pb2.Command:
    told = start("a1", lease, **fields)
    told.start.owner = owner
    return told


async def test_users_read_what_they_own_and_of_the_rest_not_even_that_it_is(
    registry: World,
) -> None:
    agent = await registry.joined("a1")
    commands = owned("ann", "mine"), owned("bob", "theirs"), start("a1", "old")
    assert await registry.dispatch(*commands) == [""] * 3

    async def answer() -> None:
        """Answer as the agent: the log of a lease says whose it is."""
        while True:
            asked = (await agent.next("log_request", 20)).log_request
            chunk = registry_pb2.LogChunk(
                log_request_id=asked.log_request_id, data=asked.lease.encode(), end=True
            )
            await agent.send(log_chunk=chunk)

    async def read(caller: str, lease: str) -> tuple[str, bytes]:
        """Return why there is no log, and the log."""
        client = await registry.client(caller)
        request = registry_pb2.StreamLogsRequest(lease=f"leases/{lease}")
        stub = RegistryServiceStub(client.channel)
        try:
            async with client.stream(stub.StreamLogs, request) as stream:
                return "", b"".join([part.data async for part in stream])
        except NotFound as refused:
            return f"{refused.reason}: {refused.message}", b""

    answering = asyncio.create_task(answer())
    hidden = "ALLOCATION_NOT_FOUND: Lease {} has no slot 0 on any agent here."
    assert [await read("ann", lease) for lease in ("mine", "theirs", "old", "none")] == [
        ("", b"leases/mine"),
        *((hidden.format(lease), b"") for lease in ("theirs", "old", "none")),
    ]
    for staff in ("ops", "svc"):
        assert await read(staff, "theirs") == ("", b"leases/theirs")
    answering.cancel()


async def test_a_start_without_an_owner_repeats_one_with_it(registry: World) -> None:
    """While leaders are upgraded one may say whose lease it is and the next may not."""
    await registry.joined("a1")
    assert await registry.dispatch(owned("ann", "l1"), start("a1", "l1")) == ["", ""]


async def test_an_owner_or_project_of_any_length_is_not_taken(registry: World) -> None:
    told = owned("x" * 64, "l1")
    told.start.project = "y" * 64
    with pytest.raises(Invalid) as refused:
        await registry.dispatch(told)
    assert [each.field for each in refused.value.violations] == [
        "commands[0].start.owner",
        "commands[0].start.project",
    ]


async def test_the_service_says_which_program_answers(registry: World) -> None:
    info = (await registry.call("GetServiceInfo", registry_pb2.GetServiceInfoRequest())).info
    assert (info.service, info.instance, info.schema_version) == ("registry", "r1", 4)
    assert await registry.dispatch(command("a1", "stop")) == ["AGENT_NOT_FOUND"]
