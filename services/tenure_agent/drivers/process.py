"""Runs the work of a lease as processes of this machine, each allocation under its own guardian.

Decides what a guardian is told and what its words mean. When the work ends is left to the guardian,
which goes on without us; the folder of the allocation (`guardian.folder`) is what both trust.

Suspending stops the processes where they are (SIGSTOP), so they keep everything but the processor.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tenure_agent.drivers import remains
from tenure_agent.drivers.spares import Spares
from tenure_agent.drivers.zygote_link import ZygoteLink, connect_to
from tenure_agent.guardian import folder as folders
from tenure_agent.guardian.bootclock import wall_ns
from tenure_agent.guardian.confinement import TMP
from tenure_agent.guardian.folder import Result
from tenure_agent.guardian.guard import MESSAGE_BYTES_MAX
from tenure_agent.guardian.spec import Spec
from tenure_agent.guardian.trail import Trail, now
from tenure_agent.limits import Limits, Means
from tenure_agent.ports import Listener
from tenure_agent.work import Event, Key, Launch, State
from tenure_runtime.telemetry.logging import get_logger

# What a lease's work gets of the agent's own environment; the rest (keys, addresses) is not its.
_INHERITED: Final = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ")
_CONNECT_S: Final = 5.0
_CONNECT_PAUSE_S: Final = 0.01
_KILLED: Final = 137


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    """Where allocations live and what bounds them.

    `rebooted` says that what an earlier process left is from before the machine was started.
    """

    node: str
    allocations: Path
    fence_file: Path
    trail_file: Path
    output_bytes_max: int
    rebooted: bool = False
    limits: Limits = field(default_factory=lambda: Limits(Means()))


class ProcessDriver:
    """`ports.Driver` over guardians."""

    def __init__(
        self, settings: ProcessSettings, zygote: ZygoteLink, kinds: tuple[str, ...]
    ) -> None:
        self._settings = settings
        self._zygote = zygote
        self._spares = Spares()
        self._connections: dict[Key, socket.socket] = {}
        # Work of which no guardian has said anything yet: begun once more if the warm process dies.
        self._beginning: dict[Key, Spec] = {}
        self.suspended_keeps = tuple(kind for kind in kinds if kind != "cpu")
        settings.allocations.mkdir(mode=0o700, exist_ok=True)

    def listen(self, listener: Listener) -> None:
        """Send events to `listener`."""
        self._tell = listener

    def folder(self, key: Key) -> Path:
        """Return the folder of an allocation."""
        return self._settings.allocations / key.folder

    def start(self, key: Key, launch: Launch, *, before_ms: int, traceparent: str) -> None:
        """Write what is to run and have it guarded."""
        spec = self._spec(key, launch, before_ms, traceparent)
        try:
            self._guard(key, spec)
        except OSError:
            self._settings.limits.clear(key)
            raise
        self._beginning[key] = spec

    def _guard(self, key: Key, spec: Spec) -> None:
        os.mkdir(spec.folder, mode=0o700)
        self._attach(key, self._spares.guard(spec) or self._zygote.guard(spec))

    def suspend(self, key: Key) -> None:
        """Have its processes stopped where they are."""
        self._send(key, {"do": "suspend"})

    def resume(self, key: Key) -> None:
        """Have them go on."""
        self._send(key, {"do": "resume"})

    def stop(self, key: Key, *, grace_ms: int, reason: str) -> None:
        """Have it ended."""
        self._send(key, {"do": "stop", "grace_ms": grace_ms, "reason": reason[:200]})

    def recover(self, keys: Mapping[Key, bool]) -> frozenset[Key]:
        """Find the guardians again; say what never began."""
        unbegun = frozenset(key for key in keys if not self._find(key))
        guardians = [folders.guardian_of(str(self.folder(key))) for key in self._connections]
        self._settings.limits.sweep(filter(None, guardians))
        return unbegun

    def close(self) -> None:
        """Let go of all guardians; they go on."""
        for key in list(self._connections):
            self._detach(key)
        self._spares.close()
        self._zygote.close()
        self._settings.limits.close()

    def _find(self, key: Key) -> bool:
        """Say whether the allocation ever began; if so, its true state follows as an event."""
        folder = self.folder(key)
        if self._settings.rebooted:
            asyncio.get_running_loop().call_soon(self._settle_after_boot, key)
            return True
        if not folder.is_dir():
            return False
        deadline = time.monotonic() + _CONNECT_S
        while True:
            result = folders.read_result(str(folder))
            claim = folders.examine(str(folder))
            if result is not None or (claim.began and not claim.alive):
                asyncio.get_running_loop().call_soon(self._settle, key)
                return True
            if not claim.began:
                remains.remove(folder)
                return False
            try:
                self._attach(key, connect_to(folder, folders.CONTROL))
            except OSError:
                # The guardian is about to listen, or about to end: look again.
                assert time.monotonic() < deadline, f"the guardian of {key} does not answer"
                time.sleep(_CONNECT_PAUSE_S)
            else:
                return True

    def _attach(self, key: Key, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._connections[key] = connection
        asyncio.get_running_loop().add_reader(connection.fileno(), self._hear, key)

    def _detach(self, key: Key) -> None:
        connection = self._connections.pop(key, None)
        if connection is not None:
            asyncio.get_running_loop().remove_reader(connection.fileno())
            connection.close()

    def _send(self, key: Key, message: dict[str, object]) -> None:
        connection = self._connections.get(key)
        if connection is None:
            return
        try:
            connection.send(json.dumps(message).encode())
        except OSError as error:
            # It has ended or is ending; its end arrives as an event of its own.
            get_logger().info("guardian.unreachable", allocation=key.folder, reason=str(error))

    def _hear(self, key: Key) -> None:
        try:
            content = self._connections[key].recv(MESSAGE_BYTES_MAX)
        except BlockingIOError:
            return
        except ConnectionError:
            content = b""
        message: dict[str, Any] = json.loads(content) if content else {"is": "gone"}
        if content:
            self._beginning.pop(key, None)
        match message["is"]:
            case "running":
                self._tell(Event(key, State.RUNNING, message["run_ms"]))
            case "suspended":
                self._tell(Event(key, State.SUSPENDED, message["run_ms"]))
            case "ended":
                if message.get("spare"):
                    self._spares.put(self._connections.pop(key))
                self._detach(key)
                self._settings.limits.give_back(key)
                self._tell_end(key, Result(**message["result"]))
            case _:
                self._settle(key)

    def _settle(self, key: Key) -> None:
        """Account for an allocation whose guardian has gone, or was gone when we came."""
        self._detach(key)
        folder = str(self.folder(key))
        result = folders.read_result(folder)
        if result is None:
            result = self._settle_without_result(key, folder)
        else:
            self._settings.limits.clear(key)
        if result is not None:
            self._tell_end(key, result)

    def _tell_end(self, key: Key, result: Result) -> None:
        if result.exit_code is None:
            # Nothing ever ran there; another command may begin the same attempt anew.
            remains.remove(self.folder(key))
        end = (result.exit_code, result.reason, result.message)
        self._tell(Event(key, State.ENDED, result.run_ms, *end))

    def _settle_without_result(self, key: Key, folder: str) -> Result | None:
        """Find out what became of silent work; None when it is not settled yet."""
        claim = folders.examine(folder)
        if claim.alive:
            self._reattach(key)
            return None
        spec = self._beginning.pop(key, None)
        if claim.began:
            # First the group: what is frozen dies only once it is thawed.
            self._settings.limits.clear(key)
            remains.kill(folder)
            result = _interrupted("The guardian went down; how the work ended is not known.")
            folders.write_result(folder, folders.encode_result(result), durable=True)
            # The guardian could not write its end, and now nothing of the work is left.
            trail = self._trail(key)
            if trail.is_open():
                trail.append("end", 0, now(), _KILLED)
            return result
        if spec is not None:
            # The folder is void, so a second guardian cannot meet the first.
            remains.remove(Path(folder))
            self._guard(key, spec)
            return None
        self._settings.limits.clear(key)
        return Result(None, "START_FAILED", "No guardian could be started.", 0, wall_ns())

    def _settle_after_boot(self, key: Key) -> None:
        """Account for what an earlier boot ran: by its result, else as interrupted.

        Whether it had begun cannot be told (claims are not flushed), so it never begins again.
        """
        result = folders.read_result(str(self.folder(key)))
        message = "The machine went down; how the work ended is not known."
        self._tell_end(key, result or _interrupted(message))

    def _reattach(self, key: Key) -> None:
        """Connect to a guardian that lives without us, or look again in a moment."""
        try:
            self._attach(key, connect_to(self.folder(key), folders.CONTROL))
        except OSError:
            asyncio.get_running_loop().call_later(_CONNECT_PAUSE_S, self._settle, key)

    def _trail(self, key: Key) -> Trail:
        settings = self._settings
        return Trail(str(settings.trail_file), *key, settings.node)

    def _spec(self, key: Key, launch: Launch, before_ms: int, traceparent: str) -> Spec:
        settings = self._settings
        return Spec(
            folder=str(self.folder(key)),
            lease=key.lease,
            attempt=key.attempt,
            rank=key.rank,
            node=settings.node,
            command=list(launch.command),
            environment=self._environment(key, launch, traceparent),
            keep_on_loss=launch.keep_on_loss,
            grace_ms=launch.grace_ms,
            output_bytes_max=settings.output_bytes_max,
            start_before_ms=before_ms,
            fence_file=str(settings.fence_file),
            trail_file=str(settings.trail_file),
            bounds=settings.limits.lend(key, launch.amounts),
        )

    def _environment(self, key: Key, launch: Launch, traceparent: str) -> dict[str, str]:
        """Return what the work finds; the lease's own values win over those of the machine."""
        folder, user = self.folder(key), self._settings.limits.means.user
        inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        told = {
            "TENURE_LEASE": key.lease,
            "TENURE_ATTEMPT": str(key.attempt),
            "TENURE_RANK": str(key.rank),
            "TENURE_NODE": self._settings.node,
            "TENURE_NODE_COUNT": str(launch.node_count),
            "TENURE_NODES": ",".join(launch.nodes),
            remains.MARK: str(folder),
        }
        trace = {"TRACEPARENT": traceparent} if traceparent else {}
        machine = {**inherited, **user.environment, "TMPDIR": f"{folder}/{TMP}"}
        return {**machine, **launch.environment, **told, **trace}


def _interrupted(message: str) -> Result:
    return Result(_KILLED, "INTERRUPTED", message, 0, wall_ns())
