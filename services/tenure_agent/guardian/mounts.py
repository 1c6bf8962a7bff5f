"""A /tmp of its own for the work: a mount that only the work sees.

The guardian makes a mount namespace, puts the folder over /tmp and /var/tmp in it, starts the work
there and returns to the namespace of the machine. The mount ends with the last process of the work.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

PLACES = ("/tmp", "/var/tmp")  # noqa: S108 - what is covered, not what is used
_CLONE_NEWNS = 0x00020000  # <sched.h>
_MS_BIND, _MS_REC, _MS_SLAVE = 0x1000, 0x4000, 0x80000  # <sys/mount.h>
_LIBC = ctypes.CDLL(None, use_errno=True)


@contextmanager
def covered(folder: str) -> Iterator[None]:
    """Be where `folder` lies over /tmp and /var/tmp. Needs root; raises OSError.

    The working directory is the same again at the end.
    """
    machine = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    here = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _check(_LIBC.unshare(_CLONE_NEWNS), "unshare")
        try:
            # What the machine mounts later is seen; what is mounted here never leaves.
            _mount("none", "/", _MS_REC | _MS_SLAVE)
            for place in PLACES:
                if os.path.isdir(place):
                    _mount(folder, place, _MS_BIND)
            yield
        finally:
            _check(_LIBC.setns(machine, _CLONE_NEWNS), "setns")
            os.fchdir(here)
    finally:
        os.close(machine)
        os.close(here)


def _mount(source: str, target: str, flags: int) -> None:
    code = _LIBC.mount(source.encode(), target.encode(), None, ctypes.c_ulong(flags), None)
    _check(code, f"mount on {target}")


def _check(code: int, what: str) -> None:
    if code != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
