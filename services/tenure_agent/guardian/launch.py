"""Starts the lease's command from its guardian.

Decides what a process of a lease starts with: a session of its own, its own directory, its
environment and nothing else, default signal handling, no input, its output in the guardian's pipe.

Uses posix_spawn: the guardian is a copy of a Python process, and copying it once more for a child
that only execs would cost more than all the rest (docs/adr/0082).
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Mapping

from tenure_agent.guardian.bootclock import wall_ns
from tenure_agent.guardian.folder import Result
from tenure_agent.guardian.spec import Spec

# Python ignores these, or we do, and what is ignored stays so across exec.
_RESTORED = (
    signal.SIGPIPE,
    signal.SIGXFSZ,
    signal.SIGCHLD,
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
)
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"


def find_program(name: str, environment: Mapping[str, str], folder: str) -> str:
    """Return the path of a program as a shell in `folder` with that environment would find it.

    Raises FileNotFoundError when there is none, PermissionError when it may not be run.
    """
    if "/" in name:
        return name
    forbidden = False
    for place in (environment.get("PATH") or _DEFAULT_PATH).split(":"):
        path = f"{place or '.'}/{name}"
        found = path if path.startswith("/") else f"{folder}/{path}"
        if os.path.isfile(found):
            if os.access(found, os.X_OK):
                return path
            forbidden = True
    code = errno.EACCES if forbidden else errno.ENOENT
    raise OSError(code, os.strerror(code))


def locate(spec: Spec, work: str) -> str | OSError:
    """Return where the command's program is, or why it cannot be run."""
    try:
        return find_program(spec.command[0], spec.environment, work)
    except OSError as error:
        return error


def launch(
    program: str,
    command: list[str],
    environment: Mapping[str, str],
    output: int,
    *,
    as_real_user: bool = False,
) -> int:
    """Start the command in the working directory; return its process id once it *is* the command.

    `as_real_user` has it run with the real ids of this process in place of the effective ones.
    Raises OSError with the reason of a failed start.
    """
    return os.posix_spawn(
        program,
        command,
        environment,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, output, 1),
            (os.POSIX_SPAWN_DUP2, output, 2),
        ],
        resetids=as_real_user,
        setsid=True,
        setsigmask=(),
        setsigdef=_RESTORED,
    )


def failed_start(spec: Spec, error: OSError) -> Result:
    """Return what a shell would say: 127 for a program that is not there, 126 for others."""
    code = 127 if isinstance(error, FileNotFoundError) else 126
    message = f"{spec.command[0][:200]}: {os.strerror(error.errno or 0)}"
    return Result(code, "START_FAILED", message, 0, wall_ns())
