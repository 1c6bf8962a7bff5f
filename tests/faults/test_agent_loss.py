"""What becomes of work when its agent is killed, stopped or cut off. Real processes all."""

from __future__ import annotations

import asyncio
import shutil
import signal
import time
from pathlib import Path

import pytest
from tests.support.agents import agent, alive, eventually, process_state
from tests.support.fake_registry import Script, registry

from tenure.registry.v1.agent_pb2 import Allocation, Report

pytestmark = pytest.mark.faults

_KEEP = 2
# A guardian looks when the deadline comes; the rest is the machine's load.
_SLACK_S = 1.5


def _boot_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


async def test_work_goes_on_over_a_killed_agent_and_is_reported_once(tmp_path: Path) -> None:
    script = Script(fence_ms=20_000, loss_ms=40_000)
    async with registry(script) as fake, agent(tmp_path / "data", fake.address) as process:
        await fake.connected()
        go = tmp_path / "go"
        program = f"while [ ! -e {go} ]; do sleep 0.02; done; exit 5"
        fake.start("steady", "sh", "-c", program)
        await fake.report(Report.KIND_STARTED, "steady")
        pid = process.trail()[0]["pid"]
        process.kill()
        assert alive(pid)
        process.start()
        await fake.connected(2)
        assert alive(pid)
        assert [(a.lease, a.state) for a in fake.hellos[1].allocations] == [
            ("leases/steady", Allocation.STATE_RUNNING)
        ]
        assert fake.hellos[0].incarnation == fake.hellos[1].incarnation
        go.touch()
        await fake.report(Report.KIND_ENDED, "steady")

        assert [(r.kind, r.exit_code) for r in fake.of("steady")] == [
            (Report.KIND_STARTED, 0),
            (Report.KIND_ENDED, 5),
        ]
        assert [line["event"] for line in process.trail()] == ["start", "end"]


async def test_suspended_work_stays_suspended_over_a_killed_agent(tmp_path: Path) -> None:
    script = Script(fence_ms=20_000, loss_ms=40_000)
    async with registry(script) as fake, agent(tmp_path / "data", fake.address) as process:
        await fake.connected()
        fake.start("paused", "sleep", "600")
        await fake.report(Report.KIND_STARTED, "paused")
        fake.suspend("paused")
        await fake.report(Report.KIND_SUSPENDED, "paused")
        process.kill()
        process.start()
        await fake.connected(2)
        assert [(a.lease, a.state) for a in fake.hellos[1].allocations] == [
            ("leases/paused", Allocation.STATE_SUSPENDED)
        ]
        # Stopped by a signal, or frozen.
        assert process_state(process.trail()[0]["pid"]) in ("T", "D")
        resume_id = fake.resume("paused")
        await fake.report(Report.KIND_RESUMED, command_id=resume_id)
        assert process_state(process.trail()[0]["pid"]) == "S"


async def test_what_ended_while_the_agent_was_dead_is_accounted_for(tmp_path: Path) -> None:
    script = Script(fence_ms=20_000, loss_ms=40_000)
    async with registry(script) as fake, agent(tmp_path / "data", fake.address) as process:
        await fake.connected()
        go = tmp_path / "go"
        fake.start("orphan", "sh", "-c", f"while [ ! -e {go} ]; do sleep 0.02; done; exit 6")
        await fake.report(Report.KIND_STARTED, "orphan")
        process.kill()
        go.touch()
        await eventually(lambda: len(process.trail()) == 2)
        process.start()
        ended = await fake.report(Report.KIND_ENDED, "orphan")

        assert (ended.exit_code, ended.reason, ended.sequence) == (6, "EXITED", 2)


async def test_work_is_dead_within_its_fence_when_the_agent_stays_dead(tmp_path: Path) -> None:
    script = Script(fence_ms=1_000, loss_ms=2_000)
    async with registry(script) as fake, agent(tmp_path / "data", fake.address) as process:
        await fake.connected()
        fake.start("fenced", "sh", "-c", "trap '' TERM; while :; do sleep 0.05; done")
        fake.start("kept", "sleep", "600", on_loss=_KEEP)
        await fake.report(Report.KIND_STARTED, "fenced")
        await fake.report(Report.KIND_STARTED, "kept")
        pids = {line["lease"]: line["pid"] for line in process.trail()}
        process.kill()
        killed_s = _boot_s()
        await eventually(lambda: not alive(pids["fenced"]), within_s=1.0 + _SLACK_S)
        await eventually(lambda: len(process.trail()) == 3)

        assert process.trail()[2]["boot_ns"] / 1e9 - killed_s <= 1.0 + _SLACK_S
        assert alive(pids["kept"])

        process.start()
        ended = await fake.report(Report.KIND_ENDED, "fenced")
        assert (ended.exit_code, ended.reason) == (137, "FENCED")
        fake.stop("kept")
        assert (await fake.report(Report.KIND_ENDED, "kept")).exit_code == 143


async def test_work_is_dead_within_its_fence_when_the_agent_is_stopped(tmp_path: Path) -> None:
    script = Script(fence_ms=1_000, loss_ms=2_000)
    async with registry(script) as fake, agent(tmp_path / "data", fake.address) as process:
        await fake.connected()
        fake.start("fenced", "sleep", "600")
        await fake.report(Report.KIND_STARTED, "fenced")
        pid = process.trail()[0]["pid"]
        process.signal(signal.SIGSTOP)
        try:
            await eventually(lambda: not alive(pid), within_s=1.0 + _SLACK_S)
        finally:
            process.signal(signal.SIGCONT)
        ended = await fake.report(Report.KIND_ENDED, "fenced")

        assert (ended.exit_code, ended.reason) == (137, "FENCED")


async def test_a_guardian_that_served_before_ends_its_work_all_the_same(tmp_path: Path) -> None:
    script = Script(fence_ms=1_000, loss_ms=2_000)
    async with registry(script) as fake, agent(tmp_path / "data", fake.address) as process:
        await fake.connected()
        fake.start("before", "true")
        await fake.report(Report.KIND_ENDED, "before")
        fake.start("fenced", "sleep", "600")
        await fake.report(Report.KIND_STARTED, "fenced")
        claims = [tmp_path / f"data/allocations/{x}.1.0/claim" for x in ("before", "fenced")]
        guardian, now = (int(claim.read_text().split()[0]) for claim in claims)
        assert now == guardian
        pid = process.trail()[-1]["pid"]
        process.kill()
        await eventually(lambda: not alive(pid), within_s=1.0 + _SLACK_S)
        await eventually(lambda: not alive(guardian))
        process.start()
        ended = await fake.report(Report.KIND_ENDED, "fenced")

        assert (ended.exit_code, ended.reason) == (137, "FENCED")


async def test_an_open_stream_without_answered_beats_is_no_contact(tmp_path: Path) -> None:
    script = Script(fence_ms=1_000, loss_ms=2_000)
    async with registry(script) as fake, agent(tmp_path / "data", fake.address) as process:
        await fake.connected()
        fake.start("fenced", "sleep", "600")
        await fake.report(Report.KIND_STARTED, "fenced")
        pid = process.trail()[0]["pid"]
        script.answers_beats = False
        silent_s = _boot_s()
        await eventually(lambda: not alive(pid), within_s=1.0 + _SLACK_S)
        assert _boot_s() - silent_s > 0.5
        # It did not sit on the silent stream either.
        await fake.connected(2)


async def test_nothing_begins_before_contact_is_proven(tmp_path: Path) -> None:
    script = Script(fence_ms=1_000, loss_ms=2_000, answers_beats=False)
    async with registry(script) as fake, agent(tmp_path / "data", fake.address) as process:
        await fake.connected()
        fake.start("early", "sleep", "600")
        await fake.until(lambda: fake.beats >= 3)
        assert process.trail() == []


async def test_work_survives_lost_streams_shorter_than_the_fence(tmp_path: Path) -> None:
    script = Script(fence_ms=5_000, loss_ms=10_000)
    async with registry(script) as fake, agent(tmp_path / "data", fake.address) as process:
        await fake.connected()
        fake.start("steady", "sleep", "600")
        await fake.report(Report.KIND_STARTED, "steady")
        for times in (2, 3, 4):
            fake.hang_up()
            await fake.connected(times)
        assert alive(process.trail()[0]["pid"])
        fake.stop("steady")
        ended = await fake.report(Report.KIND_ENDED, "steady")

        assert (ended.exit_code, ended.reason) == (143, "STOPPED")


async def test_what_is_not_wanted_any_more_is_stopped_on_return(tmp_path: Path) -> None:
    script = Script(fence_ms=20_000, loss_ms=40_000)
    async with registry(script) as fake, agent(tmp_path / "data", fake.address) as process:
        await fake.connected()
        fake.start("unwanted", "sleep", "600")
        fake.start("wanted", "sleep", "600")
        await fake.report(Report.KIND_STARTED, "unwanted")
        await fake.report(Report.KIND_STARTED, "wanted")
        process.kill()
        del fake.wanted["unwanted", 1, 0]
        process.start()
        ended = await fake.report(Report.KIND_ENDED, "unwanted")

        assert (ended.exit_code, ended.reason, ended.message) == (143, "STOPPED", "NOT_WANTED")
        pids = {line["lease"]: line["pid"] for line in process.trail() if line["event"] == "start"}
        assert alive(pids["wanted"])


async def test_killed_at_any_moment_each_lease_runs_once_and_ends_truly(tmp_path: Path) -> None:
    script = Script(fence_ms=20_000, loss_ms=40_000)
    async with registry(script) as fake, agent(tmp_path / "data", fake.address) as process:
        for times in range(1, 6):
            await fake.connected(times)
            for number in range(4):
                fake.start(f"r{times}n{number}", "sh", "-c", "exit 3")
            # Another moment each time: before the journal, between it and the start, after it.
            await asyncio.sleep(0.003 * (times - 1))
            process.kill()
            process.start()
            await fake.connected(times + 1)
            fake.repeat_unanswered()
        leases = {f"leases/r{times}n{number}" for times in range(1, 6) for number in range(4)}
        await fake.until(
            lambda: {r.lease for r in fake.reports if r.kind == Report.KIND_ENDED} == leases
        )

        starts = [line["lease"] for line in process.trail() if line["event"] == "start"]
        assert len(starts) == len(set(starts)) == 20, "a lease ran twice or not at all"
        ends = {r.report_id: r for r in fake.reports if r.kind == Report.KIND_ENDED}.values()
        assert sorted(r.lease for r in ends) == sorted(leases)
        assert {(r.exit_code, r.reason) for r in ends} == {(3, "EXITED")}


async def test_after_a_reboot_nothing_that_was_accepted_begins_again(tmp_path: Path) -> None:
    script = Script(fence_ms=20_000, loss_ms=40_000)
    async with registry(script) as fake, agent(tmp_path / "data", fake.address) as process:
        await fake.connected()
        fake.start("ran", "sleep", "600")
        await fake.report(Report.KIND_STARTED, "ran")
        process.close()  # the agent, the guardian and the work are gone, as after a boot
        (fence,) = (tmp_path / "data").glob("fence-*")
        fence.rename(tmp_path / "data" / "fence-of-another-boot")
        shutil.rmtree(tmp_path / "data" / "allocations")  # it was never flushed
        process.start()
        ended = await fake.report(Report.KIND_ENDED, "ran")

        assert (ended.exit_code, ended.reason) == (137, "INTERRUPTED")
        assert process.trail() == []
        before = (tmp_path / "data" / "trail.1.jsonl").read_text()
        assert before.count('"event": "start"') == 1


@pytest.mark.parametrize(("on_stop", "runs_on"), [("keep", True), ("stop", False)])
async def test_sigterm_keeps_or_ends_work_as_told(
    tmp_path: Path, on_stop: str, runs_on: bool
) -> None:
    script = Script(fence_ms=20_000, loss_ms=40_000)
    async with (
        registry(script) as fake,
        agent(tmp_path / "data", fake.address, on_stop=on_stop) as process,
    ):
        await fake.connected()
        fake.start("work", "sleep", "600")
        await fake.report(Report.KIND_STARTED, "work")
        process.signal(signal.SIGTERM)
        assert await process.ended() == 0
        pid = process.trail()[0]["pid"]

        assert alive(pid) is runs_on
        assert [r.kind == Report.KIND_ENDED for r in fake.of("work")[1:]] == [True] * (not runs_on)
