"""How work ends on an agent: asked, forced, fenced, and never left behind. Real processes all."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from tests.support.agents import agent, alive, eventually
from tests.support.fake_registry import Script, registry

from tenure.registry.v1.agent_pb2 import Report
from tenure_core.trails import runs_of

pytestmark = pytest.mark.faults

PYTHON = sys.executable


def _pid_in(path: Path) -> int:
    return int(path.read_text())


def _written(path: Path) -> bool:
    return path.exists() and bool(path.read_text().strip())


async def test_work_that_ignores_sigterm_is_killed_after_its_grace(tmp_path: Path) -> None:
    async with registry() as fake, agent(tmp_path / "data", fake.address):
        await fake.connected()
        pid_file = tmp_path / "pid"
        program = f"trap '' TERM; echo $$ > {pid_file}; while :; do sleep 0.05; done"
        fake.start("stubborn", "sh", "-c", program, grace_ms=300)
        await eventually(lambda: _written(pid_file))
        began = time.monotonic()
        stop_id = fake.stop("stubborn")
        ended = await fake.report(Report.KIND_ENDED, "stubborn")

        assert (ended.command_id, ended.exit_code, ended.reason, ended.message) == (
            stop_id,
            128 + signal.SIGKILL,
            "STOPPED",
            "TIME_OVER",
        )
        assert time.monotonic() - began >= 0.3
        assert not alive(_pid_in(pid_file))


async def test_a_program_that_obeys_sigterm_reports_its_own_exit_code(tmp_path: Path) -> None:
    async with registry() as fake, agent(tmp_path / "data", fake.address):
        await fake.connected()
        ready = tmp_path / "ready"
        program = f"trap 'exit 7' TERM; touch {ready}; while :; do sleep 0.02; done"
        fake.start("polite", "sh", "-c", program, grace_ms=10_000)
        await eventually(ready.exists)
        fake.stop("polite")
        ended = await fake.report(Report.KIND_ENDED, "polite")

        assert (ended.exit_code, ended.reason) == (7, "STOPPED")


_DAEMON = """
import os, sys, time
if os.fork():
    sys.exit(0)
os.setsid()
if os.fork():
    sys.exit(0)
os.setpgid(0, 0)
with open(sys.argv[1], "w") as file:
    file.write(str(os.getpid()))
time.sleep(600)
"""


async def test_what_double_forked_is_killed_with_the_work(tmp_path: Path) -> None:
    async with registry() as fake, agent(tmp_path / "data", fake.address) as process:
        await fake.connected()
        pid_file = tmp_path / "pid"
        waiting = f"while [ ! -s {pid_file} ]; do sleep 0.01; done"
        program = f"{PYTHON} -c '{_DAEMON}' {pid_file}; {waiting}"
        fake.start("daemon", "sh", "-c", f"{program}; sleep 600")
        await eventually(lambda: _written(pid_file))
        daemon = _pid_in(pid_file)
        assert alive(daemon)
        fake.stop("daemon")
        await fake.report(Report.KIND_ENDED, "daemon")

        assert not alive(daemon)
        assert [line["event"] for line in process.trail()] == ["start", "end"]


async def test_a_daemon_does_not_outlive_the_command_that_left_it(tmp_path: Path) -> None:
    async with registry() as fake, agent(tmp_path / "data", fake.address):
        await fake.connected()
        pid_file = tmp_path / "pid"
        waiting = f"while [ ! -s {pid_file} ]; do sleep 0.01; done"
        program = f"{PYTHON} -c '{_DAEMON}' {pid_file}; {waiting}"
        fake.start("leaver", "sh", "-c", program)
        ended = await fake.report(Report.KIND_ENDED, "leaver")

        assert (ended.exit_code, ended.reason) == (0, "EXITED")
        assert not alive(_pid_in(pid_file))


_COUNTER = """
import sys, time
count = 0
while True:
    count += 1
    with open(sys.argv[1], "w") as file:
        file.write(str(count))
    end = time.perf_counter() + 0.005
    while time.perf_counter() < end:
        pass
"""


async def test_suspending_halts_the_work_and_resuming_lets_it_go_on(tmp_path: Path) -> None:
    async with registry() as fake, agent(tmp_path / "data", fake.address) as process:
        await fake.connected()
        outer, inner = tmp_path / "outer", tmp_path / "inner"
        # One burns in the work's own group, one in a session of its own.
        program = f"setsid {PYTHON} -c '{_COUNTER}' {inner} & exec {PYTHON} -c '{_COUNTER}' {outer}"
        fake.start("burner", "sh", "-c", program)
        await eventually(lambda: _written(outer) and _written(inner))
        suspend_id = fake.suspend("burner")
        suspended = await fake.report(Report.KIND_SUSPENDED, "burner")
        halted = (outer.read_text(), inner.read_text())
        fake.start("pause", "sleep", "0.4")
        await fake.report(Report.KIND_ENDED, "pause")
        still = (outer.read_text(), inner.read_text())
        resume_id = fake.resume("burner")
        resumed = await fake.report(Report.KIND_RESUMED, "burner")
        await eventually(lambda: outer.read_text() not in ("", halted[0]))
        await eventually(lambda: inner.read_text() not in ("", halted[1]))
        fake.stop("burner")
        ended = await fake.report(Report.KIND_ENDED, "burner")

        assert halted == still
        assert (suspended.command_id, resumed.command_id) == (suspend_id, resume_id)
        assert resumed.run_duration.ToMilliseconds() - suspended.run_duration.ToMilliseconds() < 50
        assert ended.exit_code == 128 + signal.SIGTERM
        run = next(run for run in runs_of(process.trail()) if run.lease == "burner")
        assert len(run.stretches) == 2
        assert run.stretches[1][0] - run.stretches[0][1] >= 400_000_000


async def test_suspended_work_hears_a_stop(tmp_path: Path) -> None:
    async with registry() as fake, agent(tmp_path / "data", fake.address):
        await fake.connected()
        fake.start("sleeper", "sleep", "600", grace_ms=10_000)
        await fake.report(Report.KIND_STARTED, "sleeper")
        fake.suspend("sleeper")
        await fake.report(Report.KIND_SUSPENDED, "sleeper")
        began = time.monotonic()
        fake.stop("sleeper")
        ended = await fake.report(Report.KIND_ENDED, "sleeper")

        assert (ended.exit_code, ended.reason) == (128 + signal.SIGTERM, "STOPPED")
        assert time.monotonic() - began < 5
        trail = (tmp_path / "data" / "trail.jsonl").read_text().splitlines()
        events = [json.loads(line)["event"] for line in trail]
        assert events == ["start", "suspend", "wake", "end"]


async def test_output_is_cut_at_its_limit_and_the_work_goes_on(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with registry() as fake, agent(data, fake.address, output_bytes_max="100000"):
        await fake.connected()
        fake.start("flood", "sh", "-c", "head -c 5000000 /dev/zero; exit 4")
        ended = await fake.report(Report.KIND_ENDED, "flood")
        mark = b"\n[tenure: output cut here, after 100000 bytes]\n"

        assert ended.exit_code == 4
        output = (data / "allocations" / "flood.1.0" / "output.log").read_bytes()
        assert output == b"\0" * 100_000 + mark


async def test_work_knows_its_lease_and_nothing_of_the_agents_secrets(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with registry() as fake, agent(data, fake.address):
        await fake.connected()
        fake.start("env", "env", environment={"ANSWER": "42", "TENURE_LEASE": "forged"}, attempt=3)
        await fake.report(Report.KIND_ENDED, "env")
        lines = (data / "allocations" / "env.3.0" / "output.log").read_text().splitlines()
        told = dict(line.split("=", 1) for line in lines)

        inherited = {"PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ"}
        assert {k: v for k, v in told.items() if k not in inherited} == {
            "ANSWER": "42",
            "TENURE_LEASE": "env",
            "TENURE_ATTEMPT": "3",
            "TENURE_RANK": "0",
            "TENURE_NODE": "n1",
            "TENURE_NODE_COUNT": "1",
            "TENURE_NODES": "n1",
            "TENURE_ALLOCATION_DIR": str(data / "allocations" / "env.3.0"),
            "TMPDIR": str(data / "allocations" / "env.3.0" / "tmp"),
        }


async def test_an_environment_larger_than_a_socket_message_arrives_whole(tmp_path: Path) -> None:
    async with registry() as fake, agent(tmp_path / "data", fake.address):
        await fake.connected()
        large = {f"V{number}": "x" * 30_000 for number in range(12)}
        program = "import os; exit(sum(len(os.environ[f'V{n}']) == 30_000 for n in range(12)))"
        fake.start("large", PYTHON, "-c", program, environment=large)
        ended = await fake.report(Report.KIND_ENDED, "large")

        assert ended.exit_code == 12


async def test_a_program_that_is_not_there_is_a_failed_start(tmp_path: Path) -> None:
    async with registry() as fake, agent(tmp_path / "data", fake.address) as process:
        await fake.connected()
        start_id = fake.start("absent", "no-such-program")
        ended = await fake.report(Report.KIND_ENDED, "absent")

        assert (ended.command_id, ended.exit_code, ended.reason) == (start_id, 127, "START_FAILED")
        assert [r.kind for r in fake.of("absent")] == [Report.KIND_ENDED]
        assert process.trail() == []


async def test_a_killed_guardian_takes_its_work_along(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with registry() as fake, agent(data, fake.address) as process:
        await fake.connected()
        pid_file = tmp_path / "pid"
        fake.start("orphan", "sh", "-c", f"sleep 600 & echo $! > {pid_file}; wait")
        await eventually(lambda: _written(pid_file))
        guardian = int((data / "allocations" / "orphan.1.0" / "claim").read_text())
        os.kill(guardian, signal.SIGKILL)
        ended = await fake.report(Report.KIND_ENDED, "orphan")

        assert (ended.exit_code, ended.reason) == (137, "INTERRUPTED")
        assert not alive(_pid_in(pid_file))
        assert not alive(process.trail()[0]["pid"])


async def test_a_dead_warm_process_is_replaced_and_running_work_stays(tmp_path: Path) -> None:
    async with registry() as fake, agent(tmp_path / "data", fake.address) as process:
        await fake.connected()
        fake.start("before", "sleep", "600")
        await fake.report(Report.KIND_STARTED, "before")
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGKILL)
        fake.start("after", "sh", "-c", "exit 9")
        ended = await fake.report(Report.KIND_ENDED, "after")

        assert ended.exit_code == 9
        assert alive(process.trail()[0]["pid"])
        fake.stop("before")
        assert (await fake.report(Report.KIND_ENDED, "before")).exit_code == 143


async def test_fifty_at_once_each_end_once_with_their_own_code(tmp_path: Path) -> None:
    script = Script(fence_ms=20_000, loss_ms=40_000)
    async with registry(script) as fake, agent(tmp_path / "data", fake.address):
        await fake.connected()
        for number in range(50):
            fake.start(f"n{number}", "sh", "-c", f"exit {number}")
        await fake.until(lambda: sum(r.kind == Report.KIND_ENDED for r in fake.reports) >= 50)

        codes = {r.lease: r.exit_code for r in fake.reports if r.kind == Report.KIND_ENDED}
        assert codes == {f"leases/n{number}": number for number in range(50)}
        assert len({r.report_id for r in fake.reports}) == 100
