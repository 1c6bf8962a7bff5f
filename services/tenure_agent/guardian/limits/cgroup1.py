"""Limits by cgroup v1: a folder a controller, of those that the bounds name.

A guardian enters as a single thread (`tasks`, not `cgroup.procs`): moving oneself alone takes no
lock that all processes of the machine share, which costs milliseconds of waiting.

The freezer of v1 holds what is in it so fast that SIGKILL waits, so killing ends with a thaw.
"""

from __future__ import annotations

import os
from contextlib import suppress

from tenure_agent.guardian.limits import files
from tenure_agent.guardian.limits.bounds import Bounds


class Cgroup1:
    """`Group` over the hierarchies of v1."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._folders = {
            place.controller: f"{place.parent}/{bounds.name}" for place in bounds.places
        }
        self._homes = [place.home for place in bounds.places]

    def make(self) -> None:
        """Make a folder in each hierarchy."""
        try:
            for controller, folder in self._folders.items():
                files.make_folder(folder, self.remove)
                self._limit(controller, folder)
        except OSError:
            self.remove()
            raise

    def _limit(self, controller: str, folder: str) -> None:
        bounds = self._bounds
        match controller:
            case "memory":
                most = str(max(bounds.memory_bytes, files.MEMORY_BYTES_MIN))
                files.put(f"{folder}/memory.limit_in_bytes", most)
                # Where swap is accounted for, it is no way around the limit.
                with suppress(OSError):
                    files.put(f"{folder}/memory.memsw.limit_in_bytes", most)
            case "pids":
                files.put(f"{folder}/pids.max", str(bounds.pids))
            case "cpu":
                quota = files.quota_us(bounds.cpu_millis)
                files.put(f"{folder}/cpu.cfs_period_us", str(files.PERIOD_US))
                files.put(f"{folder}/cpu.cfs_quota_us", str(quota))

    def enter(self) -> None:
        """Move this process, which has one thread, into each folder."""
        try:
            self._enter()
        except FileNotFoundError:
            # Lent to us and not as good as new, so removed by who had it before; or swept away.
            self.leave(0)
            self.make()
            self._enter()

    def _enter(self) -> None:
        for folder in self._folders.values():
            files.put(f"{folder}/tasks", "0")

    def leave(self, born: int) -> None:
        """Move this process back; what was born stays."""
        del born
        for home in self._homes:
            files.put(f"{home}/tasks", "0")

    def freeze(self) -> bool:
        """Freeze by the freezer, if there is one."""
        folder = self._folders.get("freezer")
        if folder is None:
            return False
        state = f"{folder}/freezer.state"

        def frozen() -> bool:
            # Written anew each time: it takes those that it could not hold before.
            files.put(state, "FROZEN")
            return files.get(state).strip() == b"FROZEN"

        try:
            if files.wait_until(frozen):
                return True
            files.put(state, "THAWED")
        except OSError:
            return False
        return False

    def thaw(self) -> None:
        """Let it go on."""
        if "freezer" in self._folders:
            files.put(f"{self._folders['freezer']}/freezer.state", "THAWED")

    def kill(self) -> None:
        """Freeze, send, thaw: nobody forks away meanwhile. Without a freezer nothing is done."""
        if self.freeze():
            files.kill_members(self._folders["freezer"])
            self.thaw()

    def exceeded(self) -> bool:
        """Say whether the kernel killed anything in it for its memory."""
        folder = self._folders.get("memory")
        return folder is not None and files.figure(f"{folder}/memory.oom_control", "oom_kill") > 0

    def clean(self) -> bool:
        """Say whether little is charged to it still and none was killed."""
        folder = self._folders.get("memory")
        if folder is None:
            return True
        most = self._bounds.memory_bytes
        return files.is_little(f"{folder}/memory.usage_in_bytes", most) and not self.exceeded()

    def empty(self) -> None:
        """Kill until no folder holds anybody."""
        self.kill()
        for folder in self._folders.values():
            files.wait_until(lambda folder=folder: not files.kill_members(folder))  # type: ignore[misc]

    def discard(self) -> None:
        """Remove each folder that nobody is in."""
        for folder in self._folders.values():
            with suppress(OSError):
                os.rmdir(folder)

    def remove(self) -> None:
        """Remove each folder."""
        for folder in self._folders.values():
            files.remove_folder(folder)
