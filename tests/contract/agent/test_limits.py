"""Work is held to what its lease was given, and nothing of its limits is left. Real processes."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from tests.support import agents
from tests.support.agents import AgentProcess, alive, eventually, process_state
from tests.support.cgroups import groups, inhabited, needs_cgroups, usable
from tests.support.fake_registry import Script, registry

from tenure.registry.v1.agent_pb2 import Report

PYTHON = sys.executable
MIB = 1 << 20
FILLS_MEMORY = "import time; held = [bytearray(1) * (1 << 20) for _ in range(400)]; time.sleep(60)"


def agent(folder: Path, address: str, **settings: str) -> AbstractAsyncContextManager[AgentProcess]:
    """Start an agent that holds work to its limits, unless told otherwise."""
    return agents.agent(folder, address, **{"limits": "auto", **settings})


def steady() -> Script:
    """Return a script whose fence never matters here."""
    return Script(fence_ms=20_000, loss_ms=40_000)


def _output(data: Path, name: str) -> str:
    return (data / "allocations" / f"{name}.1.0" / "output.log").read_text()


def _filled(path: Path) -> bool:
    return path.exists() and bool(path.read_text().strip())


async def _killed_guardian(data: Path, name: str) -> None:
    guardian = int((data / "allocations" / f"{name}.1.0" / "claim").read_text())
    os.kill(guardian, signal.SIGKILL)
    await eventually(lambda: not alive(guardian))


@needs_cgroups
async def test_hello_and_log_say_what_holds_the_work(tmp_path: Path) -> None:
    settings = {"limits": "cgroup"}
    async with registry(steady()) as fake, agent(tmp_path, fake.address, **settings) as process:
        await fake.connected()
        told = dict(fake.hellos[0].attributes)

        assert (told["limits"], told["limits_held"]) == (usable().kind, "cpu,memory,pids")
        assert (told["suspend_by"], told["private_tmp"]) == ("freezer", "folder")
        assert "limits.found" in process.log()


@needs_cgroups
async def test_work_beyond_its_memory_ends_and_says_so(tmp_path: Path) -> None:
    async with registry(steady()) as fake, agent(tmp_path, fake.address):
        await fake.connected()
        fake.start("hog", PYTHON, "-c", FILLS_MEMORY, amounts={"memory": 64 * MIB})
        fake.start("modest", "sh", "-c", "exit 3", amounts={"memory": 64 * MIB})
        hog = await fake.report(Report.KIND_ENDED, "hog")
        modest = await fake.report(Report.KIND_ENDED, "modest")

        assert (hog.exit_code, hog.reason) == (137, "OUT_OF_MEMORY")
        assert (modest.exit_code, modest.reason) == (3, "EXITED")
        assert inhabited(tmp_path) == []


@needs_cgroups
async def test_a_child_beyond_the_memory_ends_all_of_the_work(tmp_path: Path) -> None:
    """Half of it killed by the kernel is not the work that the owner wanted."""
    async with registry(steady()) as fake, agent(tmp_path, fake.address):
        await fake.connected()
        program = f"{PYTHON} -c '{FILLS_MEMORY}'; sleep 600"
        fake.start("parent", "sh", "-c", program, amounts={"memory": 64 * MIB})
        ended = await fake.report(Report.KIND_ENDED, "parent")

        assert (ended.exit_code, ended.reason) == (137, "OUT_OF_MEMORY")


@needs_cgroups
@pytest.mark.parametrize("limits", ["auto", "cgroup"])
async def test_a_fork_bomb_is_held_and_killed_to_the_last(tmp_path: Path, limits: str) -> None:
    bomb = "import os, time\nwhile True:\n try: os.fork()\n except OSError: time.sleep(0.05)\n"
    data = tmp_path / "data"
    settings = {"pids_max": "40", "limits": limits}
    async with registry(steady()) as fake, agent(data, fake.address, **settings):
        await fake.connected()
        fake.start("bomb", PYTHON, "-c", bomb, grace_ms=1)
        await eventually(lambda: _most_pids(data) >= 40)
        fake.start("beside", "sh", "-c", "exit 5")
        beside = await fake.report(Report.KIND_ENDED, "beside")
        most = _most_pids(data)
        fake.stop("bomb")
        ended = await fake.report(Report.KIND_ENDED, "bomb")

        assert most == 40
        assert beside.exit_code == 5
        assert ended.reason == "STOPPED"
        assert not _marked(data / "allocations" / "bomb.1.0")
        assert inhabited(data) == []


def _most_pids(data: Path) -> int:
    files = [group / "pids.current" for group in groups(data)]
    return max((int(file.read_text()) for file in files if file.exists()), default=0)


def _marked(folder: Path) -> list[str]:
    mark = f"TENURE_ALLOCATION_DIR={folder}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append(entry.name)
        except OSError:
            continue
    return found


@needs_cgroups
async def test_work_gets_no_more_of_the_processor_than_it_was_given(tmp_path: Path) -> None:
    burns = (
        "import time\nbegan, used = time.monotonic(), time.process_time()\n"
        "while time.monotonic() - began < 1.5: pass\n"
        "print((time.process_time() - used) / (time.monotonic() - began))"
    )
    async with registry(steady()) as fake, agent(tmp_path, fake.address):
        await fake.connected()
        fake.start("burner", PYTHON, "-c", burns, amounts={"cpu": 200})
        await fake.report(Report.KIND_ENDED, "burner")

        assert float(_output(tmp_path, "burner")) < 0.35


_COUNTER = """
import sys, time
count = 0
while True:
    count += 1
    with open(sys.argv[1], "w") as file:
        file.write(str(count))
    time.sleep(0.005)
"""


@pytest.mark.parametrize("limits", [pytest.param("cgroup", marks=needs_cgroups), "auto", "none"])
async def test_a_suspended_tree_stands_still_with_all_who_left_its_session(
    tmp_path: Path, limits: str
) -> None:
    async with registry(steady()) as fake, agent(tmp_path, fake.address, limits=limits) as process:
        await fake.connected()
        outer, inner = tmp_path / "outer", tmp_path / "inner"
        program = f"setsid {PYTHON} -c '{_COUNTER}' {inner} & exec {PYTHON} -c '{_COUNTER}' {outer}"
        fake.start("tree", "sh", "-c", program)
        await eventually(lambda: _filled(outer) and _filled(inner))
        fake.suspend("tree")
        await fake.report(Report.KIND_SUSPENDED, "tree")
        halted = (outer.read_text(), inner.read_text())
        state = process_state(process.trail()[0]["pid"])
        fake.start("pause", "sleep", "0.4")
        await fake.report(Report.KIND_ENDED, "pause")
        still = (outer.read_text(), inner.read_text())
        fake.resume("tree")
        await fake.report(Report.KIND_RESUMED, "tree")
        await eventually(lambda: outer.read_text() not in ("", halted[0]))
        await eventually(lambda: inner.read_text() not in ("", halted[1]))
        fake.stop("tree")
        ended = await fake.report(Report.KIND_ENDED, "tree")

        assert halted == still
        assert (state == "T") is (limits != "cgroup" and usable().kind != "cgroup2")
        assert (ended.exit_code, ended.reason) == (143, "STOPPED")


_DAEMON = """
import os, sys, time
if os.fork():
    sys.exit(0)
os.setsid()
if os.fork():
    sys.exit(0)
with open(sys.argv[1], "w") as file:
    file.write(str(os.getpid()))
time.sleep(600)
"""


@pytest.mark.parametrize("limits", ["auto", "rlimit", "none"])
async def test_a_double_forked_daemon_dies_with_its_lease(tmp_path: Path, limits: str) -> None:
    async with registry(steady()) as fake, agent(tmp_path, fake.address, limits=limits):
        await fake.connected()
        pid_file = tmp_path / "pid"
        fake.start("daemon", "sh", "-c", f"{PYTHON} -c '{_DAEMON}' {pid_file}; sleep 600")
        await eventually(lambda: _filled(pid_file))
        fake.stop("daemon")
        await fake.report(Report.KIND_ENDED, "daemon")

        assert not alive(int(pid_file.read_text()))


@needs_cgroups
@pytest.mark.parametrize("limits", ["auto", "cgroup"])
async def test_a_killed_guardian_leaves_no_group_even_of_suspended_work(
    tmp_path: Path, limits: str
) -> None:
    async with registry(steady()) as fake, agent(tmp_path, fake.address, limits=limits) as process:
        await fake.connected()
        fake.start("frozen", "sleep", "600", amounts={"memory": 64 * MIB, "cpu": 1_000})
        await fake.report(Report.KIND_STARTED, "frozen")
        fake.suspend("frozen")
        await fake.report(Report.KIND_SUSPENDED, "frozen")
        assert inhabited(tmp_path) != []
        await _killed_guardian(tmp_path, "frozen")
        ended = await fake.report(Report.KIND_ENDED, "frozen")

        assert (ended.exit_code, ended.reason) == (137, "INTERRUPTED")
        assert not alive(process.trail()[0]["pid"])
        assert groups(tmp_path) == []


@needs_cgroups
@pytest.mark.parametrize("limits", ["auto", "cgroup"])
async def test_groups_are_gone_after_agent_and_guardian_were_killed(
    tmp_path: Path, limits: str
) -> None:
    """What an agent that was killed had lent or kept goes, but of work that goes on."""
    async with registry(steady()) as fake, agent(tmp_path, fake.address, limits=limits) as process:
        await fake.connected()
        for name in ("dies", "lives", "ends", "before"):
            fake.start(name, "sleep", "600", amounts={"memory": 64 * MIB})
            await fake.report(Report.KIND_STARTED, name)
        fake.stop("before")
        await fake.report(Report.KIND_ENDED, "before")
        each = len(groups(tmp_path)) // 4
        process.kill()
        fake.wanted.clear()
        fake.wanted[("lives", 1, 0)] = 2
        await eventually(lambda: len(groups(tmp_path)) == 3 * each)
        await _killed_guardian(tmp_path, "dies")
        os.kill(_work(process, "ends"), signal.SIGKILL)
        await eventually(lambda: len(groups(tmp_path)) == 2 * each)
        process.start()
        await fake.report(Report.KIND_ENDED, "dies")
        await fake.report(Report.KIND_ENDED, "ends")

        members = {(group / "cgroup.procs").read_text() for group in groups(tmp_path)}
        assert members == {f"{_work(process, 'lives')}\n"}
        assert not alive(_work(process, "dies"))
        fake.stop("lives")
        await fake.report(Report.KIND_ENDED, "lives")
        assert groups(tmp_path) == []


def _work(process: AgentProcess, name: str) -> int:
    return int(next(line["pid"] for line in process.trail() if line["lease"] == name))


@needs_cgroups
async def test_a_group_serves_the_next_lease_and_goes_with_the_agent(tmp_path: Path) -> None:
    async with registry(steady()) as fake, agent(tmp_path, fake.address) as process:
        await fake.connected()
        for number in range(3):
            fake.start(f"n{number}", "true", amounts={"memory": 64 * MIB})
            await fake.report(Report.KIND_ENDED, f"n{number}")
        kept = {group.name for group in groups(tmp_path)}
        process.signal(signal.SIGTERM)
        await process.ended()

        assert len(kept) == 1
        assert groups(tmp_path) == []


@needs_cgroups
async def test_what_one_lease_left_in_memory_is_not_held_against_the_next(tmp_path: Path) -> None:
    """A file in shared memory stays charged to a group; so does the count of those killed."""
    left = Path("/dev/shm") / f"tenure-test-{os.getpid()}"
    amounts = {"memory": 64 * MIB}
    try:
        async with registry(steady()) as fake, agent(tmp_path, fake.address) as process:
            await fake.connected()
            fake.start(
                "litters", "sh", "-c", f"head -c 50000000 /dev/zero > {left}", amounts=amounts
            )
            await fake.report(Report.KIND_ENDED, "litters")
            hog = f"{PYTHON} -c '{FILLS_MEMORY}'; sleep 600"
            fake.start("stopped", "sh", "-c", hog, amounts=amounts)
            await fake.report(Report.KIND_ENDED, "stopped")
            uses = f"held = bytearray(1) * {40 * MIB}"
            fake.start("next", PYTHON, "-c", uses, amounts=amounts)
            ended = await fake.report(Report.KIND_ENDED, "next")

            assert (ended.exit_code, ended.reason) == (0, "EXITED")
            assert process.log()
    finally:
        left.unlink(missing_ok=True)


async def test_each_lease_has_a_tmp_of_its_own_that_goes_with_it(tmp_path: Path) -> None:
    async with registry(steady()) as fake, agent(tmp_path, fake.address):
        await fake.connected()
        program = "mktemp; mkdir $TMPDIR/deep; echo x > $TMPDIR/deep/file; ls -a $TMPDIR | wc -l"
        for name in ("one", "two"):
            fake.start(name, "sh", "-c", program)
            await fake.report(Report.KIND_ENDED, name)
        made = [_output(tmp_path, name).split()[0] for name in ("one", "two")]

        folders = [str(tmp_path / "allocations" / f"{name}.1.0" / "tmp") for name in ("one", "two")]
        assert [os.path.dirname(path) for path in made] == folders
        assert [_output(tmp_path, name).split()[1] for name in ("one", "two")] == ["4", "4"]
        assert not any(Path(folder).exists() for folder in folders)


async def test_work_held_by_rlimits_ends_for_its_memory_too(tmp_path: Path) -> None:
    """Two processes, each below the limit: the guardian adds them up."""
    async with registry(steady()) as fake, agent(tmp_path, fake.address, limits="rlimit"):
        await fake.connected()
        holds = "import os, time; os.fork(); held = [bytearray(1) * (1 << 20) for _ in range(70)]"
        program = f"{holds}; time.sleep(60)"
        fake.start("pair", PYTHON, "-c", program, amounts={"memory": 100 * MIB})
        fake.start("alone", PYTHON, "-c", FILLS_MEMORY, amounts={"memory": 100 * MIB})
        pair = await fake.report(Report.KIND_ENDED, "pair")
        alone = await fake.report(Report.KIND_ENDED, "alone")

        assert (pair.exit_code, pair.reason) == (137, "OUT_OF_MEMORY")
        assert (alone.exit_code, alone.reason) == (1, "EXITED")
        assert "MemoryError" in _output(tmp_path, "alone")


async def test_limits_by_cgroup_that_cannot_be_end_the_start(tmp_path: Path) -> None:
    async with (
        registry(steady()) as fake,
        agent(tmp_path, fake.address, limits="cgroup", cgroup="/no-such-group") as process,
    ):
        assert await process.ended() == 1
        assert "TENURE_LIMITS is cgroup" in process.log()
