"""A lock on a folder that its holder cannot leave behind: the kernel drops it when the holder ends.

Decides only whether somebody else holds it. The file stays; its presence means nothing.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO

from tenure_core.errors import WrongState


class FolderLock:
    """An exclusive lock on `folder`, taken at once or refused."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "lock"
        self._file: IO[str] | None = None

    def take(self, reason: str, message: str) -> None:
        """Take the lock unless we hold it; raise WrongState with `reason` if somebody else does.

        Our process id is written into the file, so that a person can find the holder.
        """
        if self._file is not None:
            return
        file = os.fdopen(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600), "r+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = file.read().strip() or "unknown"
            file.close()
            raise WrongState(reason, f"{message} (process {holder})", pid=holder) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        self._file = file

    def release(self) -> None:
        """Let go of the lock if it is held."""
        if self._file is not None:
            self._file.close()
            self._file = None
