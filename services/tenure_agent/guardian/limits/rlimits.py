"""Limits where no cgroup can be made: what a process may have, and a look at the tree.

Data (RLIMIT_DATA) holds each single process to the memory of the lease, and processes of the user
(RLIMIT_NPROC) are held to those that were there when the agent started plus those allowed; neither
is a bound on the tree, so the guardian adds up the memory of the tree about twice a second and says
when it is too much. Processor time is not held.

The limits are set on this process before the work starts and taken back afterwards, so that the
work never runs without them. Only the soft one: an ordinary user could not take the hard one back.
"""

from __future__ import annotations

import os
import resource
import time
from contextlib import suppress

from tenure_agent.guardian import tree
from tenure_agent.guardian.limits.bounds import Bounds

# The guardian itself has to start the work within the limit.
_MEMORY_BYTES_MIN = 32 * 1024 * 1024
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_KIB = 1_024
_TRY_S = 0.000_5
_TRIES_MAX = 200


class Rlimits:
    """`Group` without a group."""

    def __init__(self, bounds: Bounds) -> None:
        self._memory_bytes = bounds.memory_bytes
        self._wanted: dict[int, int] = {}
        if bounds.memory_bytes:
            self._wanted[resource.RLIMIT_DATA] = max(bounds.memory_bytes, _MEMORY_BYTES_MIN)
        if bounds.pids:
            self._wanted[resource.RLIMIT_NPROC] = bounds.pids
        self._before: dict[int, tuple[int, int]] = {}
        self._exceeded = False

    def make(self) -> None:
        """Nothing is made."""

    def enter(self) -> None:
        """Lower what what this process starts inherits."""
        for kind, wanted in self._wanted.items():
            soft, hard = resource.getrlimit(kind)
            self._before[kind] = (soft, hard)
            resource.setrlimit(kind, (_least(wanted, hard), hard))

    def leave(self, born: int) -> None:
        """Take it back here, and make it final for what was born."""
        for kind, before in self._before.items():
            resource.setrlimit(kind, before)
            most = _least(self._wanted[kind], before[1])
            if born:
                _limit(born, kind, most)

    def freeze(self) -> bool:
        """Leave it to signals."""
        return False

    def thaw(self) -> None:
        """Leave it to signals."""

    def kill(self) -> None:
        """Leave it to signals."""

    def exceeded(self) -> bool:
        """Say whether the tree was ever found to have more memory than was given."""
        if self._memory_bytes and not self._exceeded:
            self._exceeded = self._too_much()
        return self._exceeded

    def _too_much(self) -> bool:
        """Add up private pages, which is quick; only if they are too many, what each shares too."""
        processes = tree.descendants(os.getpid())
        if sum(map(_private_bytes, processes)) <= self._memory_bytes:
            return False
        return sum(map(_proportional_bytes, processes)) > self._memory_bytes

    def clean(self) -> bool:
        """Nothing is kept."""
        return True

    def empty(self) -> None:
        """Nothing can be found by it."""

    def discard(self) -> None:
        """Nothing is there."""

    def remove(self) -> None:
        """Nothing is there."""


def _limit(process: int, kind: int, most: int) -> None:
    """Set both limits of a process that was just started, unless it has ended.

    Started as another user, it is the user's, and so open to us without privilege, only a moment
    after the call that starts it has returned: the kernel changes its ids last.
    """
    for attempt in range(_TRIES_MAX):
        try:
            resource.prlimit(process, kind, (most, most))
        except ProcessLookupError:
            return
        except PermissionError:
            if attempt == _TRIES_MAX - 1:
                raise
            time.sleep(_TRY_S)
        else:
            return


def _least(wanted: int, hard: int) -> int:
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)


def _private_bytes(process: int) -> int:
    """Return the resident memory of a process that no file is behind."""
    with suppress(OSError), open(f"/proc/{process}/statm", "rb") as file:
        words = file.read().split()
        return (int(words[1]) - int(words[2])) * _PAGE_BYTES
    return 0


def _proportional_bytes(process: int) -> int:
    """Return the private memory of a process, what it shares with forks of it counted in parts."""
    with suppress(OSError), open(f"/proc/{process}/smaps_rollup", "rb") as file:
        for line in file:
            if line.startswith(b"Pss_Anon:"):
                return int(line.split()[1]) * _KIB
    return 0
