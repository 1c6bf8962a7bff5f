"""Decides where an embedded cluster lives, who owns it, and keeps its password.

As an ordinary user everything lies in the data folder. As root the server runs as another user,
who must reach its files: if the folders above the data folder let it, the cluster lies in the
data folder; if not, it gets a place of its own under /var/lib/tenure (or, where that cannot be
written, /tmp/tenure) and the data folder records which. No existing folder is ever opened up.
"""

from __future__ import annotations

import json
import os
import pwd
import secrets
import shutil
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tenure_core.errors import NotFound, WrongState

from .child import RunAs
from .postgres_binaries import can_reach

_RECORD = "placement.json"
_STORES = (Path("/var/lib/tenure"), Path("/tmp/tenure"))  # noqa: S108 - checked when taken
_SOCKET_PATH_BYTES_MAX = 107  # sun_path of unix(7), less the closing zero
_SOCKET_NAME = ".s.PGSQL.5432.lock"


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the parts of one cluster lie. `home` belongs to the server's user, mode 0700."""

    data_dir: Path
    home: Path
    run_as: RunAs | None

    @property
    def cluster(self) -> Path:
        """Return PostgreSQL's own data folder."""
        return self.home / "cluster"

    @property
    def password_file(self) -> Path:
        """Return the file with the superuser's password; ours alone, mode 0600."""
        return self.data_dir / "password"

    @property
    def log(self) -> Path:
        """Return the server's log, which we write for it."""
        return self.data_dir / "postgres.log"

    def major(self) -> int | None:
        """Return the major release that made the cluster, or None if there is none yet."""
        try:
            return int((self.cluster / "PG_VERSION").read_text().strip())
        except FileNotFoundError:
            return None

    def password(self) -> str:
        """Return the superuser's password; it is made on the first call."""
        try:
            return self.password_file.read_text().strip()
        except FileNotFoundError:
            word = secrets.token_urlsafe(32)
            handle = os.open(self.password_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "w") as file:
                file.write(word + "\n")
            return word

    def sockets_in_use(self) -> Path | None:
        """Return the folder of the socket of the server that another process runs, if it does."""
        try:
            lines = (self.cluster / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return None
        return Path(lines[4]) if len(lines) > 4 else None  # as pidfile.h of PostgreSQL numbers them

    def own(self, path: Path) -> None:
        """Give `path` to the server's user."""
        if self.run_as is not None:
            os.chown(path, self.run_as.uid, self.run_as.gid)

    def socket_folder(self) -> Path:
        """Return a folder for the socket: 0700, the server's, its path short enough for one."""
        folder = self.home / "run"
        if len(os.fsencode(folder / _SOCKET_NAME)) > _SOCKET_PATH_BYTES_MAX:
            folder = Path(tempfile.mkdtemp(prefix="tenure-pg-"))
        folder.mkdir(mode=0o700, exist_ok=True)
        self.own(folder)
        return folder


def server_user(name: str) -> RunAs | None:
    """Return the user the server runs as: `name` if we are root, else None (ourselves)."""
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise NotFound(
            "POSTGRES_USER_NOT_FOUND",
            f"PostgreSQL does not run as root, and there is no user {name} to run it as",
        ) from None
    return RunAs(entry.pw_name, entry.pw_uid, entry.pw_gid)


def place(data_dir: Path, user: str) -> Placement:
    """Return the placement for `data_dir`, made on first use and the same ever after.

    `data_dir` is created 0711 below existing folders (its files are 0600). Raises WrongState
    POSTGRES_DATA_FOREIGN if another user's start made the data, POSTGRES_DATA_MISSING if the
    place recorded is gone: an empty database in its stead would look like lost leases.
    """
    data_dir = data_dir.absolute()
    data_dir.parent.mkdir(parents=True, exist_ok=True)
    data_dir.mkdir(mode=0o711, exist_ok=True)
    if data_dir.stat().st_uid != os.geteuid():
        raise WrongState(
            "POSTGRES_DATA_FOREIGN",
            f"{data_dir} belongs to user {data_dir.stat().st_uid}; run as that user",
        )
    run_as = server_user(user)
    record = data_dir / _RECORD
    if record.exists():
        placement = Placement(data_dir, Path(json.loads(record.read_text())["home"]), run_as)
    elif run_as is None or can_reach(data_dir / "server", run_as):
        placement = Placement(data_dir, data_dir / "server", run_as)
    else:
        placement = Placement(data_dir, store() / f"cluster-{secrets.token_hex(6)}", run_as)
    if record.exists():
        if not placement.home.is_dir():
            raise WrongState(
                "POSTGRES_DATA_MISSING",
                f"the data kept at {placement.home} is gone; restore it, or reset to start anew",
            )
    else:
        placement.home.mkdir(mode=0o700, exist_ok=True)
        placement.own(placement.home)
        record.write_text(json.dumps({"home": str(placement.home)}) + "\n")
    return placement


def known(data_dir: Path) -> Placement | None:
    """Return the placement that was made for `data_dir` before; None when there is none."""
    try:
        home = json.loads((data_dir / _RECORD).read_text())["home"]
    except FileNotFoundError:
        return None
    return Placement(data_dir, Path(home), None)


def store() -> Path:
    """Return a folder of root's that every user can pass through, for clusters and copies."""
    for folder in _STORES:
        try:
            folder.mkdir(mode=0o711, exist_ok=True)
        except OSError:
            continue
        facts = folder.lstat()
        # In /tmp anybody could have made the name first; take only a real folder of ours.
        if stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid() and facts.st_mode & 0o001:
            return folder
    raise WrongState(
        "POSTGRES_NO_PLACE",
        "the data folder is hidden from PostgreSQL's user and neither "
        + " nor ".join(map(str, _STORES))
        + " can be used; name a data folder that other users can pass through",
    )


def remove(placement: Placement) -> None:
    """Delete the cluster, its password and its record; copies of programs are shared and stay."""
    shutil.rmtree(placement.home, ignore_errors=True)
    for path in (placement.password_file, placement.data_dir / _RECORD, placement.log):
        path.unlink(missing_ok=True)
