"""Shows the output of many children as one stream, and keeps each child's in a bounded file.

Decides the prefix, the colour and the size of the files. What a line says is the child's business.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import IO, Final, TextIO

from .log_file import LOG_BYTES_MAX, open_log, rotate

LINE_BYTES_MAX: Final = 64 * 2**10
"""A longer line is cut into several."""

_TAIL_LINES: Final = 20
_COLOURS: Final = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)  # ANSI: cyan, yellow, green, …


class LogStream:
    """Where all children's lines come together, each with its child's name before it.

    `target` None shows nothing. `colour` puts the name in a colour of its own. `render` may turn a
    line into a more readable one, or into None to leave it out.
    """

    def __init__(
        self,
        target: TextIO | None,
        *,
        colour: bool = False,
        render: Callable[[str], str | None] | None = None,
    ) -> None:
        self._target = target
        self._colour = colour
        self._render = render
        self._names: dict[str, str] = {}
        self._width = 0

    def register(self, name: str) -> None:
        """Give a child its colour and make room for its name."""
        self._names.setdefault(name, str(_COLOURS[len(self._names) % len(_COLOURS)]))
        self._width = max(self._width, len(name))

    def show(self, name: str, line: str) -> None:
        """Write one line with the child's name before it."""
        if self._target is None:
            return
        text = self._render(line) if self._render is not None else line
        if text is None:
            return
        label = name.ljust(self._width)
        if self._colour:
            label = f"\x1b[{self._names.get(name, '0')}m{label}\x1b[0m"
        try:
            self._target.write(f"{label} │ {text}\n")
            self._target.flush()
        except (OSError, ValueError):
            self._target = None  # The terminal has gone; the files go on.


class ChildLog:
    """One child's output: into its file, whose size is bounded, and into the stream."""

    def __init__(self, name: str, path: Path, stream: LogStream) -> None:
        self._name = name
        self._path = path
        self._stream = stream
        self._file: IO[bytes] | None = None
        self._written = 0
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        stream.register(name)

    def tail(self) -> str:
        """Return the last lines, for an error message."""
        return "\n".join(self._tail)

    def note(self, text: str) -> None:
        """Write a line of ours about the child."""
        self._write(f"-- {self._name} {text}".encode())

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    async def pump(self, process: subprocess.Popen[bytes]) -> None:
        """Carry over the process' output, line by line, until it closes it."""
        pipe = process.stdout
        assert pipe is not None, "the child is started with its output in a pipe"
        os.set_blocking(pipe.fileno(), False)
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        try:
            while line := await _next_line(reader):
                self._write(line.rstrip(b"\r\n"))
        finally:
            transport.close()

    def _write(self, line: bytes) -> None:
        if self._file is None or self._written > LOG_BYTES_MAX:
            self.close()
            rotate(self._path)
            self._file = open_log(self._path)
            self._written = self._path.stat().st_size
        self._file.write(line + b"\n")
        self._file.flush()
        self._written += len(line) + 1
        text = line.decode(errors="replace")
        self._tail.append(text)
        self._stream.show(self._name, text)


async def _next_line(reader: asyncio.StreamReader) -> bytes:
    """Return the next line, or as much of it as may be one; empty at the end."""
    try:
        return await reader.readuntil(b"\n")
    except asyncio.IncompleteReadError as rest:
        return rest.partial
    except asyncio.LimitOverrunError as long:
        return await reader.readexactly(min(long.consumed, LINE_BYTES_MAX))
