"""One guardian: runs the work of one allocation, and ends it when it must end.

Decides when the work ends: by itself, on a stop (SIGTERM, grace, SIGKILL), or when the shared fence
deadline passes without renewal, whether or not an agent is there to say so. What is wanted is left
to the agent, which talks to it in small JSON messages:

    agent → guardian   {"do": "suspend" | "resume"}
                       {"do": "stop", "grace_ms": 5000, "reason": "TIME_OVER"}
    guardian → agent   {"is": "running" | "suspended", "run_ms": 0}
                       {"is": "ended", "result": {…}, "spare": true | false}

The present state is told to whoever connects, and every change to whoever is connected. Nothing is
lost when nobody is: the folder holds the result.

A guardian is made in the warm process and runs in a fork of it. What can be done before the fork is
done when it is made: there memory is warm, while each page that the fork touches is copied first. A
process whose work is over may be the next one's guardian (`spare`, docs/adr/0084).
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
from tenure_agent.guardian import tree
from tenure_agent.guardian.bootclock import boot_ms, wall_ns
from tenure_agent.guardian.confinement import Confinement
from tenure_agent.guardian.fencefile import FenceFile
from tenure_agent.guardian.folder import Result
from tenure_agent.guardian.launch import failed_start, locate
from tenure_agent.guardian.output import BoundedOutput
from tenure_agent.guardian.spec import Spec
from tenure_agent.guardian.trail import Trail, now

MESSAGE_BYTES_MAX = 4_096
# A poll does not count suspended time, so a guardian looks at the boot clock at least this often.
_LOOK_MS_MAX = 1_000
# Work that is over at once needs no message that it runs: its end says that too.
_FIRST_LOOK_MS = 3
_NEVER_MS = 1 << 62


class Guardian:
    """The state of one guardian. `run` it in a process of its own, `let_go` of it in the other."""

    def __init__(self, spec: Spec, claim: int, agent: socket.socket) -> None:
        self._spec = spec
        self._claim = claim
        self._agent: socket.socket | None = agent
        self._lender = agent
        self._trail = Trail(spec.trail_file, spec.lease, spec.attempt, spec.rank, spec.node)
        self._confinement = Confinement(spec)
        self._program = locate(spec, f"{spec.folder}/{folders.WORK}")
        self._fence = FenceFile(spec.fence_file)
        self._fence_ms = 0
        self._listener = folders.listen(spec.folder)
        self._output = BoundedOutput(folders.OUTPUT, spec.output_bytes_max)
        self._poll = select.poll()
        self._poll.register(self._listener, select.POLLIN)
        self._poll.register(self._output.reader, select.POLLIN)
        self._attach(agent)
        self._pid = 0
        self._pid_descriptor = -1
        self._again = False
        self._spare = False
        self._ended: dict[int, int] = {}
        self._reason = "EXITED"
        self._message = ""
        self._kill_at_ms: int | None = None
        self._told_to_end = False
        self._suspended = False
        self._resumed_at_ms = 0
        self._run_ms = 0

    def let_go(self) -> None:
        """Close everything here: it lives on in the process that runs the guardian."""
        for descriptor in (self._claim, self._output.reader, self._output.writer):
            os.close(descriptor)
        self._fence.close()
        self._listener.close()
        if self._agent is not None:
            self._agent.close()

    def run(self, *, again: bool) -> bool:
        """Start the work, watch over it, store how it ended; say if the process is free for more.

        It is when `again` allows it, the work ended by itself and the agent heard all that.
        """
        self._again = again
        folders.begin(self._claim)
        refusal = self._refusal()
        if refusal is not None:
            self._finish(refusal)
            return False
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # Whoever shuts the host down asks everyone to end: pass it on, with grace.
        signal.signal(signal.SIGTERM, self._host_stops)
        tree.become_subreaper()
        try:
            self._start()
        except OSError as error:
            self._finish(failed_start(self._spec, error))
            return False
        self._watch()
        self._end()
        return self._spare

    def leave(self) -> socket.socket | None:
        """Close all that was this lease's, after `run`; return the connection to the agent."""
        os.chdir("/")
        for descriptor in (self._pid_descriptor, self._output.reader, self._claim):
            os.close(descriptor)
        self._output.close()
        self._fence.close()
        self._listener.close()
        return self._agent

    def _refusal(self) -> Result | None:
        """Return why the work must not begin, if so."""
        if boot_ms() > self._spec.start_before_ms:
            return Result(None, "EXPIRED", "The command came too late.", 0, wall_ns())
        if self._past_fence():
            return Result(None, "FENCED", "Out of contact before it began.", 0, wall_ns())
        return None

    def _host_stops(self, *_: object) -> None:
        self._told_to_end = True

    def _start(self) -> None:
        spec = self._spec
        if isinstance(self._program, OSError):
            raise self._program
        began = now()
        os.chdir(f"{spec.folder}/{folders.WORK}")
        self._pid = self._confinement.launch(self._program, self._output.writer)
        os.chdir(spec.folder)
        self._resumed_at_ms = began.boot_ns // 1_000_000
        self._trail.append("start", self._pid, began)
        os.close(self._output.writer)
        self._pid_descriptor = os.pidfd_open(self._pid)
        self._poll.register(self._pid_descriptor, select.POLLIN)

    def _attach(self, agent: socket.socket) -> None:
        agent.setblocking(False)
        self._agent = agent
        self._poll.register(agent, select.POLLIN)

    def _watch(self) -> None:
        """Serve until the work's own process has ended, or must."""
        told = False
        while self._pid not in self._ended:
            ready = {descriptor for descriptor, _ in self._poll.poll(self._timeout_ms(told))}
            if self._output.reader in ready and not self._output.pump():
                self._poll.unregister(self._output.reader)
            if self._agent is not None and self._agent.fileno() in ready:
                self._hear(self._agent)
            if self._listener.fileno() in ready:
                self._accept()
            tree.reap(self._ended)
            if not told and self._pid not in self._ended:
                self._tell_state()
            told = True
            self._keep_deadlines()

    def _timeout_ms(self, told: bool) -> int:
        deadline_ms = boot_ms() + (_LOOK_MS_MAX if told else _FIRST_LOOK_MS)
        if not self._spec.keep_on_loss:
            deadline_ms = min(deadline_ms, self._fence_ms)
        if self._kill_at_ms is not None:
            deadline_ms = min(deadline_ms, self._kill_at_ms)
        return max(0, deadline_ms - boot_ms())

    def _keep_deadlines(self) -> None:
        if self._pid in self._ended:
            return
        if self._told_to_end and self._kill_at_ms is None:
            self._stop(self._spec.grace_ms, "HOST_STOPS")
        if self._past_fence():
            self._reason = "FENCED"
            self._message = "Out of contact with the registry for longer than the fence time."
            self._kill_all()
        elif boot_ms() >= (self._kill_at_ms or _NEVER_MS) or self._confinement.exceeded():
            self._kill_all()

    def _kill_all(self) -> None:
        self._ended.update(self._confinement.kill_all())

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
            self._confinement.pause()
            self._run_ms += boot_ms() - self._resumed_at_ms
            self._suspended = True
            self._trail.append("suspend", self._pid, now())
        self._tell_state()

    def _resume(self, event: str = "resume") -> None:
        if self._suspended:
            self._suspended = False
            self._trail.append(event, self._pid, now())
            self._resumed_at_ms = boot_ms()
            self._confinement.resume()
        self._tell_state()

    def _stop(self, grace_ms: int, reason: str) -> None:
        kill_at_ms = boot_ms() + grace_ms
        if self._kill_at_ms is None:
            self._kill_at_ms = kill_at_ms
            self._reason, self._message = "STOPPED", reason
            tree.signal_all(signal.SIGTERM)
            # A paused process hears SIGTERM only when it runs: for its grace, beside what was
            # booked meanwhile. The trail tells that from work that was given its capacity back.
            if self._suspended:
                self._resume("wake")
        self._kill_at_ms = min(kill_at_ms, self._kill_at_ms)

    def _end(self) -> None:
        """See that nothing of the tree is left, then store how the work ended."""
        alone = tree.reap(self._ended)
        if not alone:
            self._kill_all()
        ended = now()
        self._output.pump()
        code = os.waitstatus_to_exitcode(self._ended[self._pid])
        exit_code = 128 - code if code < 0 else code
        if self._reason == "EXITED" and self._confinement.was_exceeded():
            self._reason, self._message = "OUT_OF_MEMORY", "It used more memory than it was given."
            exit_code = 128 + signal.SIGKILL
        self._trail.append("end", self._pid, ended, exit_code)
        run_ms = self._run_time_ms()
        plain = alone and self._reason == "EXITED" and not self._told_to_end
        self._spare = self._again and plain
        self._finish(Result(exit_code, self._reason, self._message, run_ms, ended.wall_ns))

    def _run_time_ms(self) -> int:
        running_ms = 0 if self._suspended else boot_ms() - self._resumed_at_ms
        return self._run_ms + running_ms

    def _finish(self, result: Result) -> None:
        """Store the result and tell it.

        An agent that is there makes it durable by its report; without one this file has to survive.
        """
        self._confinement.remove(lent=self._agent is self._lender)
        content = folders.encode_result(result)
        folders.write_result(self._spec.folder, content, durable=False)
        spare = "true" if self._spare else "false"
        if not self._tell(f'{{"is": "ended", "result": {content}, "spare": {spare}}}'):
            self._spare = False
            self._confinement.remove(lent=False)
            folders.write_result(self._spec.folder, content, durable=True)

    def _tell_state(self) -> None:
        state = "suspended" if self._suspended else "running"
        self._tell(f'{{"is": "{state}", "run_ms": {self._run_time_ms()}}}')

    def _tell(self, message: str) -> bool:
        """Tell the agent and say whether it was there; one that has gone reads the folder."""
        if self._agent is None:
            return False
        try:
            self._agent.send(message.encode())
        except (BlockingIOError, ConnectionError):
            return False
        return True
