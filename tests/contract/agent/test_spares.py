"""A process that was a guardian may be the next lease's: one at a time, and nothing stays."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.support.agents import agent, alive, eventually
from tests.support.fake_registry import FakeRegistry, Script, registry

from tenure.registry.v1.agent_pb2 import Report


def _steady() -> Script:
    return Script(fence_ms=20_000, loss_ms=40_000)


async def _run(fake: FakeRegistry, lease: str, *command: str) -> int:
    fake.start(lease, *command)
    return (await fake.report(Report.KIND_ENDED, lease)).exit_code


def _guardian(folder: Path, lease: str) -> int:
    return int((folder / "allocations" / f"{lease}.1.0" / "claim").read_text().split()[0])


async def test_leases_in_turn_share_a_process_and_nothing_else(tmp_path: Path) -> None:
    async with registry(_steady()) as fake, agent(tmp_path, fake.address) as process:
        await fake.connected()
        # After a moment, so that the guardian has opened and closed what it will.
        count = "sleep 0.3; n=$(ls /proc/$PPID/fd | wc -l)"
        say = f"{count}; echo $TENURE_LEASE; pwd; echo $n; ls; touch mine; exit "
        assert await _run(fake, "one", "sh", "-c", say + "3") == 3
        assert await _run(fake, "two", "sh", "-c", say + "0") == 0
        assert await _run(fake, "three", "sh", "-c", say + "5") == 5

        assert _guardian(tmp_path, "one") == _guardian(tmp_path, "two")
        assert _guardian(tmp_path, "two") == _guardian(tmp_path, "three")
        said = []
        for lease in ("one", "two", "three"):
            folder = tmp_path / "allocations" / f"{lease}.1.0"
            name, place, descriptors, *rest = (folder / "output.log").read_text().split()
            assert (name, place, rest) == (lease, str(folder / "work"), [])
            said.append(int(descriptors))
        # Nothing of a lease stays open for the next.
        assert len(set(said)) == 1
        assert [line["event"] for line in process.trail()] == ["start", "end"] * 3


async def test_a_guardian_guards_one_lease_at_a_time(tmp_path: Path) -> None:
    async with registry(_steady()) as fake, agent(tmp_path, fake.address):
        await fake.connected()
        fake.start("long", "sleep", "600")
        await fake.report(Report.KIND_STARTED, "long")
        assert await _run(fake, "short", "true") == 0

        assert _guardian(tmp_path, "long") != _guardian(tmp_path, "short")


async def test_work_that_was_ended_or_left_something_ends_its_process_too(tmp_path: Path) -> None:
    async with registry(_steady()) as fake, agent(tmp_path, fake.address):
        await fake.connected()
        fake.start("stopped", "sleep", "600")
        await fake.report(Report.KIND_STARTED, "stopped")
        fake.stop("stopped")
        await fake.report(Report.KIND_ENDED, "stopped")
        assert await _run(fake, "untidy", "sh", "-c", "sleep 600 & exit 0") == 0

        for lease in ("stopped", "untidy"):
            await eventually(lambda lease=lease: not alive(_guardian(tmp_path, lease)))


async def test_a_waiting_process_that_was_killed_harms_nobody(tmp_path: Path) -> None:
    async with registry(_steady()) as fake, agent(tmp_path, fake.address) as process:
        await fake.connected()
        assert await _run(fake, "one", "true") == 0
        os.kill(_guardian(tmp_path, "one"), signal.SIGSTOP)
        fake.start("two", "sh", "-c", "exit 7")
        os.kill(_guardian(tmp_path, "one"), signal.SIGKILL)

        assert (await fake.report(Report.KIND_ENDED, "two")).exit_code == 7
        assert [x["event"] for x in process.trail() if x["lease"] == "two"] == ["start", "end"]


async def test_waiting_processes_end_with_the_agent(tmp_path: Path) -> None:
    async with registry(_steady()) as fake, agent(tmp_path, fake.address) as process:
        await fake.connected()
        assert await _run(fake, "one", "true") == 0
        guardian = _guardian(tmp_path, "one")
        assert alive(guardian)
        process.kill()

        await eventually(lambda: not alive(guardian))
