"""Which cgroups this process may make: found at start by making one, and told with the reason.

Decides what counts as usable: memory and pids at least. Groups are made below the agent's own group
(so what bounds the agent bounds its work too), or below the one that the operator names.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from tenure_agent.guardian.limits import files
from tenure_agent.guardian.limits.bounds import Place

NEEDED: Final = ("memory", "pids")
WISHED: Final = ("memory", "pids", "cpu", "freezer")
_PROBE: Final = "tenure-probe"
# What a group has when its controller is really there.
_FILES_V2: Final = {"memory": "memory.max", "pids": "pids.max", "cpu": "cpu.max"}


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """What is usable. `kind` is empty when nothing is, and `problem` says why."""

    kind: str = ""
    places: tuple[Place, ...] = ()
    controllers: tuple[str, ...] = ()
    problem: str = ""


class Mount(NamedTuple):
    """One mounted hierarchy: which group its mount point shows, and its controllers if v1."""

    point: str
    shows: str
    controllers: frozenset[str]
    unified: bool


def find(parent: str = "", process: Path = Path("/proc/self")) -> Hierarchy:
    """Return what this process may use, v2 if it can; `parent` names a group in place of its own.

    Cost: a few milliseconds, once.
    """
    try:
        found = mounts((process / "mountinfo").read_text(encoding="utf-8"))
        own = memberships((process / "cgroup").read_text(encoding="utf-8"))
    except OSError as error:
        return Hierarchy(problem=f"the system tells of no cgroups: {error.strerror}")
    second = _unified(found, own, parent)
    if second.kind:
        return second
    first = _first(found, own, parent)
    if first.kind:
        return first
    return Hierarchy(problem="; ".join(filter(None, (second.problem, first.problem))))


def mounts(mountinfo: str) -> list[Mount]:
    """Return the hierarchies in a text like /proc/self/mountinfo."""
    found = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        words, (kind, _, options) = before.split(), after.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            names = frozenset(options.split(","))
            found.append(Mount(words[4], words[3], names, kind == "cgroup2"))
    return found


def memberships(text: str) -> dict[str, str]:
    """Return the group by controller of a text like /proc/self/cgroup; that of v2 under ``."""
    own = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            own[controller] = path
    return own


def _folder(mount: Mount, path: str) -> str:
    """Return where a group of a hierarchy is to be seen."""
    shown = path
    if mount.shows != "/" and (path + "/").startswith(mount.shows + "/"):
        shown = path[len(mount.shows) :]
    return (mount.point + "/" + shown.strip("/")).rstrip("/")


def _first(found: list[Mount], own: dict[str, str], parent: str) -> Hierarchy:
    """Return what is usable of v1."""
    places, problem = [], "no cgroup v1 with memory and pids"
    for controller in WISHED:
        mount = next((m for m in found if controller in m.controllers and not m.unified), None)
        if mount is None or controller not in own:
            continue
        place = Place(
            controller,
            _folder(mount, parent or own[controller]),
            _folder(mount, own[controller]),
        )
        trouble = _try(place.parent, ())
        if trouble:
            problem = f"cgroup v1, {controller}: {trouble}"
        else:
            places.append(place)
    names = tuple(place.controller for place in places)
    if not set(NEEDED) <= set(names):
        return Hierarchy(problem=problem)
    return Hierarchy("cgroup1", tuple(places), names)


def _unified(found: list[Mount], own: dict[str, str], parent: str) -> Hierarchy:
    """Return what is usable of v2: below the own group, or beside it.

    A group that passes controllers on may hold no process itself (but the very first), so an agent
    in a leaf of what was delegated to it makes its groups beside that leaf.
    """
    mount = next((each for each in found if each.unified), None)
    if mount is None or "" not in own:
        return Hierarchy(problem="no cgroup v2")
    home = _folder(mount, own[""])
    problem = ""
    for folder in [_folder(mount, parent)] if parent else _own(home):
        has = _pass_on(folder)
        if not set(NEEDED) <= set(has):
            problem = f"cgroup v2: {folder} does not pass on memory and pids"
            continue
        trouble = _try(folder, [_FILES_V2[name] for name in has])
        if not trouble:
            return Hierarchy("cgroup2", (Place("", folder, home),), (*has, "freezer"))
        problem = f"cgroup v2: {trouble}"
    return Hierarchy(problem=problem)


def _own(home: str) -> list[str]:
    """Return the group of this process, and the one above it if that was delegated by systemd."""
    above = os.path.dirname(home)
    for attribute in ("user.delegate", "trusted.delegate"):
        with suppress(OSError):
            if os.getxattr(above, attribute) == b"1":
                return [home, above]
    return [home]


def _pass_on(folder: str) -> list[str]:
    """Have a group pass its controllers on to those below; return which of ours it does."""
    control = f"{folder}/cgroup.subtree_control"
    for name in _FILES_V2:
        with suppress(OSError):
            files.put(control, f"+{name}")
    try:
        passed = files.get(control).decode().split()
    except OSError:
        return []
    return [name for name in _FILES_V2 if name in passed]


def _try(folder: str, wanted: list[str] | tuple[str, ...]) -> str:
    """Make a group and remove it; return what stands against it, empty if nothing does."""
    probe = f"{folder}/{_PROBE}-{os.getpid()}"
    try:
        os.mkdir(probe)
    except OSError as error:
        return f"{folder}: {error.strerror}"
    missing = [name for name in wanted if not os.path.exists(f"{probe}/{name}")]
    with suppress(OSError):
        os.rmdir(probe)
    return f"{folder}: no {', '.join(missing)}" if missing else ""
