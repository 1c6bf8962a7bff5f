"""Makes a new cluster with initdb, and keeps the log that its programs write.

Decides how PostgreSQL's programs are run (user, environment, output). Which of them, when, and
whether again is `postgres`' business.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import IO, Final

from tenure_core.errors import Unavailable

from . import child
from .postgres_binaries import Binaries
from .postgres_placement import Placement

INITDB_TIMEOUT_S: Final = 120.0
_LOG_BYTES_MAX: Final = 10 * 2**20
_LOG_TAIL_BYTES: Final = 2_000


async def make_cluster(placement: Placement, binaries: Binaries, superuser: str) -> None:
    """Run initdb beside the final place and move the result there once it is whole.

    Text sorts by code point (locale C), so that an order never depends on the machine. Raises
    Unavailable POSTGRES_NOT_STARTED with initdb's last words if it fails or takes two minutes.
    """
    scratch = placement.home / "cluster.new"
    shutil.rmtree(scratch, ignore_errors=True)
    word = placement.home / "initial-password"
    word.unlink(missing_ok=True)
    handle = os.open(word, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(placement.password() + "\n")
    placement.own(word)
    command = [
        binaries.program("initdb"),
        *("--pgdata", str(scratch), "--username", superuser, "--pwfile", str(word)),
        *("--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--data-checksums"),
    ]
    try:
        with open_log(placement.log) as log:
            process = spawn_program(command, log, placement, signal.SIGKILL)
            try:
                await child.ended(process, INITDB_TIMEOUT_S)
            finally:
                code = await child.stop(process, ())
    finally:
        word.unlink(missing_ok=True)
    if code != 0:
        raise not_started("initdb failed", placement.log)
    scratch.rename(placement.cluster)


def spawn_program(
    command: list[str],
    log: IO[bytes],
    placement: Placement,
    on_parent_death: signal.Signals,
) -> subprocess.Popen[bytes]:
    """Start one of PostgreSQL's programs as the cluster's user, in an environment of our own.

    The caller's environment could change what the server does (PGDATA, LD_PRELOAD, locale).
    """
    return child.spawn(
        command,
        output=log,
        run_as=placement.run_as,
        on_parent_death=on_parent_death,
        environment={"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"},
        folder=placement.home,
    )


def open_log(log: Path) -> IO[bytes]:
    """Open the log for appending; statements in it may be private, so it is ours alone."""
    return os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")


def rotate(log: Path) -> None:
    """Keep one older log once this one is over 10 MiB."""
    if log.exists() and log.stat().st_size > _LOG_BYTES_MAX:
        log.replace(log.with_suffix(".log.1"))


def not_started(what: str, log: Path) -> Unavailable:
    """Return the error that says what failed and shows the end of the log."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _LOG_TAIL_BYTES))
        tail = file.read().decode(errors="replace").strip()
    return Unavailable("POSTGRES_NOT_STARTED", f"{what}. The end of {log}:\n{tail}")
