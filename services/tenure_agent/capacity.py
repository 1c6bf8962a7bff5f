"""What this machine has: processors, memory, architecture, and how busy it is.

Detected once at start; the operator's word wins kind by kind. Figures are in base units
(`tenure_core.resources`).
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tenure_core.resources import ResourceVector

_MEMINFO: Final = Path("/proc/meminfo")
_STAT: Final = Path("/proc/stat")
_KIB: Final = 1_024


def detect() -> ResourceVector:
    """Return processors that this process may use and the memory of the machine (or its cgroup)."""
    if hasattr(os, "sched_getaffinity"):
        processors = len(os.sched_getaffinity(0))
    else:
        processors = os.cpu_count() or 1
    return ResourceVector({"cpu": processors * 1_000, "memory": _memory_bytes()})


def _memory_bytes() -> int:
    """Return the memory of the machine, or what the cgroup (v2, else v1) grants of it."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for file in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            limit = Path("/sys/fs/cgroup", file).read_text(encoding="ascii").strip()
        except OSError:
            continue
        return physical if limit == "max" else min(physical, int(limit))
    return physical


def capacity(override: str) -> ResourceVector:
    """Return what is detected, with the kinds that `override` (`cpu=4,memory=8Gi`) names replaced.

    Raises ValueError with a sentence for an override that is not understood.
    """
    return ResourceVector({**detect(), **ResourceVector.parse(override)})


def attributes(override: str) -> Mapping[str, str]:
    """Return what leases may select on: detected facts and the operator's `name=value,…`."""
    facts = {
        "architecture": platform.machine(),
        "system": platform.system().lower(),
        "hostname": platform.node(),
    }
    for part in filter(None, (piece.strip() for piece in override.split(","))):
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"{part!r} is not NAME=VALUE")
        facts[name.strip()] = value.strip()
    return facts


@dataclass(frozen=True, slots=True)
class Usage:
    """How busy the machine is."""

    cpu_permille: int
    memory_bytes: int


class UsageMeter:
    """Measures usage between two looks; where the system does not tell, it says zero."""

    def __init__(self) -> None:
        self._before = _ticks()

    def look(self) -> Usage:
        """Return the share of processor time used since the last look, and memory in use now."""
        before, now = self._before, _ticks()
        self._before = now
        all_ticks = now[1] - before[1]
        busy = now[0] - before[0]
        permille = round(1_000 * busy / all_ticks) if all_ticks > 0 else 0
        return Usage(max(0, min(1_000, permille)), _memory_used_bytes())


def _ticks() -> tuple[int, int]:
    """Return busy and all processor ticks since boot."""
    try:
        with _STAT.open(encoding="ascii") as file:
            ticks = [int(word) for word in file.readline().split()[1:9]]
    except OSError:
        return (0, 0)
    idle = ticks[3] + ticks[4]
    return (sum(ticks) - idle, sum(ticks))


def _memory_used_bytes() -> int:
    try:
        lines = _MEMINFO.read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    figures = {name: int(rest.split()[0]) for name, _, rest in (x.partition(":") for x in lines)}
    return (figures["MemTotal"] - figures.get("MemAvailable", 0)) * _KIB
