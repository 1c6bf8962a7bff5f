"""The folder of one allocation: its files, who owns it, and how it ended.

    spec.json     what to run; written by the agent before anything runs
    claim         locked by the guardian for as long as it lives; says who ran
    control.sock  where a restarted agent finds the guardian
    output.log    what the work printed, up to a limit
    result.json   how it ended; written by the guardian
    work/         the work's own directory

The claim decides, once for all, whether work may begin in a folder: a guardian runs only if it gets
the lock *and* finds the claim empty; an agent that finds nobody alive voids an empty claim. So two
runs in one folder are impossible, whatever dies when.
"""

from __future__ import annotations

import fcntl
import json
import os
from typing import Any, NamedTuple

SPEC = "spec.json"
CLAIM = "claim"
CONTROL = "control.sock"
OUTPUT = "output.log"
RESULT = "result.json"
WORK = "work"

_VOID = b"void\n"


class Spec(NamedTuple):
    """What a guardian is told. Times are in milliseconds, instants on the boot clock."""

    lease: str
    attempt: int
    rank: int
    node: str
    command: list[str]
    environment: dict[str, str]
    keep_on_loss: bool
    grace_ms: int
    output_bytes_max: int
    start_before_ms: int
    fence_file: str
    trail_file: str


class Result(NamedTuple):
    """How the work of one folder ended. `exit_code` is None for work that never began."""

    exit_code: int | None
    reason: str
    message: str
    run_ms: int
    wall_ns: int


def write_spec(folder: str, spec: Spec) -> None:
    """Write what the guardian shall do; nothing has begun in the folder yet."""
    _write(os.path.join(folder, SPEC), spec._asdict(), durable=False)


def read_spec(folder: str) -> Spec:
    """Read what the guardian shall do. Raises OSError or ValueError when it is not there whole."""
    return Spec(**_read(os.path.join(folder, SPEC)))


def write_result(folder: str, result: Result) -> None:
    """Store how the work ended, in one step and durably, so that it survives everyone."""
    _write(os.path.join(folder, RESULT), result._asdict(), durable=True)


def read_result(folder: str) -> Result | None:
    """Return how the work ended, or None when that is not known (yet)."""
    try:
        return Result(**_read(os.path.join(folder, RESULT)))
    except FileNotFoundError:
        return None


def claim(folder: str) -> int | None:
    """Take the folder for this process and return the descriptor that holds it, None if taken.

    The lock is held until the descriptor is closed, by whatever end of the process.
    """
    descriptor = _open_claim(folder)
    if not _lock(descriptor) or os.fstat(descriptor).st_size:
        os.close(descriptor)
        return None
    os.write(descriptor, f"{os.getpid()}\n".encode())
    return descriptor


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


def _open_claim(folder: str) -> int:
    return os.open(os.path.join(folder, CLAIM), os.O_RDWR | os.O_CREAT, 0o600)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(path: str) -> Any:
    with open(path, "rb") as file:
        return json.loads(file.read())


def _write(path: str, value: dict[str, Any], *, durable: bool) -> None:
    temporary = f"{path}.{os.getpid()}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        content = memoryview(json.dumps(value).encode())
        while content:
            content = content[os.write(descriptor, content) :]
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(temporary, path)
