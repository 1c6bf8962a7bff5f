"""A suite in one file: its database at one instant, its keys, and what `up` has to know.

The file is a tar archive: `backup.json` first, which names every other member with its checksum.
Nothing of it is believed before all of it was read once.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import shutil
import tarfile
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, Final

from tenure_cli.embedded.forgetting import forget
from tenure_cli.embedded.layout import SETTINGS, STATE, TLS, read_state, suite_runs
from tenure_cli.embedded.suite import DATABASE
from tenure_core.errors import AlreadyExists, NotFound, WrongState
from tenure_core.timebase import Clock
from tenure_runtime.embedded.postgres import EmbeddedPostgres, running_dsn
from tenure_runtime.embedded.postgres_binaries import find_binaries
from tenure_runtime.embedded.postgres_dump import dump, load
from tenure_runtime.embedded.processes import lock_data_folder

FORMAT: Final = 1
MANIFEST: Final = "backup.json"
DUMP: Final = "database.dump"
_PRIVATE: Final = ("keys", TLS, SETTINGS)
"""Folders that are kept whole: who may call, who is who on the wire, and knobs."""
_NAME: Final = "[A-Za-z0-9][A-Za-z0-9._-]*"
_MEMBER: Final = re.compile(rf"{DUMP}|{STATE}|(?:{'|'.join(_PRIVATE)})(?:/{_NAME}){{1,2}}")
_MANIFEST_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Contents:
    """What a backup says of itself; `members` are names with their SHA-256."""

    tenure: str
    made_ms: int
    members: dict[str, str]


def write_backup(folder: Path, target: Path, clock: Clock, dsn: str = "") -> Contents:
    """Write the suite of `folder` to `target`, which must not exist yet; it may run meanwhile.

    `dsn` is the database when `up` was told to use one that is not the suite's own. What is
    running goes on; the database is as it was at one instant after the call. Raises NotFound
    SUITE_NOT_FOUND or DATABASE_UNKNOWN, AlreadyExists BACKUP_EXISTS, Unavailable DUMP_FAILED.
    """
    read_state(folder)
    if target.exists():
        raise AlreadyExists("BACKUP_EXISTS", f"{target} is there already; name another file")
    made_ms = clock.now_ms()
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".tenure-backup-") as scratch:
        room = Path(scratch)
        asyncio.run(_dump(folder, dsn, room / DUMP))
        sources = {DUMP: room / DUMP, **_copies(folder, room)}
        sums = {name: _checksum(path.open("rb")) for name, path in sources.items()}
        contents = Contents(version("tenure"), made_ms, sums)
        manifest = room / MANIFEST
        manifest.write_text(json.dumps({"format": FORMAT, **_as_json(contents)}, indent=2) + "\n")
        whole = room / "whole"
        with _private_file(whole) as file:
            with tarfile.open(fileobj=file, mode="w") as archive:
                for name, path in {MANIFEST: manifest, **sources}.items():
                    archive.add(path, arcname=name, recursive=False, filter=_anonymous)
            file.flush()
            os.fsync(file.fileno())
        os.replace(whole, target)
    return contents


def _copies(folder: Path, room: Path) -> dict[str, Path]:
    """Copy the suite's files, of which some are made anew while it runs; return them by name."""
    found = [folder / STATE]
    for private in _PRIVATE:
        files = sorted(path for path in (folder / private).rglob("*") if path.is_file())
        found += [path for path in files if _MEMBER.fullmatch(str(path.relative_to(folder)))]
    copies = {str(path.relative_to(folder)): room / f"copy-{at}" for at, path in enumerate(found)}
    for name, copy in copies.items():
        shutil.copyfile(folder / name, copy)
    return copies


def restore_backup(source: Path, folder: Path) -> Contents:
    """Make a suite in `folder`, which must be empty or absent, from a backup.

    It is whole or not there. Agents begin with new folders, so what ran when the backup was made
    is given up and starts again where its lease allows. Raises NotFound BACKUP_NOT_FOUND,
    WrongState BACKUP_DAMAGED, AlreadyExists SUITE_EXISTS, Unavailable DUMP_FAILED.
    """
    contents = read_contents(source)
    if folder.exists() and any(folder.iterdir()):
        raise AlreadyExists(
            "SUITE_EXISTS", f"{folder} is not empty; name another folder, or `tenure reset` first"
        )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = lock_data_folder(folder)
    try:
        _unpack(source, folder, contents)
        asyncio.run(_load(folder, folder / DUMP))
        (folder / DUMP).unlink()
        os.replace(folder / f"{STATE}.restored", folder / STATE)
    except BaseException:
        asyncio.run(forget(folder))
        raise
    finally:
        lock.release()
    return contents


def read_contents(source: Path) -> Contents:
    """Return what a backup holds, every checksum compared.

    Raises NotFound BACKUP_NOT_FOUND, WrongState BACKUP_DAMAGED.
    """
    try:
        with tarfile.open(source, mode="r:") as archive:
            first = archive.next()
            if first is None or first.name != MANIFEST or first.size > _MANIFEST_MAX:
                raise _damaged(source, "it is not a backup of Tenure")
            contents = _contents(json.load(_open(archive, first, source)), source)
            found = {}
            for member in archive:
                if member.name != MANIFEST:
                    found[member.name] = _checksum(_open(archive, member, source))
    except FileNotFoundError:
        raise NotFound("BACKUP_NOT_FOUND", f"there is no file {source}") from None
    except (tarfile.TarError, OSError, ValueError) as error:
        raise _damaged(source, f"it cannot be read: {error}") from None
    if found != contents.members:
        odd = sorted(
            name
            for name in found | contents.members
            if found.get(name) != contents.members.get(name)
        )
        raise _damaged(source, f"{', '.join(odd)} is not what was written")
    return contents


def _contents(said: Any, source: Path) -> Contents:
    if not isinstance(said, dict) or said.get("format") != FORMAT:
        raise _damaged(source, "its form is not known to this release")
    try:
        members = {str(name): str(checksum) for name, checksum in said["members"].items()}
        contents = Contents(str(said["tenure"]), int(said["made_ms"]), members)
    except (KeyError, TypeError, AttributeError):
        raise _damaged(source, "its list of contents is not whole") from None
    strange = [name for name in members if not _MEMBER.fullmatch(name)]
    if strange or not {DUMP, STATE} <= set(members):
        raise _damaged(source, "it does not hold what a backup holds")
    return contents


def _unpack(source: Path, folder: Path, contents: Contents) -> None:
    """Write the members, each readable by its owner only, and the state under another name."""
    with tarfile.open(source, mode="r:") as archive:
        for member in archive:
            if member.name not in contents.members:
                continue
            name = f"{STATE}.restored" if member.name == STATE else member.name
            for parent in reversed(Path(member.name).parents[:-1]):
                (folder / parent).mkdir(mode=0o700, exist_ok=True)
            with _private_file(folder / name) as file:
                shutil.copyfileobj(_open(archive, member, source), file)


async def _dump(folder: Path, dsn: str, target: Path) -> None:
    """Dump the database; the suite's own is started for it when the suite does not run."""
    if not dsn and suite_runs(folder):
        dsn = running_dsn(folder / "postgres", DATABASE)
        if not dsn:
            raise NotFound(
                "DATABASE_UNKNOWN",
                "the suite uses a database of its own choice: say --postgres DSN",
            )
    if dsn:
        await dump(find_binaries(), dsn, target)
        return
    async with EmbeddedPostgres(folder / "postgres") as postgres:
        address = await postgres.ensure_database(DATABASE)
        await dump(find_binaries(postgres.binaries), address, target)


async def _load(folder: Path, source: Path) -> None:
    async with EmbeddedPostgres(folder / "postgres") as postgres:
        address = await postgres.ensure_database(DATABASE)
        await load(find_binaries(postgres.binaries), address, source)


def _private_file(path: Path) -> IO[bytes]:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _checksum(file: IO[bytes]) -> str:
    with file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


def _open(archive: tarfile.TarFile, member: tarfile.TarInfo, source: Path) -> IO[bytes]:
    file = archive.extractfile(member) if member.isreg() else None
    if file is None:
        raise _damaged(source, f"{member.name} is not a file")
    return file


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return a member that belongs to nobody in particular, readable by its owner only."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o600
    return member


def _damaged(source: Path, why: str) -> WrongState:
    return WrongState("BACKUP_DAMAGED", f"{source} cannot be restored: {why}")


def _as_json(contents: Contents) -> dict[str, Any]:
    return {"tenure": contents.tenure, "made_ms": contents.made_ms, "members": contents.members}
