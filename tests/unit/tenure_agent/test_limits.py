"""Which limits an agent finds and lends, and what is written into a tree of cgroup v2."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tenure_agent import hierarchy, limits
from tenure_agent.guardian.limits import cgroup2
from tenure_agent.guardian.limits.bounds import Bounds, Place, unpack
from tenure_agent.guardian.limits.cgroup2 import Cgroup2
from tenure_agent.guardian.spec import Spec, pack
from tenure_agent.guardian.spec import unpack as unpack_spec
from tenure_agent.limits import Limits, Means
from tenure_agent.run_as import run_as
from tenure_agent.settings import AgentSettings, SettingRefused
from tenure_agent.work import Key

KEY = Key("lease", 1, 0)
SETTINGS = AgentSettings(
    agent_id="n1", registry_address="127.0.0.1:1", api_key=None, data_dir=Path("/var/lib/tenure")
)
_FILES = [
    "cgroup.procs",
    "cgroup.kill",
    "cgroup.freeze",
    "cgroup.events",
    "memory.max",
    "memory.swap.max",
    "memory.oom.group",
    "memory.events",
    "memory.current",
    "pids.max",
    "cpu.max",
    "cgroup.subtree_control",
]


class Tree:
    """A folder laid out like cgroup v2: making a folder in it makes its control files."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self._mkdir: Callable[..., None] = os.mkdir
        self._rmdir: Callable[..., None] = os.rmdir
        monkeypatch.setattr(os, "mkdir", self.make)
        monkeypatch.setattr(os, "rmdir", self.remove)
        self.make(str(root / "agent"))
        (root / "agent" / "cgroup.subtree_control").write_text("cpu memory pids")

    def make(self, path: str, mode: int = 0o777) -> None:
        self._mkdir(path, mode)
        for name in _FILES:
            Path(path, name).write_text("")

    def remove(self, path: str) -> None:
        for entry in Path(path).iterdir():
            if entry.is_file():
                entry.unlink()
        self._rmdir(path)

    @property
    def bounds(self) -> Bounds:
        agent = str(self.root / "agent")
        return Bounds("cgroup2", "group", (Place("", agent, agent),), 1_500, 1 << 28, 100)

    def read(self, name: str) -> str:
        return (self.root / "agent" / "group" / name).read_text()

    def write(self, name: str, text: str) -> None:
        (self.root / "agent" / "group" / name).write_text(text)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    return Tree(tmp_path, monkeypatch)


def test_v2_writes_each_limit_and_removes_the_group(tree: Tree) -> None:
    group = Cgroup2(tree.bounds)
    group.make()

    assert tree.read("memory.max") == str(1 << 28)
    assert (tree.read("memory.swap.max"), tree.read("memory.oom.group")) == ("0", "1")
    assert tree.read("pids.max") == "100"
    assert tree.read("cpu.max") == "150000 100000"
    group.remove()
    assert not (tree.root / "agent" / "group").exists()


def test_v2_limits_nothing_that_was_not_given(tree: Tree) -> None:
    Cgroup2(tree.bounds._replace(cpu_millis=0, memory_bytes=0)).make()

    assert (tree.read("memory.max"), tree.read("cpu.max"), tree.read("pids.max")) == ("", "", "100")


def test_v2_is_entered_left_frozen_and_killed_by_single_writes(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = Cgroup2(tree.bounds)
    group.make()
    group.enter()
    group.leave(7)
    assert tree.read("cgroup.procs") == "0"
    assert (tree.root / "agent" / "cgroup.procs").read_text() == "0"
    tree.write("cgroup.events", "populated 1\nfrozen 1\n")
    assert group.freeze()
    assert tree.read("cgroup.freeze") == "1"
    group.thaw()
    assert tree.read("cgroup.freeze") == "0"
    group.kill()
    assert tree.read("cgroup.kill") == "1"
    tree.write("cgroup.events", "populated 1\nfrozen 0\n")
    monkeypatch.setattr(cgroup2.files, "wait_until", lambda true: true())
    assert not group.freeze()
    assert tree.read("cgroup.freeze") == "0"


def test_v2_tells_what_the_kernel_killed_and_whether_a_group_is_as_good_as_new(tree: Tree) -> None:
    group = Cgroup2(tree.bounds)
    group.make()
    tree.write("memory.events", "low 0\nhigh 0\nmax 3\noom 0\noom_kill 0\n")
    tree.write("memory.current", "4096")
    assert (group.exceeded(), group.clean()) == (False, True)
    tree.write("memory.current", str(100 << 20))
    assert not group.clean()
    tree.write("memory.current", "4096")
    tree.write("memory.events", "low 0\nhigh 0\nmax 3\noom 1\noom_kill 1\n")
    assert (group.exceeded(), group.clean()) == (True, False)


def test_a_group_that_was_swept_away_is_made_anew_when_it_is_entered(tree: Tree) -> None:
    Cgroup2(tree.bounds._replace(ready=True)).enter()

    assert (tree.read("cgroup.procs"), tree.read("pids.max")) == ("0", "100")


def _process(folder: Path, mounted: Path, own: str) -> Path:
    process = folder / "proc"
    process.mkdir()
    (process / "mountinfo").write_text(
        f"30 29 0:26 / {mounted} rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
    )
    (process / "cgroup").write_text(f"0::{own}\n")
    return process


def test_v2_is_found_where_the_own_group_passes_controllers_on(
    tree: Tree, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = _process(tmp_path_factory.mktemp("p"), tree.root, "/agent")
    asked: list[str] = []
    # The kernel adds to what stands there; a file would keep the last word only.
    monkeypatch.setattr(hierarchy.files, "put", lambda _, word: asked.append(word))
    found = hierarchy.find(process=process)
    agent = str(tree.root / "agent")

    assert asked == ["+memory", "+pids", "+cpu"]
    assert found.kind == "cgroup2"
    assert found.places == (Place("", agent, agent),)
    assert found.controllers == ("memory", "pids", "cpu", "freezer")


def test_v2_without_memory_and_pids_is_not_taken_and_the_reason_is_told(
    tree: Tree, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (tree.root / "agent" / "cgroup.subtree_control").unlink()
    process = _process(tmp_path_factory.mktemp("p"), tree.root, "/agent")
    found = hierarchy.find(process=process)

    assert found.kind == ""
    assert "does not pass on memory and pids" in found.problem


def test_mounts_and_memberships_are_read_from_what_a_container_sees() -> None:
    text = (
        "40 39 0:30 /docker/abc /sys/fs/cgroup/memory ro,nosuid - cgroup cgroup rw,memory\n"
        "41 39 0:31 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
        "42 39 0:32 / /proc rw - proc proc rw\n"
    )
    found = hierarchy.mounts(text)

    assert [(m.point, m.shows, m.unified) for m in found] == [
        ("/sys/fs/cgroup/memory", "/docker/abc", False),
        ("/sys/fs/cgroup/cpu,cpuacct", "/", False),
    ]
    assert {"cpu", "cpuacct"} <= found[1].controllers
    assert hierarchy.memberships("4:memory:/docker/abc\n3:cpu,cpuacct:/x\n0::/\n") == {
        "memory": "/docker/abc",
        "cpu": "/x",
        "cpuacct": "/x",
        "": "/",
    }


PLACES = tuple(Place(name, f"/c/{name}", f"/c/{name}") for name in ("memory", "pids", "cpu"))
MEANS = Means("cgroup1", PLACES, ("memory", "pids", "cpu"), pids=10)


def test_only_what_was_given_is_limited() -> None:
    bounds = MEANS.bounds({"memory": 1 << 30, "gpu": 2_000, "cpu": 0})

    assert [place.controller for place in bounds.places] == ["memory", "pids"]
    assert (bounds.memory_bytes, bounds.cpu_millis, bounds.pids) == (1 << 30, 0, 10)
    assert MEANS.bounds({}).places == (PLACES[1],)


def test_a_group_is_lent_again_to_what_was_given_as_much() -> None:
    lender = Limits(MEANS, prefix="tenure-x-", generation="g")
    first = lender.lend(KEY, {"cpu": 1_000})
    second = lender.lend(KEY._replace(rank=1), {"cpu": 1_000})
    lender.give_back(KEY)
    other = lender.lend(KEY._replace(rank=2), {"cpu": 2_000})
    again = lender.lend(KEY._replace(rank=3), {"cpu": 1_000})

    assert (first.name, first.ready) == ("tenure-x-g-1", False)
    assert (second.name, other.name) == ("tenure-x-g-2", "tenure-x-g-3")
    assert (again.name, again.ready) == (first.name, True)


def test_idle_groups_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    cleared: list[str] = []
    monkeypatch.setattr(Limits, "_clear", lambda _, bounds: cleared.append(bounds.name))
    lender = Limits(MEANS, prefix="t-", generation="g")
    for rank in range(70):
        lender.lend(KEY._replace(rank=rank), {})
    for rank in range(70):
        lender.give_back(KEY._replace(rank=rank))

    assert cleared == [f"t-g-{number}" for number in range(65, 71)]


def test_bounds_travel_whole() -> None:
    bounds = MEANS.bounds({"cpu": 100, "memory": 5})._replace(user=(1, 2, 3))
    spec = Spec(
        "/f", "l", 1, 0, "n", ["true"], {}, False, 0, 1, 2, "/fence", "/trail", bounds=bounds
    )

    assert unpack_spec(pack(spec)) == spec
    assert unpack(list(Bounds())) == Bounds()


def test_what_is_asked_for_by_name_and_cannot_be_is_refused() -> None:
    with pytest.raises(SettingRefused, match="TENURE_LIMITS is cgroup"):
        limits.find(replace(SETTINGS, limits="cgroup", cgroup="/no-such"), incarnation="i")
    wrong = replace(SETTINGS, limits="none", private_tmp="mount", data_dir=Path("/tmp/x"))
    with pytest.raises(SettingRefused, match="TENURE_PRIVATE_TMP is mount"):
        limits.find(wrong, incarnation="i")
    assert limits.find(replace(SETTINGS, limits="none"), incarnation="i").means.facts() == {
        "limits": "none",
        "limits_held": "none",
        "suspend_by": "signals",
        "private_tmp": "folder",
        "run_as": run_as("").fact,
    }


def test_only_root_may_name_another_user() -> None:
    with pytest.raises(SettingRefused, match="only an agent that runs as root"):
        run_as("nobody", uid=12_345)
    with pytest.raises(SettingRefused, match="does not know"):
        run_as("nobody-at-all", uid=0)
    as_root = run_as("nobody", uid=0)
    assert as_root.ids[0] != 0
    assert as_root.environment["USER"] == "nobody"
    assert run_as("root", uid=0).ids == ()
