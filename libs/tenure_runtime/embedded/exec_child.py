"""Becomes the program it is told to run, as the user it is told, dying with its parent.

Run as a script by `tenure_runtime.embedded.child`, never imported: a fresh interpreter may change
user and ask for a parent-death signal safely, which a forked copy of a process that has used gRPC
may not. Only the standard library is imported, and all of it before the user changes, because the
new user may be unable to read where Python lives.

    exec_child.py PARENT_PID SIGNAL UID GID PROGRAM [ARGUMENT ...]

UID and GID of -1 keep the present user. On systems without a parent-death signal (all but Linux)
the program starts without one.
"""

from __future__ import annotations

import ctypes
import os
import sys

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
_EXIT_NOT_EXECUTABLE = 126
_EXIT_NOT_FOUND = 127


def _die_with(parent_pid: int, signal_number: int) -> None:
    """Ask the kernel for `signal_number` when the parent goes; leave if it has gone already."""
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent_pid:
        sys.exit(0)


def _become(uid: int, gid: int) -> None:
    """Drop to the given user for good, supplementary groups included."""
    if gid >= 0:
        os.setgroups([gid])
        os.setgid(gid)
    if uid >= 0:
        os.setuid(uid)


def main(arguments: list[str]) -> None:
    """Change user, arrange the death signal, and become the program."""
    parent_pid, signal_number, uid, gid = (int(word) for word in arguments[:4])
    command = arguments[4:]
    _become(uid, gid)
    # A change of user clears the parent-death signal (prctl(2)), so it comes second.
    _die_with(parent_pid, signal_number)
    try:
        os.execvp(command[0], command)  # noqa: S606 - the whole purpose; no shell is wanted
    except FileNotFoundError:
        sys.stderr.write(f"{command[0]}: no such program\n")
        sys.exit(_EXIT_NOT_FOUND)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        sys.exit(_EXIT_NOT_EXECUTABLE)


if __name__ == "__main__":
    main(sys.argv[1:])
