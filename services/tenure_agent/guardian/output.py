"""What the work prints, kept up to a limit.

Both streams of the work end in one pipe that the guardian empties: the work never blocks on a slow
disk of ours, and a flood costs no more than the limit.
"""

from __future__ import annotations

import os

_READ_BYTES = 65_536
_READS_MAX = 16


class BoundedOutput:
    """Empties a pipe into a file of at most `bytes_max`, then says once that it was cut.

    The file is made with the first byte.
    """

    def __init__(self, path: str, bytes_max: int) -> None:
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.reader, False)
        self._path = path
        self._bytes_left = bytes_max
        self._mark = f"\n[tenure: output cut here, after {bytes_max} bytes]\n".encode()
        self._file: int | None = None
        self._cut = False

    def pump(self) -> bool:
        """Move what is there, at most 1 MiB (the most a pipe holds); say whether more may come."""
        for _ in range(_READS_MAX):
            try:
                chunk = os.read(self.reader, _READ_BYTES)
            except BlockingIOError:
                return True
            if not chunk:
                return False
            self._keep(chunk)
        return True

    def close(self) -> None:
        """Let go of the file, if one was made; the pipe is whoever's who made it."""
        if self._file is not None:
            os.close(self._file)

    def _keep(self, chunk: bytes) -> None:
        if self._cut:
            return
        kept = chunk[: self._bytes_left]
        self._bytes_left -= len(kept)
        if len(kept) < len(chunk):
            self._cut = True
            kept += self._mark
        self._write(kept)

    def _write(self, content: bytes) -> None:
        try:
            if self._file is None:
                self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            view = memoryview(content)
            while view:
                view = view[os.write(self._file, view) :]
        except OSError:
            # A full disk cuts the output; it does not end the work.
            self._cut = True
