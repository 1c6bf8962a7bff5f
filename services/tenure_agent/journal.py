"""The agent's journal: lines appended to a file, durable before anyone acts on them.

Decides the form of the file and how it survives: each line carries a checksum, a torn tail is cut
off when it is opened, and a new generation replaces the file in one step when it has grown. What a
record means is left to `ledger`.

Appends are grouped: all records that wait share one write and one flush (`fdatasync`).
"""

from __future__ import annotations

import asyncio
import json
import os
import time
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

Record = list[Any]
"""A JSON array whose first item names the kind of record."""

NAME: Final = "journal.jsonl"
_CHECKSUM_DIGITS: Final = 8
_QUICK_S: Final = 0.002


def encode(record: Record) -> bytes:
    """Return the line of a record: checksum, space, JSON, newline."""
    body = json.dumps(record, separators=(",", ":")).encode()
    return b"%08x %b\n" % (zlib.crc32(body), body)


def decode(content: bytes) -> tuple[list[Record], int]:
    """Return the records before the first damaged or unfinished line, and their length in bytes."""
    records: list[Record] = []
    good = 0
    while (end := content.find(b"\n", good)) >= 0:
        record = _record(content[good:end])
        if record is None:
            break
        records.append(record)
        good = end + 1
    return records, good


def _record(line: bytes) -> Record | None:
    body = line[_CHECKSUM_DIGITS + 1 :]
    if line[: _CHECKSUM_DIGITS + 1] != b"%08x " % zlib.crc32(body):
        return None
    record = json.loads(body)
    return record if isinstance(record, list) and record else None


class Journal:
    """An open journal. One process at a time may hold a folder; `open` takes its lock first."""

    def __init__(self, path: Path, descriptor: int, size: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self._size = size
        self._waiting = bytearray()
        self._appended = 0
        self._durable = 0
        self._flush = asyncio.Lock()
        self._last_flush_s = _QUICK_S

    @classmethod
    def open(cls, folder: Path) -> tuple[Journal, list[Record]]:
        """Open the journal of `folder`, made if absent; return it and what it holds.

        Damage in the middle (not a torn tail, but a bad disk) ends the history there as well: what
        follows cannot be trusted.
        """
        path = folder / NAME
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        records, good = decode(path.read_bytes())
        os.ftruncate(descriptor, good)
        os.fsync(descriptor)
        _sync_folder(folder)
        return cls(path, descriptor, good), records

    @property
    def size_bytes(self) -> int:
        """Return the size of the present generation, with what waits."""
        return self._size + len(self._waiting)

    def append(self, record: Record) -> None:
        """Add a record; it is durable once a `durable()` that was called later returns."""
        self._waiting += encode(record)
        self._appended += 1

    async def durable(self) -> None:
        """Return when everything appended so far is on disk. Raises OSError when it cannot be."""
        wanted = self._appended
        while self._durable < wanted:
            async with self._flush:
                if self._durable >= wanted:
                    return
                content, upto = bytes(self._waiting), self._appended
                self._waiting.clear()
                await self._write_durably(content)
                self._size += len(content)
                self._durable = upto

    async def _write_durably(self, content: bytes) -> None:
        """Write and flush: here while the disk is quick, in a thread after it was slow.

        Handing over to a thread costs more than a quick flush; a slow one must not stop the beats.
        """
        if self._last_flush_s < _QUICK_S:
            self._write(content)
        else:
            await asyncio.to_thread(self._write, content)

    def _write(self, content: bytes) -> None:
        began = time.perf_counter()
        _write_all(self._descriptor, content)
        os.fdatasync(self._descriptor)
        self._last_flush_s = time.perf_counter() - began

    async def replace(self, statement: Callable[[], Iterable[Record]]) -> None:
        """Begin a new generation with the records that `statement` returns: all that is true now.

        It is asked when no flush is under way, so that what was appended meanwhile is in it.
        """
        async with self._flush:
            content, upto = b"".join(encode(record) for record in statement()), self._appended
            self._waiting.clear()
            descriptor = await asyncio.to_thread(self._write_generation, content)
            os.close(self._descriptor)
            self._descriptor = descriptor
            self._size = len(content)
            self._durable = upto

    def _write_generation(self, content: bytes) -> int:
        temporary = self._path.with_suffix(".new")
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
        descriptor = os.open(temporary, flags, 0o600)
        _write_all(descriptor, content)
        os.fsync(descriptor)
        temporary.replace(self._path)
        _sync_folder(self._path.parent)
        return descriptor

    def close(self) -> None:
        """Let go of the file; what was not made durable is lost."""
        os.close(self._descriptor)


def _write_all(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
