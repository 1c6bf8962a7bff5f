"""Limits by cgroup v2: one folder for all controllers, of which those set are enabled above it.

Killing is one write (`cgroup.kill`, Linux 5.14), else one signal a process while they are frozen.
With `memory.oom.group` the kernel ends all of the work when it ends a part of it.
"""

from __future__ import annotations

import os
from contextlib import suppress

from tenure_agent.guardian.limits import files
from tenure_agent.guardian.limits.bounds import Bounds


class Cgroup2:
    """`Group` over the unified hierarchy."""

    def __init__(self, bounds: Bounds) -> None:
        place = bounds.places[0]
        self._bounds = bounds
        self._folder = f"{place.parent}/{bounds.name}"
        self._home = place.home

    def make(self) -> None:
        """Make the folder and set what is limited."""
        files.make_folder(self._folder, self.remove)
        try:
            self._limit()
        except OSError:
            self.remove()
            raise

    def _limit(self) -> None:
        bounds, folder = self._bounds, self._folder
        if bounds.memory_bytes:
            most = max(bounds.memory_bytes, files.MEMORY_BYTES_MIN)
            files.put(f"{folder}/memory.max", str(most))
            # Absent without swap, and before Linux 4.19.
            for name, value in (("memory.swap.max", "0"), ("memory.oom.group", "1")):
                with suppress(FileNotFoundError):
                    files.put(f"{folder}/{name}", value)
        if bounds.pids:
            files.put(f"{folder}/pids.max", str(bounds.pids))
        if bounds.cpu_millis:
            quota = files.quota_us(bounds.cpu_millis)
            files.put(f"{folder}/cpu.max", f"{quota} {files.PERIOD_US}")

    def enter(self) -> None:
        """Move this process in."""
        try:
            files.put(f"{self._folder}/cgroup.procs", "0")
        except FileNotFoundError:
            # Lent to us and not as good as new, so removed by who had it before; or swept away.
            self.make()
            files.put(f"{self._folder}/cgroup.procs", "0")

    def leave(self, born: int) -> None:
        """Move this process back; what was born stays."""
        del born
        files.put(f"{self._home}/cgroup.procs", "0")

    def freeze(self) -> bool:
        """Freeze, and wait until everything stands."""
        try:
            files.put(f"{self._folder}/cgroup.freeze", "1")
            if files.wait_until(self._stands):
                return True
            self.thaw()
        except OSError:
            return False
        return False

    def _stands(self) -> bool:
        return files.figure(f"{self._folder}/cgroup.events", "frozen") == 1

    def thaw(self) -> None:
        """Let it go on."""
        files.put(f"{self._folder}/cgroup.freeze", "0")

    def kill(self) -> None:
        """Kill everything below the folder; frozen processes die of it too."""
        try:
            files.put(f"{self._folder}/cgroup.kill", "1")
        except FileNotFoundError:
            self.freeze()
            files.kill_members(self._folder)

    def exceeded(self) -> bool:
        """Say whether the kernel killed anything in it for its memory."""
        return (
            self._bounds.memory_bytes > 0
            and files.figure(f"{self._folder}/memory.events", "oom_kill") > 0
        )

    def clean(self) -> bool:
        """Say whether little is charged to it still and none was killed."""
        most = self._bounds.memory_bytes
        if not most:
            return True
        return files.is_little(f"{self._folder}/memory.current", most) and not self.exceeded()

    def empty(self) -> None:
        """Kill until nobody is in it."""
        with suppress(FileNotFoundError):
            self.kill()
        files.wait_until(lambda: not files.kill_members(self._folder))

    def discard(self) -> None:
        """Remove the folder if nobody is in it."""
        with suppress(OSError):
            os.rmdir(self._folder)

    def remove(self) -> None:
        """Remove the folder."""
        files.remove_folder(self._folder)
