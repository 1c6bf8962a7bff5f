"""Processes that outlive the one that started them, and are found again by their folder.

Each has a folder with `process.json`: its marks and, once it runs, its process id with the time
at which the kernel started it, so that an id used again is never taken for it. A crash between the
start and the writing of the id is covered by a mark in the process's environment. Linux only.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final

from tenure_runtime.rpc.identity import write_private

FILE: Final = "process.json"
MARK: Final = "TENURE_DETACHED_MARK"
_PROC: Final = Path("/proc")

_OWN_CHILDREN: Final[dict[int, subprocess.Popen[bytes]]] = {}
"""Those that this very process started: only it can reap them, whoever asks."""


@dataclass(frozen=True, slots=True)
class Detached:
    """One process: its mark (unique for ever), what else is to be remembered, and its id."""

    mark: str
    facts: Mapping[str, str] = field(default_factory=dict)
    pid: int = 0
    started_ticks: int = 0
    ending_s: float = 0.0
    asleep: bool = False

    @property
    def began(self) -> bool:
        """Say whether it is known to have been started."""
        return self.pid > 0


class DetachedProcesses:
    """The detached processes below one folder, a folder each, named by its mark."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def folder(self, mark: str) -> Path:
        """Return the folder of a process."""
        return self._folder / mark

    def start(
        self, mark: str, facts: Mapping[str, str], command: Sequence[str], env: Mapping[str, str]
    ) -> Detached:
        """Start a process once for its mark; a repeat returns what there is, ended or not.

        Both output streams go to `output.log` in its folder.
        """
        folder = self.folder(mark)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (folder / "lock").open("w") as lock:
            # Two that start the same at once: the second finds what the first has started.
            fcntl.flock(lock, fcntl.LOCK_EX)
            known = self.read(mark)
            if known is not None and known.began:
                return known
            return self._start(Detached(mark, dict(facts)), folder, command, env)

    def _start(
        self, process: Detached, folder: Path, command: Sequence[str], env: Mapping[str, str]
    ) -> Detached:
        self._write(process)
        with (folder / "output.log").open("ab") as output:
            child = subprocess.Popen(  # noqa: S603 - a list, no shell; callers name the program
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**env, MARK: process.mark},
                start_new_session=True,
                cwd=folder,
            )
        _OWN_CHILDREN[child.pid] = child
        process = replace(process, pid=child.pid, started_ticks=_started_ticks(child.pid) or 0)
        self._write(process)
        return process

    def read(self, mark: str) -> Detached | None:
        """Return what is known of a process, found again if it was never written down."""
        try:
            text = (self.folder(mark) / FILE).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        process = Detached(**json.loads(text))
        if process.began:
            return process
        pid = _find(mark)
        if pid:
            process = replace(process, pid=pid, started_ticks=_started_ticks(pid) or 0)
            self._write(process)
        return process

    def all(self) -> list[Detached]:
        """Return every process that has a folder, by mark."""
        if not self._folder.is_dir():
            return []
        found = [self.read(path.name) for path in sorted(self._folder.iterdir())]
        return [process for process in found if process is not None]

    def runs(self, process: Detached) -> bool:
        """Say whether a process has not ended."""
        child = _OWN_CHILDREN.get(process.pid)
        if child is not None and child.poll() is not None:
            del _OWN_CHILDREN[process.pid]
            return False
        ticks = _started_ticks(process.pid) if process.began else None
        return ticks is not None and ticks == process.started_ticks

    def suspend(self, process: Detached) -> None:
        """Have a process and all that it started stand still; no error when it has ended."""
        if self.runs(process):
            for pid in _tree(process):
                _signal(pid, signal.SIGSTOP)
            self._write(replace(process, asleep=True))

    def resume(self, process: Detached) -> None:
        """Have a process and all that it started go on."""
        if self.runs(process):
            for pid in reversed(_tree(process)):
                _signal(pid, signal.SIGCONT)
            self._write(replace(process, asleep=False))

    def stands_still(self, process: Detached) -> bool:
        """Say whether a process sleeps because it was suspended here."""
        return process.asleep and self.runs(process) and _fields(process.pid)[0] == "T"

    def end(self, process: Detached, *, grace_s: float) -> None:
        """Ask a process to end; if it was asked more than `grace_s` ago, make it end."""
        if not self.runs(process):
            return
        now_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        forced = bool(process.ending_s) and now_s - process.ending_s > grace_s
        if not process.ending_s:
            process = replace(process, ending_s=now_s)
            self._write(process)
        _signal(process.pid, signal.SIGKILL if forced else signal.SIGTERM)
        if self.stands_still(process):
            # Asleep it would never hear of it.
            self.resume(process)

    def _write(self, process: Detached) -> None:
        path = self.folder(process.mark) / FILE
        write_private(path, json.dumps(asdict(process)) + "\n")


def end_all(folder: Path, *, grace_s: float) -> int:
    """End every process below a folder and wait for that; return how many there were. Blocks."""
    processes = DetachedProcesses(folder)
    running = [process for process in processes.all() if processes.runs(process)]
    for process in running:
        processes.end(process, grace_s=grace_s)
    deadline = time.monotonic() + grace_s
    while any(processes.runs(process) for process in running):
        if time.monotonic() > deadline:
            for process in running:
                with suppress(ProcessLookupError):
                    if processes.runs(process):
                        os.kill(process.pid, signal.SIGKILL)
        time.sleep(0.02)  # a command that stops things waits for their end
    return len(running)


def _started_ticks(pid: int) -> int | None:
    """Return when the kernel started a process, None when it is gone or only waits to be reaped."""
    fields = _fields(pid)
    return None if fields[0] in ("Z", "X") else int(fields[19])


def _fields(pid: int) -> list[str]:
    """Return what the kernel says of a process after its name; of one that is gone, state X."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ["X"]
    return stat.rpartition(")")[2].split()


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _tree(process: Detached) -> list[int]:
    """Return a process and all that it started, it first; what left its tree is not among them."""
    parents = {
        int(entry.name): int(fields[1])
        for entry in _PROC.iterdir()
        if entry.name.isdecimal() and len(fields := _fields(int(entry.name))) > 1
    }
    found = [process.pid]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def _find(mark: str) -> int:
    """Return the process with a mark whose parent does not have it, 0 when there is none.

    What a process starts has its environment too; the first of them has another's parent.
    """
    wanted = f"{MARK}={mark}".encode()
    marked: dict[int, int] = {}
    for entry in _PROC.iterdir():
        if not entry.name.isdecimal():
            continue
        with suppress(OSError, ValueError, IndexError):
            if wanted not in (entry / "environ").read_bytes().split(b"\0"):
                continue
            stat = (entry / "stat").read_text(encoding="ascii", errors="replace")
            fields = stat.rpartition(")")[2].split()
            if fields[0] not in ("Z", "X"):
                marked[int(entry.name)] = int(fields[1])
    roots = [pid for pid, parent in marked.items() if parent not in marked]
    return min(roots, key=lambda pid: _started_ticks(pid) or 0, default=0)
