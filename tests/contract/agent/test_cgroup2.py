"""What cgroup v2 does without controllers, for real: groups, freezing, killing.

Many machines mount a v2 tree beside v1 that has none of the controllers of ours. What is written
into a group's limits is tested against a folder laid out like one (tests/unit/tenure_agent).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.agents import alive

from tenure_agent import hierarchy
from tenure_agent.guardian.limits.bounds import Bounds, Place
from tenure_agent.guardian.limits.cgroup2 import Cgroup2

# Enters the group, starts what counts in a session of its own, leaves, and says both ids.
_STARTS = """
import os, sys
from tenure_agent.guardian.limits.bounds import Bounds, Place
from tenure_agent.guardian.limits.cgroup2 import Cgroup2
parent, name, counter = sys.argv[1:]
group = Cgroup2(Bounds("cgroup2", name, (Place("", parent, parent),)))
group.enter()
pid = os.posix_spawn("/bin/sh", ["sh", "-c", f"setsid sh -c 'while :; do echo >> {counter}; "
    "sleep 0.01; done' & wait"], os.environ)
group.leave(pid)
print(pid, open("/proc/self/cgroup").read().split("0::")[1].strip(), flush=True)
os.waitpid(pid, 0)
"""


@pytest.fixture
def bounds() -> Iterator[Bounds]:
    """Yield bounds of a group that can be made in a v2 tree, and see that it is gone."""
    text = Path("/proc/self/mountinfo").read_text()
    point = next((m.point for m in hierarchy.mounts(text) if m.unified), None)
    if point is None or not os.access(point, os.W_OK):
        pytest.skip("no cgroup v2 here that one may write to")
    bounds = Bounds("cgroup2", f"tenure-test-{os.getpid()}", (Place("", point, point),))
    yield bounds
    assert not Path(point, bounds.name).exists()


def test_a_tree_is_frozen_thawed_and_killed_to_the_last(bounds: Bounds, tmp_path: Path) -> None:
    group, counter = Cgroup2(bounds), tmp_path / "counter"
    group.make()
    words = [sys.executable, "-c", _STARTS, bounds.places[0].parent, bounds.name, str(counter)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as starter:
        try:
            assert starter.stdout is not None
            pid, left_to = starter.stdout.readline().split()
            while not counter.exists():
                time.sleep(0.01)
            assert group.freeze()
            size = counter.stat().st_size
            time.sleep(0.3)
            assert counter.stat().st_size == size
            group.thaw()
            while counter.stat().st_size == size:
                time.sleep(0.01)
            assert bounds.name not in left_to
        finally:
            group.empty()
            starter.wait(10)
            group.remove()

    assert not alive(int(pid))
