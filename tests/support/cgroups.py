"""What this machine lets tests do with cgroups, and what agents left in them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tenure_agent.hierarchy import Hierarchy, find


@cache
def usable() -> Hierarchy:
    """Return what agents would find here."""
    return find()


needs_cgroups = pytest.mark.skipif(
    not usable().kind, reason=f"no cgroups can be made here: {usable().problem}"
)


def groups(data: Path) -> list[Path]:
    """Return the groups that the agent on a data folder has at present, in all hierarchies."""
    prefix = f"tenure-{(data / 'incarnation').read_text().strip()}-"
    return sorted(
        entry
        for place in usable().places
        for entry in Path(place.parent).iterdir()
        if entry.name.startswith(prefix)
    )


def inhabited(data: Path) -> list[Path]:
    """Return those of the groups that a process is in."""
    return [each for each in groups(data) if (each / "cgroup.procs").read_text()]
