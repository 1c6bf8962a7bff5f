"""Starts a child process that ends when this one does, and waits for its end.

Decides how a child is started, told to stop and waited for. What the child is, whether it is
restarted, and where its output goes is the caller's business.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

_WRAPPER: Final = Path(__file__).with_name("exec_child.py")
_POLL_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class RunAs:
    """The user a child runs as; `None` in its place keeps the present one."""

    name: str
    uid: int
    gid: int


def spawn(
    command: Sequence[str],
    *,
    output: IO[bytes] | int,
    run_as: RunAs | None = None,
    on_parent_death: signal.Signals = signal.SIGTERM,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Start `command` as a direct child that receives `on_parent_death` when this process ends.

    Both output streams go to `output` (a file, or `subprocess.PIPE`). The child has a session of
    its own, so Ctrl-C in a terminal reaches only us and we decide the order of the stop. Call it
    from a thread that lives as long as the child should (the main one): Linux sends the signal
    when the *thread* that started the child ends. Costs one interpreter start, some 20 ms.
    """
    uid, gid = (run_as.uid, run_as.gid) if run_as else (-1, -1)
    wrapper = [sys.executable, "-I", "-S", str(_WRAPPER)]
    facts = [str(os.getpid()), str(int(on_parent_death)), str(uid), str(gid)]
    return subprocess.Popen(  # noqa: S603 - a list, no shell; callers name the program
        [*wrapper, *facts, *command],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=dict(environment) if environment is not None else None,
        cwd=folder,
        start_new_session=True,
    )


async def ended(child: subprocess.Popen[bytes], within_s: float) -> bool:
    """Wait until the child has ended and say whether it did within `within_s` seconds."""
    deadline = asyncio.get_running_loop().time() + within_s
    while child.poll() is None:
        if asyncio.get_running_loop().time() >= deadline:
            return False
        await asyncio.sleep(_POLL_S)
    return True


async def stop(
    child: subprocess.Popen[bytes],
    steps: Sequence[tuple[signal.Signals, float]],
) -> int:
    """Send each signal in turn, waiting its seconds for the child to end; return the exit code.

    SIGKILL comes after the last step. A negative code is the number of the signal that ended it.
    """
    for number, patience_s in steps:
        if child.poll() is None:
            child.send_signal(number)
            await ended(child, patience_s)
    if child.poll() is None:
        child.kill()
    while not await ended(child, 60.0):
        pass
    code = child.returncode
    assert code is not None
    return code
