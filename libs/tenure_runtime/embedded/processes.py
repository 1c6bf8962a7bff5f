"""Runs named child processes together: started in order, restarted when they end, stopped in turn.

Decides when a child counts as ready, when it is started again and how it is told to stop. Which
children there are is the business of `tenure up`; how output is shown is `log_stream`'s. Children
end with us, however we end. Use it from the main thread (see `child.spawn`).
"""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from tenure_core.errors import AlreadyExists, DomainError, Unavailable, WrongState

from . import child
from .folder_lock import FolderLock
from .log_stream import ChildLog, LogStream

RESTART_PAUSE_FIRST_S: Final = 0.2
RESTART_PAUSE_MAX_S: Final = 10.0

SETTLED_S: Final = 30.0
"""A child that ran this long is restarted without the pause that earlier failures earned."""

_PROBE_PERIOD_S: Final = 0.05
_LAST_OUTPUT_S: Final = 1.0
_LEAVING_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """One child: its name (shown before its output), its command, and how one knows it is up.

    `environment` is the whole environment, not additions. `ready` answers whether the child serves;
    without it a child is ready once started. `ports` are loopback ports it will listen on, checked
    before the start so that a taken one is named. `stop_steps` are signals and seconds of patience.
    """

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    ready: Callable[[], Awaitable[bool]] | None = None
    ready_timeout_s: float = 30.0
    ports: tuple[int, ...] = ()
    folder: Path | None = None
    restart: bool = True
    stop_steps: Sequence[tuple[signal.Signals, float]] = ((signal.SIGTERM, 15.0),)


@dataclass(frozen=True, slots=True)
class ChildStatus:
    """What is known about a child: its process while it runs, whether it is ready, its restarts."""

    name: str
    pid: int | None
    ready: bool
    restarts: int


@dataclass(slots=True)
class _Child:
    """A child under supervision."""

    spec: ChildSpec
    log: ChildLog
    process: subprocess.Popen[bytes]
    keeping: asyncio.Task[None] | None = None
    ready: bool = False
    restarts: int = 0
    pumps: set[asyncio.Task[None]] = field(default_factory=set)


class ProcessGroup:
    """The children of one `tenure up`. Their output goes to `log_folder` and to `stream`."""

    def __init__(self, log_folder: Path, stream: LogStream) -> None:
        log_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._log_folder = log_folder
        self._stream = stream
        self._children: dict[str, _Child] = {}

    def status(self) -> list[ChildStatus]:
        """Return what is known about each child, in the order of their start."""
        return [
            ChildStatus(
                name=name,
                pid=each.process.pid if each.process.poll() is None else None,
                ready=each.ready and each.process.poll() is None,
                restarts=each.restarts,
            )
            for name, each in self._children.items()
        ]

    async def start(self, spec: ChildSpec) -> None:
        """Start one child, wait until it is ready, and keep it running from then on.

        Raises AlreadyExists CHILD_EXISTS for a name in use, WrongState PORT_TAKEN for a port that
        somebody listens on, and Unavailable CHILD_NOT_READY, with the end of its output, when it
        ends or its time runs out before it is ready; it is then stopped.
        """
        if spec.name in self._children:
            raise AlreadyExists("CHILD_EXISTS", f"a child named {spec.name} runs already")
        for port in spec.ports:
            await _port_left(port, spec.name)
        log = ChildLog(spec.name, self._log_folder / f"{spec.name}.log", self._stream)
        managed = _Child(spec, log, self._spawn(spec))
        self._children[spec.name] = managed
        self._pump(managed)
        try:
            await self._wait_ready(managed)
        except BaseException:
            await self._stop(self._children.pop(spec.name))
            raise
        managed.keeping = asyncio.create_task(self._keep(managed))

    async def start_together(self, specs: Sequence[ChildSpec]) -> None:
        """Start several children at once; if one fails, the first error is raised."""
        try:
            async with asyncio.TaskGroup() as group:
                for spec in specs:
                    group.create_task(self.start(spec))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def stop(self, name: str) -> int | None:
        """Stop one child for good and return its exit code; None if there is none of that name."""
        managed = self._children.pop(name, None)
        return await self._stop(managed) if managed is not None else None

    async def stop_all(self) -> None:
        """Stop every child, the last started first, each within its patience."""
        while self._children:
            await self._stop(self._children.popitem()[1])

    async def _stop(self, managed: _Child) -> int:
        if managed.keeping is not None:
            managed.keeping.cancel()
            await asyncio.wait({managed.keeping})
        code = await child.stop(managed.process, managed.spec.stop_steps)
        await self._last_output(managed)
        managed.log.close()
        return code

    def _spawn(self, spec: ChildSpec) -> subprocess.Popen[bytes]:
        return child.spawn(
            spec.command,
            output=subprocess.PIPE,
            environment=spec.environment,
            folder=spec.folder,
        )

    def _pump(self, managed: _Child) -> None:
        task = asyncio.create_task(managed.log.pump(managed.process))
        managed.pumps.add(task)
        task.add_done_callback(managed.pumps.discard)

    async def _last_output(self, managed: _Child) -> None:
        """Give the output of a child that ended a moment to arrive.

        Not longer: a grandchild that lives on may hold the pipe open.
        """
        if managed.pumps:
            await asyncio.wait(managed.pumps, timeout=_LAST_OUTPUT_S)
        for task in list(managed.pumps):
            task.cancel()

    async def _wait_ready(self, managed: _Child) -> None:
        spec = managed.spec
        deadline = asyncio.get_running_loop().time() + spec.ready_timeout_s
        while spec.ready is not None and not await spec.ready():
            if managed.process.poll() is not None:
                await self._last_output(managed)
                raise _not_ready(managed, f"ended with code {managed.process.returncode}")
            if asyncio.get_running_loop().time() > deadline:
                raise _not_ready(managed, f"was not ready within {spec.ready_timeout_s:g} s")
            await asyncio.sleep(_PROBE_PERIOD_S)
        managed.ready = True

    async def _keep(self, managed: _Child) -> None:
        """Start the child again whenever it ends, at growing but bounded intervals."""
        pause_s = RESTART_PAUSE_FIRST_S
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            while not await child.ended(managed.process, 60.0):
                pass
            managed.ready = False
            await self._last_output(managed)
            code = managed.process.returncode
            if not managed.spec.restart:
                managed.log.note(f"ended with code {code}")
                return
            if loop.time() - began > SETTLED_S:
                pause_s = RESTART_PAUSE_FIRST_S
            managed.log.note(f"ended with code {code}; starting it again in {pause_s:g} s")
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, RESTART_PAUSE_MAX_S)
            managed.process = self._spawn(managed.spec)
            managed.restarts += 1
            self._pump(managed)
            try:
                await self._wait_ready(managed)
            except Unavailable:
                managed.log.note("is not ready after its restart")
                await child.stop(managed.process, managed.spec.stop_steps)


class Server(Protocol):
    """A server with a supervisor of its own: the private PostgreSQL, the private etcd."""

    async def wait_ended(self) -> int:
        """Return the exit code once the server has ended."""
        ...

    async def restart(self) -> None:
        """Start it again at the same address."""
        ...


async def keep_running(server: Server, note: Callable[[str], None]) -> None:
    """Start the server again whenever it ends, at growing but bounded intervals; never returns.

    `note` takes a line for people. Cancel this before the server is stopped on purpose.
    """
    loop = asyncio.get_running_loop()
    pause_s = 0.0
    while True:
        began = loop.time()
        code = await server.wait_ended()
        if loop.time() - began > SETTLED_S:
            pause_s = 0.0
        note(f"ended with code {code}; starting it again")
        while True:
            await asyncio.sleep(pause_s)
            pause_s = min(max(pause_s * 2, RESTART_PAUSE_FIRST_S), RESTART_PAUSE_MAX_S)
            try:
                await server.restart()
                break
            except DomainError as error:
                note(f"did not start: {error.message}; trying again in {pause_s:g} s")


def lock_data_folder(folder: Path) -> FolderLock:
    """Take the data folder for this `tenure up`, making it (mode 0700) if there is none.

    Raises WrongState DATA_FOLDER_IN_USE, naming the process, if another one has it. The lock goes
    with the process, so a crash leaves nothing to clean up.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = FolderLock(folder)
    lock.take("DATA_FOLDER_IN_USE", f"another `tenure up` runs on {folder}; `tenure down` stops it")
    return lock


def check_port(port: int, name: str, host: str = "127.0.0.1") -> None:
    """Raise WrongState PORT_TAKEN if somebody listens on the port that `name` needs."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise WrongState(
                "PORT_TAKEN",
                f"{name} needs port {port} on {host}, which another program uses "
                f"({error.strerror}); stop that program, or take others: tenure up --new-ports",
                port=port,
            ) from None


async def _port_left(port: int, name: str) -> None:
    """Check a port, for some seconds: children of a killed suite may still be leaving."""
    limit = time.monotonic() + _LEAVING_S
    while True:
        try:
            return check_port(port, name)
        except WrongState:
            if time.monotonic() >= limit:
                raise
        await asyncio.sleep(0.1)


def _not_ready(managed: _Child, what: str) -> Unavailable:
    tail = managed.log.tail()
    said = f"; its last words:\n{tail}" if tail else "; it said nothing"
    return Unavailable("CHILD_NOT_READY", f"{managed.spec.name} {what}{said}")
