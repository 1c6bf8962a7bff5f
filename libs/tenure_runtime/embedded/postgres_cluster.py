"""Makes a new cluster with initdb.

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
from .log_file import end_of_log, open_log
from .postgres_binaries import Binaries
from .postgres_placement import Placement

INITDB_TIMEOUT_S: Final = 120.0


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


def not_started(what: str, log: Path) -> Unavailable:
    """Return the error that says what failed and shows the end of the log."""
    return Unavailable("POSTGRES_NOT_STARTED", f"{what}. The end of {log}:\n{end_of_log(log)}")
