"""The folder of one allocation: its files, who owns it, and how it ended.

    claim         locked by the guardian for as long as it guards; says that it ran,
                  and how that ended: one file, because making one costs more than writing it
    control.sock  where a restarted agent finds the guardian
    output.log    what the work printed, up to a limit; made with the first byte
    work/         the work's own directory

The claim decides, once for all, whether work may begin in a folder: a guardian runs only if it gets
the lock *and* finds the claim empty; an agent that finds nobody alive voids an empty claim. So two
runs in one folder are impossible, whatever dies when.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from typing import NamedTuple

CLAIM = "claim"
CONTROL = "control.sock"
OUTPUT = "output.log"
WORK = "work"

_VOID = b"void\n"


class Result(NamedTuple):
    """How the work of one folder ended. `exit_code` is None for work that never began."""

    exit_code: int | None
    reason: str
    message: str
    run_ms: int
    wall_ns: int


def encode_result(result: Result) -> str:
    """Return a result as JSON; the common one is spelled out, which touches less memory."""
    if result.message or result.exit_code is None:
        return json.dumps(result._asdict())
    return (
        f'{{"exit_code": {result.exit_code}, "reason": "{result.reason}", "message": "", '
        f'"run_ms": {result.run_ms}, "wall_ns": {result.wall_ns}}}'
    )


def write_result(folder: str, content: str, *, durable: bool) -> None:
    """Store how the work ended, `content` being an encoded result, below what the claim says.

    One write of a line of its own: it is there whole or not at all for whoever reads it later, also
    below one that a full disk has torn. Not durable means that it survives processes but not the
    machine.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    descriptor = os.open(f"{folder}/{CLAIM}", flags, 0o600)
    try:
        os.write(descriptor, f"\n{content}\n".encode())
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_result(folder: str) -> Result | None:
    """Return how the work ended, or None when that is not known (yet)."""
    try:
        with open(f"{folder}/{CLAIM}", "rb") as file:
            last = file.read().rpartition(b"\n{")[2]
            return Result(**json.loads(b"{" + last))
    except (FileNotFoundError, TypeError, ValueError):
        return None


def take(folder: str) -> int | None:
    """Take the folder and return the descriptor that holds it, None if it is another's or void.

    The lock belongs to all processes that share the descriptor and is held until the last of them
    has closed it or ended.
    """
    descriptor = _open_claim(folder)
    if _lock(descriptor) and os.fstat(descriptor).st_size == 0:
        return descriptor
    os.close(descriptor)
    return None


def begin(claim: int) -> None:
    """Say that work begins in the folder: from here on it counts as run."""
    os.write(claim, b"%d\n" % os.getpid())


class Claim(NamedTuple):
    """What an agent learns of a folder: whether a guardian lives, and whether one ever ran."""

    alive: bool
    began: bool


def examine(folder: str) -> Claim:
    """Say who holds the folder; when nobody ever did, void it so that nobody ever will."""
    descriptor = _open_claim(folder)
    try:
        if not _lock(descriptor):
            return Claim(alive=True, began=True)
        content = os.read(descriptor, 64)
        if not content:
            os.write(descriptor, _VOID)
        return Claim(alive=False, began=content not in (b"", _VOID))
    finally:
        os.close(descriptor)


def guardian_of(folder: str) -> int:
    """Return the process id that a claim names, 0 when nobody began there."""
    try:
        with open(f"{folder}/{CLAIM}", "rb") as file:
            word = file.read(64).strip()
    except FileNotFoundError:
        return 0
    return int(word) if word.isdigit() else 0


def listen(folder: str) -> socket.socket:
    """Listen in the folder. A socket's path holds 107 bytes at most, so it goes through /proc."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        listener.setblocking(False)
        listener.bind(f"/proc/self/fd/{descriptor}/{CONTROL}")
        listener.listen(4)
    finally:
        os.close(descriptor)
    return listener


def _open_claim(folder: str) -> int:
    return os.open(f"{folder}/{CLAIM}", os.O_RDWR | os.O_CREAT, 0o600)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
