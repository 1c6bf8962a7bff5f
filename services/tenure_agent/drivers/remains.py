"""What is left of allocations: processes whose guardian was killed, and folders of ended ones."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

MARK: Final = "TENURE_ALLOCATION_DIR"
"""Environment variable of all work: its folder, which no other allocation shares."""

# What is this young may have begun after the living were listed.
_FRESH_S: Final = 60.0
_PASS_S: Final = 0.005
_PASSES_MAX: Final = 200


def kill(folder: str) -> None:
    """Kill every process that carries the mark of the allocation in `folder` in its environment.

    Only for work whose guardian is gone: its own process was killed with the guardian, but those it
    had started were not. Repeats until none is found. Cost: a read of /proc a process.
    """
    for _ in range(_PASSES_MAX):
        found = list(_marked(f"{MARK}={folder}".encode()))
        if not found:
            return
        for process in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        time.sleep(_PASS_S)


def _marked(mark: bytes) -> Iterator[int]:
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        # Processes end while we look, and others are not ours to read.
        with suppress(OSError):
            content = Path("/proc", entry.name, "environ").read_bytes()
            if mark in content.split(b"\0"):
                yield int(entry.name)


def remove(folder: Path) -> None:
    """Remove the folder of an allocation that is over."""
    shutil.rmtree(folder, ignore_errors=True)


def prune(allocations: Path, living: frozenset[str], *, kept_max: int, kept_s: float) -> int:
    """Remove folders of ended allocations beyond `kept_max`, and those older than `kept_s`.

    `living` are names never to be touched; nor is what changed within the last minute. Returns how
    many were removed.
    """
    ended = [
        (entry.stat().st_mtime, Path(entry.path))
        for entry in os.scandir(allocations)
        if entry.name not in living
    ]
    now = time.clock_gettime(time.CLOCK_REALTIME)
    ended = sorted((each for each in ended if each[0] < now - _FRESH_S), reverse=True)
    removed = [
        path for index, (when, path) in enumerate(ended) if index >= kept_max or when < now - kept_s
    ]
    for path in removed:
        remove(path)
    return len(removed)


def turn_trail(trail: Path, *, bytes_max: int) -> None:
    """Put a trail that has grown beyond `bytes_max` aside, in place of the one put aside before.

    Guardians open it anew for each line, so none is lost.
    """
    with suppress(FileNotFoundError):
        if trail.stat().st_size > bytes_max:
            trail.replace(trail.with_suffix(".1.jsonl"))
