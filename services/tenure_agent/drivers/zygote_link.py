"""Keeps one warm process and hands it what is to be guarded.

Decides how it is started (a fresh interpreter, so it never sees gRPC) and that it is started again
when it has gone. Guardians that it forked live on without it.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Final

from tenure_agent.guardian.spec import Spec, pack
from tenure_runtime.telemetry.logging import get_logger

_SERVICES: Final = str(Path(__file__).resolve().parents[2])
_PROGRAM: Final = (
    "import sys; sys.path.insert(0, sys.argv[2]); "
    "from tenure_agent.guardian.zygote import main; main()"
)


class ZygoteLink:
    """The agent's side of the warm process. `start` it before gRPC is used, to be quick."""

    def __init__(self, log_file: Path) -> None:
        self._log_file = log_file
        self._waiting: deque[tuple[bytes, socket.socket]] = deque()
        self._socket: socket.socket | None = None
        self._writing = False
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Return the id of the warm process, None when it is not there."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self) -> None:
        """Start the warm process if there is none. Raises OSError when the system refuses."""
        if self._socket is not None:
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, self._log_file.open("ab") as log:
            number = str(theirs.fileno())
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-I", "-S", "-c", _PROGRAM, number, _SERVICES],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={},
                pass_fds=(theirs.fileno(),),
            )
        ours.setblocking(False)
        self._socket = ours
        asyncio.get_running_loop().add_reader(ours, self._gone)

    def guard(self, spec: Spec) -> socket.socket:
        """Have a guardian forked; return our end of the connection to it.

        The connection is closed without a message when no guardian came of it.
        """
        self.start()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._waiting.append((pack(spec), theirs))
        self._send()
        return ours

    def _send(self) -> None:
        """Send what waits, as far as the warm process takes it now."""
        if self._socket is None:
            return
        loop = asyncio.get_running_loop()
        while self._waiting:
            content, connection = self._waiting[0]
            try:
                socket.send_fds(self._socket, [content], [connection.fileno()])
            except BlockingIOError:
                self._writing = True
                loop.add_writer(self._socket, self._send)
                return
            except OSError:
                self._gone()
                return
            self._waiting.popleft()
            connection.close()
        if self._writing:
            self._writing = False
            loop.remove_writer(self._socket)

    def _gone(self) -> None:
        """Forget a warm process that has ended; the next `guard` starts another."""
        if self._socket is not None:
            get_logger().warning("zygote.ended", pid=self._process and self._process.pid)
        self.close()

    def close(self) -> None:
        """Let the warm process end; guardians stay."""
        if self._socket is None:
            return
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._socket)
        loop.remove_writer(self._socket)
        self._socket.close()
        self._socket = None
        while self._waiting:
            self._waiting.popleft()[1].close()
        assert self._process is not None
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(0.5)


def connect_to(folder: Path, name: str) -> socket.socket:
    """Connect to the guardian of `folder`. Raises OSError when none listens.

    Goes through the folder's descriptor, because a socket's path holds 107 bytes at most.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.connect(f"/proc/self/fd/{descriptor}/{name}")
    except OSError:
        connection.close()
        raise
    finally:
        os.close(descriptor)
    return connection
