"""Becomes the work: from a forked copy of the guardian to the lease's command.

Decides what a process of a lease starts with: a session of its own, its own directory, its
environment and nothing else, default signal handling, its output in the guardian's pipe.
"""

from __future__ import annotations

import os
import signal
from typing import NoReturn

from tenure_agent.guardian import folder as folders
from tenure_agent.guardian import trail, tree
from tenure_agent.guardian.folder import Spec

# Python ignores these, and what is ignored stays so across exec.
_RESTORED = (
    signal.SIGPIPE,
    signal.SIGXFSZ,
    signal.SIGCHLD,
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
)


def launch(spec: Spec, output: int) -> int:
    """Start the command and return its process id once it *is* the command.

    Raises OSError with the reason of a failed start: no such program or directory, no permission,
    no process or memory left.
    """
    os.makedirs(folders.WORK, mode=0o700, exist_ok=True)
    guardian = os.getpid()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become(spec, output, writer, guardian)
    os.close(writer)
    # The pipe closes by itself when the command takes the place of our code.
    failure = os.read(reader, 64)
    os.close(reader)
    if not failure:
        return pid
    os.waitpid(pid, 0)
    trail.append(spec, "end", pid)
    code = int(failure)
    raise OSError(code, os.strerror(code))


def _become(spec: Spec, output: int, failures: int, guardian: int) -> NoReturn:
    try:
        signal.set_wakeup_fd(-1)
        for number in _RESTORED:
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        # The last resort: if the guardian is killed, the work does not go on unguarded.
        tree.die_with_parent(guardian)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        trail.append(spec, "start", os.getpid())
        os.chdir(folders.WORK)
        os.execvpe(spec.command[0], spec.command, spec.environment)  # noqa: S606 - a list, no shell
    except OSError as error:
        os.write(failures, str(error.errno).encode())
    finally:
        os._exit(127)
