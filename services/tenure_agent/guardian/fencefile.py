"""The deadline that an agent shares with all its guardians: one write renews them all.

The file holds one little-endian 64-bit number, milliseconds on the boot clock. Its name carries the
boot's id, because after a reboot that clock begins anew and an old deadline would mean nothing.
"""

from __future__ import annotations

import os
import struct

_FORM = struct.Struct("<q")


def boot_id() -> str:
    """Return what names this boot of the machine, `unknown` where the system does not say."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return "unknown"


class FenceFile:
    """The shared deadline. Reads and writes are single calls of eight bytes, so never torn."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def deadline_ms(self) -> int:
        """Return until when work may run, on the boot clock; 0 when contact was never proven."""
        content = os.pread(self._descriptor, _FORM.size, 0)
        return int(_FORM.unpack(content)[0]) if len(content) == _FORM.size else 0

    def renew(self, deadline_ms: int) -> None:
        """Move the deadline later; an earlier one changes nothing."""
        if deadline_ms > self.deadline_ms():
            os.pwrite(self._descriptor, _FORM.pack(deadline_ms), 0)

    def close(self) -> None:
        """Let go of the file; the deadline stays."""
        os.close(self._descriptor)
