"""Small reads and writes of control files, and what both versions of cgroups do alike."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress

_PASS_S = 0.002
_PASSES_MAX = 1_000
_READ_BYTES = 65_536
# Below this a process could not even be started.
MEMORY_BYTES_MIN = 4 * 1024 * 1024
PERIOD_US = 100_000
_QUOTA_US_MIN = 1_000


def put(path: str, value: str) -> None:
    """Write a control file. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, value.encode())
    finally:
        os.close(descriptor)


def get(path: str) -> bytes:
    """Read a control file; what is longer than 64 KiB is cut. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, _READ_BYTES)
    finally:
        os.close(descriptor)


def figure(path: str, name: str) -> int:
    """Return the figure that stands behind `name` in a control file, 0 when there is none."""
    try:
        words = get(path).split()
        return int(words[words.index(name.encode()) + 1])
    except (OSError, ValueError, IndexError):
        return 0


def is_little(path: str, bytes_max: int) -> bool:
    """Say whether the amount in a control file is at most a sixteenth of `bytes_max`."""
    try:
        return int(get(path)) <= bytes_max >> 4
    except (OSError, ValueError):
        return False


def quota_us(cpu_millis: int) -> int:
    """Return the processor time within each period of 100 ms; the system takes 1 ms at least."""
    return max(_QUOTA_US_MIN, cpu_millis * PERIOD_US // 1_000)


def make_folder(folder: str, remove: Callable[[], None]) -> None:
    """Make a group's folder, in place of one that a guardian left which is no more."""
    try:
        os.mkdir(folder, mode=0o755)
    except FileExistsError:
        remove()
        os.mkdir(folder, mode=0o755)


def remove_folder(folder: str) -> None:
    """Remove a group and what work made below it; its last processes may still be on their way."""
    for attempt in range(_PASSES_MAX):
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            return
        except OSError:
            if attempt == _PASSES_MAX - 1:
                raise
            _remove_below(folder)
            time.sleep(_PASS_S)
        else:
            return


def _remove_below(folder: str) -> None:
    for parent, names, _ in os.walk(folder, topdown=False):
        for name in names:
            with suppress(OSError):
                os.rmdir(f"{parent}/{name}")


def kill_members(folder: str) -> bool:
    """Send SIGKILL to each process of a group; say whether there was any."""
    found = False
    with suppress(FileNotFoundError):
        for word in get(f"{folder}/cgroup.procs").split():
            found = True
            # Gone already; or 0: of another process namespace, which is not ours to signal.
            with suppress(ProcessLookupError, PermissionError):
                if int(word):
                    os.kill(int(word), signal.SIGKILL)
    return found


def wait_until(true: Callable[[], bool], looks_max: int = 500) -> bool:
    """Look every 2 ms until `true()`; say whether it came."""
    for _ in range(looks_max):
        if true():
            return True
        time.sleep(_PASS_S)
    return False
