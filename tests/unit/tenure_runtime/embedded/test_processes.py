"""Child processes: ready, restarted, stopped in order, gone with their parent, shown as one."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import grpc.aio
import psutil
import pytest
import pytest_asyncio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from tenure_core.errors import AlreadyExists, Unavailable, WrongState
from tenure_runtime.embedded import log_stream, processes
from tenure_runtime.embedded.log_stream import ChildLog, LogStream
from tenure_runtime.embedded.processes import (
    ChildSpec,
    ProcessGroup,
    check_port,
    keep_running,
    lock_data_folder,
)
from tenure_runtime.embedded.readiness import grpc_health

SLEEP = "import time; print('up', flush=True); time.sleep(600)"


def python(program: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-c", program, *arguments)


def spec(name: str, program: str = SLEEP, **more: object) -> ChildSpec:
    return ChildSpec(name, python(program), dict(os.environ), **more)  # type: ignore[arg-type]


@pytest_asyncio.fixture
async def shown() -> io.StringIO:
    return io.StringIO()


@pytest_asyncio.fixture
async def group(tmp_path: Path, shown: io.StringIO) -> AsyncIterator[ProcessGroup]:
    group = ProcessGroup(tmp_path / "logs", LogStream(shown))
    yield group
    await group.stop_all()


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.02)


def file_probe(path: Path) -> Callable[[], Awaitable[bool]]:
    async def probe() -> bool:
        return path.exists()

    return probe


async def test_output_comes_as_one_stream_and_as_a_file_a_child(
    group: ProcessGroup, shown: io.StringIO, tmp_path: Path
) -> None:
    await group.start(spec("admission"))
    await group.start(spec("etcd", "import sys, time; sys.stderr.write('hm\\n'); time.sleep(600)"))
    await eventually(lambda: shown.getvalue().count("\n") == 2)
    assert sorted(shown.getvalue().splitlines()) == ["admission │ up", "etcd      │ hm"]
    assert (tmp_path / "logs" / "etcd.log").read_text() == "hm\n"
    assert (tmp_path / "logs" / "etcd.log").stat().st_mode & 0o777 == 0o600


async def test_a_child_is_ready_when_its_probe_says_so(group: ProcessGroup, tmp_path: Path) -> None:
    mark = tmp_path / "ready"
    program = f"import time, pathlib; time.sleep(0.3); pathlib.Path({str(mark)!r}).touch()\n"
    await group.start(spec("slow", program + SLEEP, ready=file_probe(mark)))
    assert mark.exists()
    assert [(each.name, each.ready, each.restarts) for each in group.status()] == [
        ("slow", True, 0)
    ]


async def test_a_child_that_ends_before_it_is_ready_is_an_error_with_its_last_words(
    group: ProcessGroup, tmp_path: Path
) -> None:
    failing = spec("bad", "raise SystemExit('no such pool')", ready=file_probe(tmp_path / "never"))
    with pytest.raises(Unavailable, match=r"bad ended with code 1.*\n.*no such pool") as refused:
        await group.start(failing)
    assert refused.value.reason == "CHILD_NOT_READY"
    assert group.status() == []


async def test_a_child_that_never_gets_ready_is_stopped(
    group: ProcessGroup, tmp_path: Path
) -> None:
    lazy = spec("lazy", ready=file_probe(tmp_path / "never"), ready_timeout_s=0.3)
    with pytest.raises(Unavailable, match=r"lazy was not ready within 0\.3 s"):
        await group.start_together([lazy, spec("other")])
    await eventually(lambda: [each.name for each in group.status()] in ([], ["other"]))


async def test_a_child_that_is_killed_comes_back_and_says_so(
    group: ProcessGroup, shown: io.StringIO
) -> None:
    await group.start(spec("agent"))
    await eventually(lambda: "up" in shown.getvalue())
    (before,) = group.status()
    assert before.pid is not None
    os.kill(before.pid, signal.SIGKILL)
    await eventually(lambda: shown.getvalue().count("│ up") == 2)
    (after,) = group.status()
    assert after.pid not in (None, before.pid)
    assert (after.ready, after.restarts) == (True, 1)
    assert "-- agent ended with code -9; starting it again in 0.2 s" in shown.getvalue()


async def test_restarts_of_a_child_that_keeps_failing_get_rarer_but_not_for_ever(
    group: ProcessGroup, shown: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure_runtime.embedded.processes.RESTART_PAUSE_FIRST_S", 0.01)
    monkeypatch.setattr("tenure_runtime.embedded.processes.RESTART_PAUSE_MAX_S", 0.04)
    await group.start(spec("flaky", "raise SystemExit(3)"))
    await eventually(lambda: shown.getvalue().count("again in 0.04 s") >= 2)
    said = [line.rpartition(" in ")[2] for line in shown.getvalue().splitlines()]
    assert said[:4] == ["0.01 s", "0.02 s", "0.04 s", "0.04 s"]


async def test_children_stop_in_reverse_order_and_a_stubborn_one_is_killed(
    group: ProcessGroup, shown: io.StringIO
) -> None:
    polite = (
        "import os, signal, sys\n"
        "def bye(*_): os.write(1, b'bye\\n'); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, bye); print('up', flush=True); signal.pause()"
    )
    stubborn = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: os.write(1, b'no\\n'))\n"
        "print('up', flush=True)\nwhile True: time.sleep(600)"
    )
    await group.start(spec("first", polite))
    await group.start(spec("second", stubborn, stop_steps=((signal.SIGTERM, 0.3),)))
    await group.start(spec("third", polite))
    await eventually(lambda: shown.getvalue().count("up") == 3)
    await group.stop_all()
    lines = shown.getvalue().splitlines()[3:]
    assert lines == ["third  │ bye", "second │ no", "first  │ bye"]
    assert group.status() == []


async def test_stopping_one_child_returns_its_exit_code(group: ProcessGroup) -> None:
    await group.start(spec("one"))
    assert await group.stop("one") == -signal.SIGTERM
    assert await group.stop("one") is None


async def test_a_grandchild_that_holds_the_pipe_does_not_hold_up_the_stop(
    group: ProcessGroup, tmp_path: Path
) -> None:
    pid_file = tmp_path / "pid"
    program = (
        "import subprocess, sys, pathlib\n"
        "child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        f"pathlib.Path({str(pid_file)!r}).write_text(str(child.pid))\n"
    )
    await group.start(spec("guarded", program + SLEEP, ready=file_probe(pid_file)))
    await eventually(lambda: pid_file.read_text() != "")
    grandchild = psutil.Process(int(pid_file.read_text()))
    try:
        async with asyncio.timeout(5):
            await group.stop_all()
        assert grandchild.status() != psutil.STATUS_ZOMBIE
    finally:
        grandchild.kill()


async def test_a_port_that_a_predecessor_is_leaving_is_waited_for(group: ProcessGroup) -> None:
    taken = socket.create_server(("127.0.0.1", 0))
    asyncio.get_running_loop().call_later(0.5, taken.close)
    await group.start(spec("admission", ports=(taken.getsockname()[1],)))
    assert len(group.status()) == 1


async def test_a_taken_port_and_a_taken_name_are_said_before_anything_starts(
    group: ProcessGroup,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processes, "_LEAVING_S", 0.2)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(WrongState, match=f"admission needs port {port}") as refused:
            await group.start(spec("admission", ports=(port,)))
        assert refused.value.reason == "PORT_TAKEN"
    check_port(port, "admission")
    await group.start(spec("admission"))
    with pytest.raises(AlreadyExists) as exists:
        await group.start(spec("admission"))
    assert exists.value.reason == "CHILD_EXISTS"
    assert len(group.status()) == 1


def test_a_second_holder_of_a_data_folder_is_refused_by_name_until_the_first_lets_go(
    tmp_path: Path,
) -> None:
    lock = lock_data_folder(tmp_path / "data")
    with pytest.raises(WrongState, match=f"another `tenure up` runs .* {os.getpid()}") as refused:
        lock_data_folder(tmp_path / "data")
    assert refused.value.reason == "DATA_FOLDER_IN_USE"
    lock.release()
    lock_data_folder(tmp_path / "data").release()


_PARENT = """
import asyncio, sys
from pathlib import Path
from tenure_runtime.embedded.log_stream import LogStream
from tenure_runtime.embedded.processes import ChildSpec, ProcessGroup, lock_data_folder

async def main():
    lock = lock_data_folder(Path(sys.argv[1]))
    group = ProcessGroup(Path(sys.argv[1]) / "logs", LogStream(None))
    await group.start(ChildSpec("one", ("/bin/sleep", "600"), {}))
    print(group.status()[0].pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.faults
async def test_children_and_the_lock_go_when_the_parent_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _PARENT, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        orphan = psutil.Process(int(parent.stdout.readline()))
        parent.kill()

    def gone() -> bool:
        return not orphan.is_running() or orphan.status() == psutil.STATUS_ZOMBIE

    await eventually(gone)
    lock_data_folder(tmp_path).release()


async def test_the_health_probe_waits_for_serving() -> None:
    servicer = health.aio.HealthServicer()
    server = grpc.aio.server()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    probe = grpc_health(f"127.0.0.1:{port}")
    await servicer.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
    await server.start()
    try:
        assert not await probe()
        await servicer.set("", health_pb2.HealthCheckResponse.SERVING)
        assert await probe()
    finally:
        await server.stop(None)
    assert not await probe()


async def test_files_stay_bounded_and_long_lines_are_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_stream, "LOG_BYTES_MAX", 100_000)
    monkeypatch.setattr("tenure_runtime.embedded.log_file.LOG_BYTES_MAX", 100_000)
    log = ChildLog("noisy", tmp_path / "noisy.log", LogStream(None))
    program = "print('x' * 200_000); [print('y' * 999) for _ in range(400)]"
    with subprocess.Popen(python(program), stdout=subprocess.PIPE) as process:
        await log.pump(process)
    log.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["noisy.log", "noisy.log.1"]
    limit = 100_000 + log_stream.LINE_BYTES_MAX + 1
    assert all(path.stat().st_size <= limit for path in tmp_path.iterdir())
    assert log.tail().splitlines() == ["y" * 999] * 20


def test_each_name_has_its_colour_and_a_renderer_may_drop_lines() -> None:
    target = io.StringIO()
    stream = LogStream(target, colour=True, render=lambda line: None if "noise" in line else line)
    stream.register("a")
    stream.register("bb")
    stream.show("a", "noise")
    stream.show("a", "one")
    stream.show("bb", "two")
    assert target.getvalue() == "\x1b[36ma \x1b[0m │ one\n\x1b[33mbb\x1b[0m │ two\n"


class _Failing:
    """A server that ends at once, and whose first restart fails."""

    def __init__(self) -> None:
        self.restarts = 0
        self.up = asyncio.Event()

    async def wait_ended(self) -> int:
        if self.restarts == 2:
            await asyncio.Event().wait()
        return -9

    async def restart(self) -> None:
        self.restarts += 1
        if self.restarts == 1:
            raise Unavailable("POSTGRES_NOT_STARTED", "children are still leaving")
        self.up.set()


async def test_a_server_is_started_again_until_that_succeeds() -> None:
    server = _Failing()
    notes: list[str] = []
    keeping = asyncio.create_task(keep_running(server, notes.append))
    await asyncio.wait_for(server.up.wait(), 5)
    keeping.cancel()
    assert notes == [
        "ended with code -9; starting it again",
        "did not start: children are still leaving; trying again in 0.2 s",
    ]
