"""Writes one database to a file, at one point in time, and reads it back into an empty one.

What is in the file is `pg_dump`'s own form, compressed; the programs are those of the server or of
the wheel, which read every server that is not newer than they are.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from tenure_core.errors import Unavailable, WrongState

from .postgres_binaries import Binaries

FEED_ROWS: Final = "*.changes"
"""What watchers were still to be sent: after a restore every feed begins anew."""
_SAID_MAX: Final = 500


async def dump(binaries: Binaries, dsn: str, target: Path) -> None:
    """Write the database to `target`: one snapshot of all schemas, while everybody goes on.

    Raises Unavailable DUMP_FAILED, WrongState DUMP_PROGRAM_MISSING.
    """
    await _run(
        binaries.program("pg_dump"),
        dsn,
        *("--format=custom", "--no-owner", "--no-privileges", "--serializable-deferrable"),
        *(f"--exclude-table-data={FEED_ROWS}", f"--file={target}"),
    )


async def load(binaries: Binaries, dsn: str, source: Path) -> None:
    """Read `source` into an empty database, whole or not at all. Raises as `dump` does."""
    await _run(
        binaries.program("pg_restore"),
        dsn,
        *("--no-owner", "--no-privileges", "--single-transaction", "--exit-on-error", str(source)),
    )


async def _run(program: str, dsn: str, *arguments: str) -> None:
    address, password = without_password(dsn)
    environment = {**os.environ, "PGPASSWORD": password, "PGCONNECT_TIMEOUT": "10"}
    try:
        process = await asyncio.create_subprocess_exec(
            *(program, f"--dbname={address}", *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
        )
    except FileNotFoundError:
        raise WrongState(
            "DUMP_PROGRAM_MISSING", f"there is no {program} beside the server's own programs"
        ) from None
    try:
        _, said = await process.communicate()
    except BaseException:
        process.kill()
        await process.wait()
        raise
    if process.returncode:
        text = said.decode(errors="replace").strip()[-_SAID_MAX:]
        raise Unavailable("DUMP_FAILED", f"{Path(program).name} ended early: {text}")


def without_password(dsn: str) -> tuple[str, str]:
    """Return a database's address as may stand on a command line, and the password apart."""
    parts = urlsplit(dsn)
    who, at, where = parts.netloc.rpartition("@")
    user, _, password = who.partition(":")
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    password = query.pop("password", unquote(password))
    # Not urlunsplit: it leaves out the slashes before an empty host, which libpq wants.
    rest = f"?{urlencode(query)}" if query else ""
    return f"{parts.scheme}://{user}{at}{where}{parts.path}{rest}", password
