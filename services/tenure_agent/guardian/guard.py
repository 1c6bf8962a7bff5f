"""One guardian: runs the work of one allocation, and ends it when it must end.

Decides when the work ends: by itself, on a stop (SIGTERM, grace, SIGKILL), or when the shared fence
deadline passes without renewal, whether or not an agent is there to say so. What is wanted is left
to the agent, which talks to it in small JSON messages:

    agent → guardian   {"do": "suspend" | "resume"}
                       {"do": "stop", "grace_ms": 5000, "reason": "TIME_OVER"}
    guardian → agent   {"is": "running" | "suspended", "pid": 1, "run_ms": 0}
                       {"is": "ended"}      the result is in the folder

The present state is told to whoever connects, and every change to whoever is connected. Nothing is
lost when nobody is: the folder holds the result.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
from contextlib import suppress
from typing import Any

from tenure_agent.guardian import folder as folders
from tenure_agent.guardian import trail, tree
from tenure_agent.guardian.bootclock import boot_ms, wall_ns
from tenure_agent.guardian.fencefile import FenceFile
from tenure_agent.guardian.folder import Result, Spec
from tenure_agent.guardian.launch import launch
from tenure_agent.guardian.output import BoundedOutput

MESSAGE_BYTES_MAX = 4_096
# A poll does not count suspended time, so a guardian looks at the boot clock at least this often.
_LOOK_MS_MAX = 1_000
_KILLED = 128 + signal.SIGKILL


def guard(path: str, agent: socket.socket) -> None:
    """Guard the allocation in the folder `path` until it has ended; the process ends after it.

    Does nothing when the folder is claimed by another or was voided.
    """
    os.chdir(path)
    claim = folders.claim(".")
    if claim is None:
        return
    spec = folders.read_spec(".")
    Guardian(spec, agent).run()


class Guardian:
    """The state of one guardian. Its folder is the working directory."""

    def __init__(self, spec: Spec, agent: socket.socket) -> None:
        self._spec = spec
        self._agent: socket.socket | None = agent
        self._fence = FenceFile(spec.fence_file)
        self._fence_ms = 0
        self._output = BoundedOutput(folders.OUTPUT, spec.output_bytes_max)
        self._poll = select.poll()
        self._pid = 0
        self._ended: dict[int, int] = {}
        self._reason = "EXITED"
        self._message = ""
        self._kill_at_ms: int | None = None
        self._told_to_end = False
        self._suspended = False
        self._resumed_at_ms = 0
        self._run_ms = 0

    def run(self) -> None:
        """Start the work, watch over it, and store how it ended."""
        if boot_ms() > self._spec.start_before_ms:
            self._finish(Result(None, "EXPIRED", "The command came too late.", 0, wall_ns()))
            return
        if self._past_fence():
            self._finish(Result(None, "FENCED", "Out of contact before it began.", 0, wall_ns()))
            return
        self._watch_signals()
        self._listen()
        tree.become_subreaper()
        try:
            self._pid = launch(self._spec, self._output.writer)
        except OSError as error:
            self._finish(_failed_start(self._spec, error))
            return
        self._resumed_at_ms = boot_ms()
        self._tell_state()
        self._watch()
        self._end()

    def _watch_signals(self) -> None:
        wake, self._wake_writer = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(self._wake_writer, False)
        signal.set_wakeup_fd(self._wake_writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _ignore)
        # Whoever shuts the host down asks everyone to end: pass it on, with grace.
        signal.signal(signal.SIGTERM, self._host_stops)
        self._wake = wake
        self._poll.register(wake, select.POLLIN)

    def _host_stops(self, *_: object) -> None:
        self._told_to_end = True

    def _listen(self) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.setblocking(False)
        with suppress(FileNotFoundError):
            os.unlink(folders.CONTROL)
        self._listener.bind(folders.CONTROL)
        self._listener.listen(4)
        self._poll.register(self._listener, select.POLLIN)
        self._poll.register(self._output.reader, select.POLLIN)
        if self._agent is not None:
            self._attach(self._agent)

    def _attach(self, agent: socket.socket) -> None:
        agent.setblocking(False)
        self._agent = agent
        self._poll.register(agent, select.POLLIN)

    def _watch(self) -> None:
        """Serve until the work's own process has ended, or must."""
        os.close(self._output.writer)
        while self._pid not in self._ended:
            ready = {descriptor for descriptor, _ in self._poll.poll(self._timeout_ms())}
            if self._output.reader in ready and not self._output.pump():
                self._poll.unregister(self._output.reader)
            if self._agent is not None and self._agent.fileno() in ready:
                self._hear(self._agent)
            if self._listener.fileno() in ready:
                self._accept()
            if self._wake in ready:
                with suppress(BlockingIOError):
                    os.read(self._wake, 512)
                tree.reap(self._ended)
            self._keep_deadlines()

    def _timeout_ms(self) -> int:
        deadlines = [] if self._spec.keep_on_loss else [self._fence_ms]
        if self._kill_at_ms is not None:
            deadlines.append(self._kill_at_ms)
        left = min(deadlines, default=boot_ms() + _LOOK_MS_MAX) - boot_ms()
        return max(0, min(left, _LOOK_MS_MAX))

    def _keep_deadlines(self) -> None:
        if self._pid in self._ended:
            return
        if self._told_to_end and self._kill_at_ms is None:
            self._stop(self._spec.grace_ms, "HOST_STOPS")
        if self._past_fence():
            self._reason = "FENCED"
            self._message = "Out of contact with the registry for longer than the fence time."
            self._ended.update(tree.kill_all())
        elif self._kill_at_ms is not None and boot_ms() >= self._kill_at_ms:
            self._ended.update(tree.kill_all())

    def _past_fence(self) -> bool:
        """Say whether the shared deadline has passed; it is read only when the known one has."""
        if self._spec.keep_on_loss or boot_ms() < self._fence_ms:
            return False
        self._fence_ms = self._fence.deadline_ms()
        return boot_ms() >= self._fence_ms

    def _accept(self) -> None:
        with suppress(BlockingIOError, ConnectionError):
            connection, _ = self._listener.accept()
            self._forget_agent()
            self._attach(connection)
            self._tell_state()

    def _hear(self, agent: socket.socket) -> None:
        try:
            content = agent.recv(MESSAGE_BYTES_MAX)
        except BlockingIOError:
            return
        except ConnectionError:
            content = b""
        if not content:
            self._forget_agent()
            return
        message: dict[str, Any] = json.loads(content)
        match message["do"]:
            case "suspend":
                self._suspend()
            case "resume":
                self._resume()
            case "stop":
                self._stop(message["grace_ms"], message["reason"])

    def _forget_agent(self) -> None:
        if self._agent is not None:
            self._poll.unregister(self._agent)
            self._agent.close()
            self._agent = None

    def _suspend(self) -> None:
        if not self._suspended:
            tree.pause()
            self._run_ms += boot_ms() - self._resumed_at_ms
            self._suspended = True
        self._tell_state()

    def _resume(self) -> None:
        if self._suspended:
            self._suspended = False
            self._resumed_at_ms = boot_ms()
            tree.signal_all(signal.SIGCONT)
        self._tell_state()

    def _stop(self, grace_ms: int, reason: str) -> None:
        kill_at_ms = boot_ms() + grace_ms
        first = self._kill_at_ms is None
        self._kill_at_ms = min(kill_at_ms, self._kill_at_ms or kill_at_ms)
        self._reason = "STOPPED"
        if first:
            self._message = reason
            tree.signal_all(signal.SIGTERM)
            # A paused process hears SIGTERM only when it runs.
            if self._suspended:
                self._resume()

    def _end(self) -> None:
        """See that nothing of the tree is left, then store how the work ended."""
        if not tree.reap(self._ended):
            self._ended.update(tree.kill_all())
        self._output.pump()
        run_ms = self._run_time_ms()
        code = os.waitstatus_to_exitcode(self._ended[self._pid])
        exit_code = 128 - code if code < 0 else code
        trail.append(self._spec, "end", self._pid, exit_code)
        self._finish(Result(exit_code, self._reason, self._message, run_ms, wall_ns()))

    def _run_time_ms(self) -> int:
        running_ms = 0 if self._suspended else boot_ms() - self._resumed_at_ms
        return self._run_ms + running_ms

    def _finish(self, result: Result) -> None:
        folders.write_result(".", result)
        with suppress(FileNotFoundError):
            os.unlink(folders.CONTROL)
        self._tell({"is": "ended"})

    def _tell_state(self) -> None:
        state = "suspended" if self._suspended else "running"
        self._tell({"is": state, "pid": self._pid, "run_ms": self._run_time_ms()})

    def _tell(self, message: dict[str, object]) -> None:
        """Tell the agent if there is one; one that has gone learns it from the folder."""
        if self._agent is not None:
            with suppress(BlockingIOError, ConnectionError):
                self._agent.send(json.dumps(message).encode())


def _failed_start(spec: Spec, error: OSError) -> Result:
    """Return what a shell would say: 127 for a program that is not there, 126 for others."""
    code = 127 if isinstance(error, FileNotFoundError) else 126
    program = spec.command[0]
    return Result(code, "START_FAILED", f"{program}: {error.strerror}", 0, wall_ns())


def _ignore(*_: object) -> None:
    """Be woken by a signal and do nothing more here."""
