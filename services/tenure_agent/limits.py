"""Which limits the work of this agent is held to, and what is left of them.

Decides, once at start, by what means: cgroups where they can be made, else rlimits, else nothing,
as the settings allow; and for each allocation, which amounts it is held to: those that its command
names. A kind that a lease was not given anything of is not limited. Enforcing is the guardian's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tenure_agent import hierarchy
from tenure_agent.guardian.limits.bounds import Bounds, Place
from tenure_agent.guardian.limits.kinds import group_of
from tenure_agent.guardian.mounts import PLACES as COVERED
from tenure_agent.run_as import RunAs, run_as
from tenure_agent.settings import AgentSettings, SettingRefused
from tenure_agent.work import Key
from tenure_runtime.telemetry.logging import get_logger

# The largest that control files take; a demand beyond it is none.
_AMOUNT_MAX: Final = 2**62


@dataclass(frozen=True, slots=True)
class Limits:
    """The means of one agent. `prefix` begins the name of each of its groups, and of no other's.

    `pids` is how many processes a lease may have; with rlimits `pids_before` are added to it, those
    that the user had when the agent started.
    """

    kind: str = "none"
    prefix: str = ""
    places: tuple[Place, ...] = ()
    controllers: tuple[str, ...] = ()
    pids: int = 0
    pids_before: int = 0
    user: RunAs = field(default_factory=RunAs)
    mount_tmp: bool = False

    def bounds(self, key: Key, amounts: Mapping[str, int]) -> Bounds:
        """Return what a guardian is told of the limits of one allocation."""
        given = {kind: min(max(amount, 0), _AMOUNT_MAX) for kind, amount in amounts.items()}
        cpu = given.get("cpu", 0) if "cpu" in self.controllers else 0
        memory = given.get("memory", 0) if "memory" in self.controllers else 0
        unused = {"cpu": not cpu, "memory": not memory}
        return Bounds(
            kind=self.kind,
            name=f"{self.prefix}{key.folder}" if self.places else "",
            places=tuple(p for p in self.places if not unused.get(p.controller, False)),
            cpu_millis=cpu,
            memory_bytes=memory,
            pids=self.pids + self.pids_before if "pids" in self.controllers else 0,
            user=self.user.ids,
            mount_tmp=self.mount_tmp,
        )

    def facts(self) -> dict[str, str]:
        """Return what leases may select on and people see of the agent."""
        held = [each for each in ("cpu", "memory", "pids") if each in self.controllers]
        return {
            "limits": self.kind,
            "limits_held": ",".join(held) or "none",
            "suspend_by": "freezer" if "freezer" in self.controllers else "signals",
            "private_tmp": "mount" if self.mount_tmp else "folder",
            "run_as": self.user.fact,
        }

    def clear(self, name: str) -> None:
        """Kill what is in the group of the allocation `name`, a folder's name, and remove it.

        For one whose guardian is gone. What cannot be removed now goes at the next start.
        """
        if not self.places:
            return
        bounds = Bounds(kind=self.kind, name=f"{self.prefix}{name}", places=self.places)
        group = group_of(bounds)
        try:
            group.empty()
            group.remove()
        except OSError as error:
            get_logger().warning("limits.left_behind", allocation=name, reason=str(error))

    def sweep(self, lives: Callable[[str], bool]) -> int:
        """Clear every group of this agent whose allocation does not live; return how many.

        To be called at start: guardians remove their own, but one may have been killed.
        """
        dead = sorted(name for name in self._names() if not lives(name))
        for name in dead:
            self.clear(name)
        return len(dead)

    def _names(self) -> set[str]:
        names: set[str] = set()
        for place in self.places:
            with suppress(OSError):
                names.update(os.listdir(place.parent))
        return {name.removeprefix(self.prefix) for name in names if name.startswith(self.prefix)}


def find(settings: AgentSettings, *, prefix: str) -> Limits:
    """Return the limits that the settings ask for and this host permits, and log which.

    Raises SettingRefused when what is asked for by name is not possible here.
    """
    user = run_as(settings.run_as)
    found = _means(settings, user)
    limits = Limits(
        kind=found.kind,
        prefix=f"tenure-{prefix}-",
        places=found.places,
        controllers=found.controllers,
        pids=settings.pids_max,
        pids_before=_processes_of(user.ids[0] if user.ids else os.geteuid())
        if found.kind == "rlimit"
        else 0,
        user=user,
        mount_tmp=_mounts_tmp(settings),
    )
    get_logger().info("limits.found", **limits.facts(), reason=found.problem)
    return limits


def _means(settings: AgentSettings, user: RunAs) -> hierarchy.Hierarchy:
    wish = settings.limits
    if wish == "none":
        return hierarchy.Hierarchy("none")
    found = hierarchy.Hierarchy()
    if wish in ("auto", "cgroup"):
        found = hierarchy.find(settings.cgroup)
        if found.kind:
            return found
        if wish == "cgroup":
            raise SettingRefused(f"TENURE_LIMITS is cgroup, which cannot be: {found.problem}")
    # The kernel does not count the processes of root.
    root = (user.ids[0] if user.ids else os.geteuid()) == 0
    controllers = ("memory",) if root else ("memory", "pids")
    return hierarchy.Hierarchy("rlimit", controllers=controllers, problem=found.problem)


def _mounts_tmp(settings: AgentSettings) -> bool:
    if settings.private_tmp == "folder":
        return False
    if os.geteuid() != 0:
        raise SettingRefused("TENURE_PRIVATE_TMP is mount, and only root may mount")
    hidden = [each for each in COVERED if settings.data_dir.is_relative_to(each)]
    if hidden:
        raise SettingRefused(
            f"TENURE_PRIVATE_TMP is mount, which would hide TENURE_DATA_DIR below {hidden[0]}"
        )
    return True


def _processes_of(uid: int) -> int:
    """Return how many threads a user has, which is what RLIMIT_NPROC counts."""
    count = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                if entry.stat().st_uid == uid:
                    count += len(os.listdir(entry / "task"))
    return count
