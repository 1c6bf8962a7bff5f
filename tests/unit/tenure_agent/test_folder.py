"""The claim on a folder lets work begin at most once, whoever comes first and whoever dies."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tenure_agent.drivers import remains
from tenure_agent.guardian import folder as folders
from tenure_agent.guardian.fencefile import FenceFile
from tenure_agent.guardian.folder import Claim, Result


def test_one_guardian_only(tmp_path: Path) -> None:
    first = folders.take(str(tmp_path))
    assert first is not None
    assert folders.take(str(tmp_path)) is None
    assert folders.examine(str(tmp_path)) == Claim(alive=True, began=True)
    folders.begin(first)
    os.close(first)  # as if it had been killed

    assert folders.examine(str(tmp_path)) == Claim(alive=False, began=True)
    assert folders.take(str(tmp_path)) is None


def test_who_examines_first_voids_the_folder(tmp_path: Path) -> None:
    assert folders.examine(str(tmp_path)) == Claim(alive=False, began=False)
    assert folders.take(str(tmp_path)) is None
    assert folders.examine(str(tmp_path)) == Claim(alive=False, began=False)


def test_a_result_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    plain = Result(3, "EXITED", "", 12, 99)
    told = Result(None, "EXPIRED", 'too "late"', 0, 99)
    assert folders.read_result(str(tmp_path)) is None
    claim = folders.take(str(tmp_path))
    assert claim is not None
    assert folders.read_result(str(tmp_path)) is None
    folders.begin(claim)
    os.close(claim)
    assert folders.read_result(str(tmp_path)) is None
    for result in (plain, told):
        folders.write_result(str(tmp_path), folders.encode_result(result), durable=True)
        assert folders.read_result(str(tmp_path)) == result
    with (tmp_path / folders.CLAIM).open("a") as file:
        file.write('\n{"exit_code": 3, "rea')
    assert folders.read_result(str(tmp_path)) is None
    folders.write_result(str(tmp_path), folders.encode_result(plain), durable=False)
    assert folders.read_result(str(tmp_path)) == plain
    assert folders.examine(str(tmp_path)) == Claim(alive=False, began=True)


def test_a_void_folder_has_no_result(tmp_path: Path) -> None:
    folders.examine(str(tmp_path))

    assert folders.read_result(str(tmp_path)) is None


def test_pruning_keeps_the_living_the_fresh_and_the_newest(tmp_path: Path) -> None:
    now = time.clock_gettime(time.CLOCK_REALTIME)
    ages_s = {"fresh": 5, "living": 9_000, "new": 100, "older": 200, "oldest": 300, "stale": 8_000}
    for name, age_s in ages_s.items():
        (tmp_path / name / "work").mkdir(parents=True)
        os.utime(tmp_path / name, (now - age_s, now - age_s))

    living = frozenset({"living"})
    assert remains.prune(tmp_path, living, kept_max=4, kept_s=1_000) == 1
    assert remains.prune(tmp_path, living, kept_max=2, kept_s=1_000) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"fresh", "living", "new", "older"}


def test_a_fence_is_shared_and_never_moves_back(tmp_path: Path) -> None:
    ours, theirs = FenceFile(str(tmp_path / "fence")), FenceFile(str(tmp_path / "fence"))
    assert theirs.deadline_ms() == 0
    ours.renew(5_000)
    assert theirs.deadline_ms() == 5_000
    ours.renew(4_000)
    assert theirs.deadline_ms() == 5_000
    ours.close()
    theirs.close()
