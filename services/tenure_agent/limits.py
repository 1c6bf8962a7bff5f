"""Which limits the work of this agent is held to, and what is left of them.

Decides, once at start, by what means: cgroups where they can be made, else rlimits, else nothing,
as the settings allow; and for each allocation, which amounts it is held to: those that its command
names. A kind that a lease was not given anything of is not limited. Enforcing is the guardian's.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from tenure_agent import hierarchy
from tenure_agent.guardian import tree
from tenure_agent.guardian.bootclock import boot_ns
from tenure_agent.guardian.limits.bounds import Bounds, Place
from tenure_agent.guardian.limits.kinds import group_of
from tenure_agent.guardian.mounts import PLACES as COVERED
from tenure_agent.run_as import RunAs, run_as
from tenure_agent.settings import AgentSettings, SettingRefused
from tenure_agent.work import Key
from tenure_runtime.telemetry.logging import get_logger

# The largest that control files take; a demand beyond it is none.
_AMOUNT_MAX: Final = 2**62
# Groups kept for the next work; what goes beyond was a peak.
_IDLE_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Means:
    """What this agent can and may do to hold work.

    `pids` is how many processes a lease may have; with rlimits `pids_before` are added to it, those
    that the user had when the agent started.
    """

    kind: str = "none"
    places: tuple[Place, ...] = ()
    controllers: tuple[str, ...] = ()
    pids: int = 0
    pids_before: int = 0
    user: RunAs = field(default_factory=RunAs)
    mount_tmp: bool = False

    def bounds(self, amounts: Mapping[str, int]) -> Bounds:
        """Return the limits of what was given `amounts`; its group has no name yet."""
        given = {kind: min(max(amount, 0), _AMOUNT_MAX) for kind, amount in amounts.items()}
        cpu = given.get("cpu", 0) if "cpu" in self.controllers else 0
        memory = given.get("memory", 0) if "memory" in self.controllers else 0
        unused = {"cpu": not cpu, "memory": not memory}
        return Bounds(
            kind=self.kind,
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


class Limits:
    """Lends groups to allocations, the same one again to the next that was given as much.

    `prefix` begins the name of each group of this agent, and of no other's; `generation` those made
    for this process of it.
    """

    def __init__(self, means: Means, *, prefix: str = "", generation: str = "") -> None:
        self.means = means
        self._prefix = prefix
        self._generation = generation
        self._made = 0
        self._lent: dict[Key, Bounds] = {}
        # By what they limit: the bounds without a name.
        self._idle: dict[Bounds, list[str]] = {}
        self._idle_count = 0

    def lend(self, key: Key, amounts: Mapping[str, int]) -> Bounds:
        """Return what the guardian of an allocation is told of its limits."""
        shape = self.means.bounds(amounts)
        if not shape.places:
            return shape
        names = self._idle.get(shape)
        if names:
            self._idle_count -= 1
            bounds = shape._replace(name=names.pop(), ready=True)
        else:
            self._made += 1
            bounds = shape._replace(name=f"{self._prefix}{self._generation}-{self._made}")
        self._lent[key] = bounds
        return bounds

    def give_back(self, key: Key) -> None:
        """Take the group of work that has ended in order; nothing is in it."""
        bounds = self._lent.pop(key, None)
        if bounds is None:
            return  # of an earlier process of this agent: its guardian removed it
        if self._idle_count >= _IDLE_MAX:
            self._clear(bounds)
            return
        self._idle_count += 1
        self._idle.setdefault(bounds._replace(name="", ready=False), []).append(bounds.name)

    def clear(self, key: Key) -> None:
        """Kill what is in the group of an allocation whose guardian is gone, and remove it."""
        bounds = self._lent.pop(key, None)
        if bounds is not None:
            self._clear(bounds)

    def sweep(self, guardians: Iterable[int]) -> None:
        """Clear every group that earlier processes of this agent left, but those of `guardians`.

        To be called at start. A group that a living guardian is yet to enter is made anew by it.
        """
        if not self.means.places:
            return
        used = {name for guardian in guardians for name in self._groups_below(guardian)}
        for name in sorted(self._names() - used):
            self._clear(Bounds(kind=self.means.kind, name=name, places=self.means.places))

    def close(self) -> None:
        """Remove what is lent to nobody."""
        for shape, names in self._idle.items():
            for name in names:
                self._clear(shape._replace(name=name))
        self._idle.clear()

    def _clear(self, bounds: Bounds) -> None:
        group = group_of(bounds)
        if group is None:
            return
        try:
            group.empty()
            group.remove()
        except OSError as error:
            # It goes at the next start.
            get_logger().warning("limits.left_behind", group=bounds.name, reason=str(error))

    def _names(self) -> set[str]:
        names: set[str] = set()
        for place in self.means.places:
            with suppress(OSError):
                names.update(os.listdir(place.parent))
        return {name for name in names if name.startswith(self._prefix)}

    def _groups_below(self, guardian: int) -> Iterator[str]:
        """Yield the names of our groups that processes of a guardian are in."""
        for process in tree.descendants(guardian):
            with suppress(OSError):
                text = Path(f"/proc/{process}/cgroup").read_text(encoding="utf-8")
                for path in hierarchy.memberships(text).values():
                    yield from (part for part in path.split("/") if part.startswith(self._prefix))


def find(settings: AgentSettings, *, incarnation: str) -> Limits:
    """Return the limits that the settings ask for and this host permits, and log which.

    Raises SettingRefused when what is asked for by name is not possible here.
    """
    user = run_as(settings.run_as)
    found = _means(settings, user)
    means = Means(
        kind=found.kind,
        places=found.places,
        controllers=found.controllers,
        pids=settings.pids_max,
        pids_before=_processes_of(user.ids[0] if user.ids else os.geteuid())
        if found.kind == "rlimit"
        else 0,
        user=user,
        mount_tmp=_mounts_tmp(settings),
    )
    get_logger().info("limits.found", **means.facts(), reason=found.problem)
    return Limits(means, prefix=f"tenure-{incarnation}-", generation=f"{boot_ns():x}")


def _means(settings: AgentSettings, user: RunAs) -> hierarchy.Hierarchy:
    wish = settings.limits
    if wish == "none":
        return hierarchy.Hierarchy("none")
    found = hierarchy.Hierarchy()
    if wish in ("auto", "cgroup"):
        found = hierarchy.find(settings.cgroup)
        if found.kind:
            return _cheap(found) if wish == "auto" else found
        if wish == "cgroup":
            raise SettingRefused(f"TENURE_LIMITS is cgroup, which cannot be: {found.problem}")
    # The kernel does not count the processes of root.
    root = (user.ids[0] if user.ids else os.geteuid()) == 0
    controllers = ("memory",) if root else ("memory", "pids")
    return hierarchy.Hierarchy("rlimit", controllers=controllers, problem=found.problem)


def _cheap(found: hierarchy.Hierarchy) -> hierarchy.Hierarchy:
    """Return v1 without its freezer: a group more a lease, where signals halt the tree as well."""
    if found.kind != "cgroup1":
        return found
    return replace(
        found,
        places=tuple(each for each in found.places if each.controller != "freezer"),
        controllers=tuple(each for each in found.controllers if each != "freezer"),
    )


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
