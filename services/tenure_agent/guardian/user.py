"""Runs the work as another user than the guardian, which stays root.

The work is started by posix_spawn, which can only reset effective ids to the real ones
(POSIX_SPAWN_RESETIDS). So the guardian takes the user's *real* ids for the length of that call and
keeps its effective ones; the exec of the work then makes all of the work's ids the user's and takes
every capability away. For that moment, below a millisecond, other processes of the same user may
signal the guardian (never trace it); killed in it, it is a guardian that was killed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


@contextmanager
def real_ids(user: Sequence[int]) -> Iterator[None]:
    """Have the real ids of `user`: its id, its group's, those of further groups. Needs root.

    Raises OSError; then nothing may be started.
    """
    uid, gid, *groups = user
    before = os.getgroups()
    try:
        os.setgroups(groups or [gid])
        os.setresgid(gid, -1, -1)
        os.setresuid(uid, -1, -1)
        yield
    finally:
        os.setresuid(0, 0, 0)
        os.setresgid(0, 0, 0)
        os.setgroups(before)
