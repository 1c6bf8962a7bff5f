"""A backup is believed only when all of it is what was written."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tenure_cli.embedded.backup import Contents, read_contents, restore_backup
from tenure_core.errors import AlreadyExists, NotFound, WrongState
from tenure_runtime.embedded.postgres_dump import without_password

FILES = {"database.dump": b"rows", "suite.json": b"{}", "keys/operator.key": b"secret"}


def written(path: Path, files: dict[str, bytes], **manifest: Any) -> Path:
    """Write an archive as `tenure backup` does, with some of its manifest otherwise."""
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in FILES.items()}
    said = {"format": 1, "tenure": "0.1.0", "made_ms": 1_000, "members": sums, **manifest}
    with tarfile.open(path, "w") as archive:
        for name, data in {"backup.json": json.dumps(said).encode(), **files}.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def test_a_whole_backup_says_what_it_holds(tmp_path: Path) -> None:
    found = read_contents(written(tmp_path / "b.tar", FILES))
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in FILES.items()}
    assert found == Contents("0.1.0", 1_000, sums)


def outside(name: str) -> Callable[[Path], Path]:
    """Return how to write an archive with a member that a backup never has, rightly summed."""
    sums = {each: hashlib.sha256(data).hexdigest() for each, data in {**FILES, name: b"x"}.items()}
    return lambda path: written(path, {**FILES, name: b"x"}, members=sums)


@pytest.mark.parametrize(
    ("write", "why"),
    [
        (lambda path: written(path, {**FILES, "suite.json": b"[]"}), "suite.json is not what"),
        (lambda path: written(path, {"suite.json": b"{}"}), "database.dump, keys/operator.key is"),
        (lambda path: written(path, {**FILES, "keys/more.key": b""}), "keys/more.key is not what"),
        (lambda path: written(path, FILES, format=2), "its form is not known to this release"),
        (lambda path: written(path, FILES, members=[]), "its list of contents is not whole"),
        (lambda path: written(path, {}, members={}), "does not hold what a backup holds"),
        (outside("../outside"), "does not hold what a backup holds"),
        (outside("keys/../../outside"), "does not hold what a backup holds"),
        (outside("/etc/outside"), "does not hold what a backup holds"),
        (lambda path: path.write_bytes(b"no archive" * 200) and path, "cannot be read"),
    ],
)
def test_a_damaged_or_foreign_file_is_refused_and_nothing_is_made(
    tmp_path: Path, write: Callable[[Path], Path], why: str
) -> None:
    file = write(tmp_path / "b.tar")
    with pytest.raises(WrongState, match=why) as refused:
        restore_backup(file, tmp_path / "data")
    assert refused.value.reason == "BACKUP_DAMAGED"
    assert [path.name for path in tmp_path.iterdir()] == ["b.tar"]


def test_a_torn_backup_is_refused(tmp_path: Path) -> None:
    whole = written(tmp_path / "b.tar", {**FILES, "database.dump": b"rows" * 10_000})
    whole.write_bytes(whole.read_bytes()[:15_000])
    with pytest.raises(WrongState, match="cannot be read"):
        read_contents(whole)


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "kept").touch()
    with pytest.raises(AlreadyExists) as refused:
        restore_backup(written(tmp_path / "b.tar", FILES), tmp_path / "data")
    assert refused.value.reason == "SUITE_EXISTS"
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["kept"]


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotFound) as refused:
        read_contents(tmp_path / "none.tar")
    assert refused.value.reason == "BACKUP_NOT_FOUND"


@pytest.mark.parametrize(
    ("dsn", "address", "password"),
    [
        ("postgresql://u:p%40s@h:5433/d", "postgresql://u@h:5433/d", "p@s"),
        ("postgresql://u@h/d?sslmode=require", "postgresql://u@h/d?sslmode=require", ""),
        ("postgresql:///d?host=/run&password=x", "postgresql:///d?host=%2Frun", "x"),
    ],
)
def test_a_password_is_not_put_on_a_command_line(dsn: str, address: str, password: str) -> None:
    assert without_password(dsn) == (address, password)
