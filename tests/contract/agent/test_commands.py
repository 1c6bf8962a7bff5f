"""What an agent promises to a registry about commands, over real gRPC with real processes."""

from __future__ import annotations

from pathlib import Path

from tests.support.agents import agent, alive
from tests.support.fake_registry import FakeRegistry, Script, registry

from tenure.registry.v1 import agent_pb2
from tenure.registry.v1.agent_pb2 import Report
from tenure_runtime.rpc.wire import to_duration


def steady() -> Script:
    """Return a script whose fence never matters here."""
    return Script(fence_ms=20_000, loss_ms=40_000)


def _answers(fake: FakeRegistry, lease: str) -> list[tuple[int, str, str]]:
    return [(r.kind, r.command_id, r.reason) for r in fake.of(lease)]


async def test_a_command_runs_and_its_exit_code_is_reported(tmp_path: Path) -> None:
    async with registry(steady()) as fake, agent(tmp_path, fake.address) as process:
        await fake.connected()
        command_id = fake.start("lease1", "sh", "-c", "echo hello; exit 3")
        ended = await fake.report(Report.KIND_ENDED, "lease1")

        assert [
            (r.kind, r.command_id, r.HasField("exit_code"), r.exit_code, r.reason)
            for r in fake.of("lease1")
        ] == [
            (Report.KIND_STARTED, command_id, False, 0, ""),
            (Report.KIND_ENDED, "", True, 3, "EXITED"),
        ]
        assert (ended.agent, ended.attempt, ended.rank, ended.sequence) == ("agents/n1", 1, 0, 2)
        output = tmp_path / "allocations" / "lease1.1.0" / "output.log"
        assert output.read_bytes() == b"hello\n"
        assert [(line["event"], line["lease"], line["node"]) for line in process.trail()] == [
            ("start", "lease1", "n1"),
            ("end", "lease1", "n1"),
        ]


async def test_hello_says_who_calls_and_what_there_is(tmp_path: Path) -> None:
    async with registry(steady()) as fake, agent(tmp_path, fake.address, attributes="zone=a"):
        await fake.connected()
        hello = fake.hellos[0]

        assert (hello.agent, hello.pool, hello.protocol_version) == ("agents/n1", "default", 1)
        assert dict(hello.capacity) == {"cpu": 4_000, "memory": 8 << 30}
        assert list(hello.suspended_keeps) == ["memory"]
        assert hello.attributes["zone"] == "a"
        assert hello.incarnation == (tmp_path / "incarnation").read_text().strip()
        assert fake.keys == ["Bearer tnr_n1_secret"]


async def test_a_repeated_start_runs_once_and_gets_its_first_answer(tmp_path: Path) -> None:
    async with registry(steady()) as fake, agent(tmp_path, fake.address) as process:
        await fake.connected()
        start_id = fake.start("once", "sh", "-c", "exit 0")
        again = agent_pb2.Command()
        again.CopyFrom(fake.told[-1])
        fake.tell(again)
        await fake.report(Report.KIND_ENDED, "once")
        seen = len(fake.reports)
        fake.tell(again)
        await fake.until(lambda: len(fake.reports) > seen)

        assert (fake.reports[-1].kind, fake.reports[-1].command_id) == (
            Report.KIND_STARTED,
            start_id,
        )
        assert fake.reports[-1].report_id == fake.of("once")[0].report_id
        assert [line["event"] for line in process.trail()] == ["start", "end"]


async def test_older_epochs_are_refused_also_after_a_restart(tmp_path: Path) -> None:
    async with registry(steady()) as fake, agent(tmp_path, fake.address) as process:
        await fake.connected()
        fake.start("new", "true", epoch=7)
        await fake.report(Report.KIND_ENDED, "new")
        stale_id = fake.start("old", "true", epoch=6)
        await fake.report(Report.KIND_REFUSED, "old")
        process.kill()
        process.start()
        await fake.connected(2)
        later_id = fake.start("older", "true", epoch=5)
        await fake.report(Report.KIND_REFUSED, "older")

        assert dict(fake.hellos[1].epochs) == {"pool/default": 7}
        assert _answers(fake, "old") == [(Report.KIND_REFUSED, stale_id, "STALE_EPOCH")]
        assert _answers(fake, "older") == [(Report.KIND_REFUSED, later_id, "STALE_EPOCH")]
        assert {line["lease"] for line in process.trail()} == {"new"}


async def test_the_sessions_epochs_count_before_any_command(tmp_path: Path) -> None:
    script = Script(fence_ms=20_000, epochs={"pool/default": 9})
    async with registry(script) as fake, agent(tmp_path, fake.address):
        await fake.connected()
        fake.start("old", "true", epoch=8)
        refused = await fake.report(Report.KIND_REFUSED, "old")

        assert refused.reason == "STALE_EPOCH"


async def test_commands_of_another_session_are_refused(tmp_path: Path) -> None:
    async with registry(steady()) as fake, agent(tmp_path, fake.address) as process:
        await fake.connected()
        command_id = fake.start("other", "true", session="session-of-another")
        await fake.report(Report.KIND_REFUSED, "other")

        assert _answers(fake, "other") == [(Report.KIND_REFUSED, command_id, "STALE_SESSION")]
        assert process.trail() == []


async def test_an_expired_span_is_refused(tmp_path: Path) -> None:
    async with registry(steady()) as fake, agent(tmp_path, fake.address) as process:
        await fake.connected()
        await fake.until(lambda: fake.beats > 0)
        fake.script.answers_beats = False
        fake.start("late", "true", valid_duration=to_duration(0))
        # Nothing is that quick: the command is judged after at least a millisecond or refused by
        # the guardian; either way it never runs.
        refused = await fake.report(Report.KIND_REFUSED, "late")

        assert refused.reason == "EXPIRED"
        assert process.trail() == []


async def test_what_cannot_be_understood_is_refused(tmp_path: Path) -> None:
    async with registry(steady()) as fake, agent(tmp_path, fake.address) as process:
        await fake.connected()
        nothing = fake.tell(fake.command("nothing"))
        outside = fake.start("../../etc", "true")
        nul = fake.start("nul", "echo", "a\0b")
        for command_id in (nothing, outside, nul):
            await fake.report(Report.KIND_REFUSED, command_id=command_id)

        answers = {r.command_id: r.reason for r in fake.reports}
        assert answers == dict.fromkeys((nothing, outside, nul), "INVALID_COMMAND")
        assert process.trail() == []


async def test_an_empty_command_is_capacity_until_it_is_stopped(tmp_path: Path) -> None:
    async with registry(steady()) as fake, agent(tmp_path, fake.address) as process:
        await fake.connected()
        start_id = fake.start("bare")
        await fake.report(Report.KIND_STARTED, "bare")
        process.kill()
        process.start()
        await fake.connected(2)
        suspend_id = fake.suspend("bare")
        resume_id = fake.resume("bare")
        stop_id = fake.stop("bare")
        await fake.report(Report.KIND_ENDED, "bare")

        assert _answers(fake, "bare") == [
            (Report.KIND_STARTED, start_id, ""),
            (Report.KIND_SUSPENDED, suspend_id, ""),
            (Report.KIND_RESUMED, resume_id, ""),
            (Report.KIND_ENDED, stop_id, "STOPPED"),
        ]
        assert process.trail() == []


async def test_every_command_ends_in_a_report(tmp_path: Path) -> None:
    async with registry(steady()) as fake, agent(tmp_path, fake.address):
        await fake.connected()
        prepare_id = fake.tell(fake.command("any", prepare=agent_pb2.PrepareCommand()))
        unknown_id = fake.suspend("unknown")
        early_id = fake.stop("unknown")
        barred_id = fake.start("unknown", "true")
        start_id = fake.start("work", "sleep", "600")
        second_id = fake.start("work", "true")
        stop_ids = [fake.stop("work"), fake.stop("work", reason="CANCELLED")]
        await fake.until(lambda: {r.command_id for r in fake.reports} >= set(stop_ids))
        late_id = fake.stop("work")
        after_id = fake.resume("work")
        await fake.report(Report.KIND_REFUSED, command_id=after_id)

        assert {r.command_id: (r.kind, r.reason) for r in fake.reports} == {
            prepare_id: (Report.KIND_PREPARED, ""),
            unknown_id: (Report.KIND_REFUSED, "ALLOCATION_NOT_FOUND"),
            early_id: (Report.KIND_ENDED, "NOT_STARTED"),
            barred_id: (Report.KIND_REFUSED, "ALREADY_STARTED"),
            start_id: (Report.KIND_STARTED, ""),
            second_id: (Report.KIND_REFUSED, "ALREADY_STARTED"),
            stop_ids[0]: (Report.KIND_ENDED, "STOPPED"),
            stop_ids[1]: (Report.KIND_ENDED, "STOPPED"),
            late_id: (Report.KIND_ENDED, "STOPPED"),
            after_id: (Report.KIND_REFUSED, "ALLOCATION_ENDED"),
        }


async def test_an_attempt_waits_for_no_one_but_never_runs_beside_another(tmp_path: Path) -> None:
    async with registry(steady()) as fake, agent(tmp_path, fake.address) as process:
        await fake.connected()
        fake.start("twice", "sleep", "600", attempt=1)
        await fake.report(Report.KIND_STARTED, "twice")
        early_id = fake.start("twice", "true", attempt=2)
        early = await fake.report(Report.KIND_REFUSED, command_id=early_id)
        fake.stop("twice", attempt=1)
        await fake.report(Report.KIND_ENDED, "twice")
        next_id = fake.start("twice", "sleep", "600", attempt=3)
        await fake.report(Report.KIND_STARTED, command_id=next_id)
        old_id = fake.start("twice", "true", attempt=2, rank=1)
        old = await fake.report(Report.KIND_REFUSED, command_id=old_id)

        assert (early.reason, old.reason) == ("PREDECESSOR_RUNS", "STALE_ATTEMPT")
        assert [(x["event"], x["attempt"]) for x in process.trail()] == [
            ("start", 1),
            ("end", 1),
            ("start", 3),
        ]


async def test_reports_come_again_until_they_are_acknowledged(tmp_path: Path) -> None:
    script = Script(fence_ms=20_000, answers_reports=False)
    async with registry(script) as fake, agent(tmp_path, fake.address) as process:
        await fake.connected()
        fake.start("told", "true")
        await fake.report(Report.KIND_ENDED, "told")
        first = [r.report_id for r in fake.reports]
        process.kill()
        fake.reports.clear()
        process.start()
        await fake.connected(2)
        await fake.report(Report.KIND_ENDED, "told")
        again = [r.report_id for r in fake.reports]
        script.answers_reports = True
        fake.hang_up()
        await fake.connected(3)
        await fake.until(lambda: len(fake.reports) >= 4)
        fake.start("last", "true")
        await fake.report(Report.KIND_ENDED, "last")
        fake.hang_up()
        await fake.connected(4)

        assert again == first
        assert [(a.lease, a.state) for a in fake.hellos[1].allocations] == [
            ("leases/told", agent_pb2.Allocation.STATE_ENDED)
        ]
        assert list(fake.hellos[3].allocations) == []


async def test_work_lost_with_the_agents_disk_is_reported_as_over(tmp_path: Path) -> None:
    async with registry(steady()) as fake:
        fake.wanted["gone", 1, 0] = agent_pb2.Allocation.STATE_RUNNING
        fake.wanted["coming", 1, 0] = agent_pb2.Allocation.STATE_STARTING
        async with agent(tmp_path, fake.address):
            ended = await fake.report(Report.KIND_ENDED, "gone")

            assert (ended.reason, ended.HasField("exit_code")) == ("ALLOCATION_NOT_FOUND", False)
            assert fake.of("coming") == []


async def test_two_agents_never_share_a_folder(tmp_path: Path) -> None:
    async with registry(steady()) as fake, agent(tmp_path, fake.address) as first:
        await fake.connected()
        async with agent(tmp_path, fake.address) as second:
            assert await second.ended() == 1
        assert "another agent runs on" in first.log()
        assert alive(first.pid)
