"""The file a child's output goes to: ours alone, with one older file kept when it grows large."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Final

LOG_BYTES_MAX: Final = 10 * 2**20
_TAIL_BYTES: Final = 2_000


def open_log(log: Path) -> IO[bytes]:
    """Open the log for appending, mode 0600: what programs print may be private."""
    return os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")


def rotate(log: Path) -> None:
    """Move the log to `<name>.1` once it is over 10 MiB, replacing an older one."""
    if log.exists() and log.stat().st_size > LOG_BYTES_MAX:
        log.replace(log.with_name(log.name + ".1"))


def end_of_log(log: Path) -> str:
    """Return the last 2,000 bytes or so, for an error message."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        return file.read().decode(errors="replace").strip()
