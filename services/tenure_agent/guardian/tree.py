"""All processes below this one: found, signalled, paused and killed to the last.

Decides what belongs to the work: every descendant of the guardian. The guardian is the subreaper,
so whoever double-forks or changes session or group comes back to it as a child when its parent
ends; having no child left therefore means that nothing is left.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from contextlib import suppress

_PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>
# Made whole at import, so that guardians find it warm.
_PRCTL = ctypes.CDLL(None, use_errno=True).prctl
_PRCTL.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
_RESCAN_S = 0.002
_RESCANS_MAX = 200


def become_subreaper() -> None:
    """Make orphans of the work children of this process. Raises OSError where that is unknown."""
    if _PRCTL(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), "prctl(PR_SET_CHILD_SUBREAPER)")


def descendants(root: int) -> list[int]:
    """Return the ids of all processes below `root`, parents before children.

    Cost: a few reads a process. A process that forks meanwhile may be missed; `pause` repeats.
    """
    found: list[int] = []
    pending = [root]
    while pending:
        children = _children(pending.pop())
        found += children
        pending += children
    return found


def _children(process: int) -> list[int]:
    children: list[int] = []
    # A process or a thread may vanish at any line here; its children are then someone else's.
    with suppress(FileNotFoundError, ProcessLookupError):
        for thread in os.listdir(f"/proc/{process}/task"):
            children += _children_of_thread(process, thread)
    return children


def _children_of_thread(process: int, thread: str) -> list[int]:
    try:
        with open(f"/proc/{process}/task/{thread}/children", "rb") as file:
            return [int(word) for word in file.read().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def signal_all(number: int) -> None:
    """Send a signal to every process below this one."""
    for process in descendants(os.getpid()):
        _send(process, number)


def pause() -> None:
    """Stop every process below this one, also those born while it goes through them.

    Repeats until a pass finds nobody new: a stopped process forks no more.
    """
    seen: set[int] = set()
    for _ in range(_RESCANS_MAX):
        fresh = [process for process in descendants(os.getpid()) if process not in seen]
        if not fresh:
            return
        for process in fresh:
            _send(process, signal.SIGSTOP)
        seen.update(fresh)


def kill_all() -> dict[int, int]:
    """Kill and reap every process below this one; return the wait status of each direct child.

    Returns only when none is left; a process in an uninterruptible wait makes it wait as long.
    """
    ended: dict[int, int] = {}
    while not reap(ended):
        pause()
        for process in descendants(os.getpid()):
            _send(process, signal.SIGKILL)
        if reap(ended):
            break
        time.sleep(_RESCAN_S)
    return ended


def reap(ended: dict[int, int]) -> bool:
    """Collect the children that have ended into `ended`; say whether none is left at all."""
    while True:
        try:
            process, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return True
        if process == 0:
            return False
        ended[process] = status


def _send(process: int, number: int) -> None:
    # Gone already, or no longer ours to signal (it became another user): nothing to do for us.
    with suppress(ProcessLookupError, PermissionError):
        os.kill(process, number)
