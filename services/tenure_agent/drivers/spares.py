"""Processes that have been guardians, and wait to be the next one's.

Decides how many are kept, and for how long. Each holds nothing of the lease it served and has no
child; it ends when its connection is closed, so also with the agent.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Final

from tenure_agent.guardian.spec import Spec, pack

SPARES_MAX: Final = 16
KEPT_S: Final = 5.0
"""How long one waits unused. Each holds a few megabytes."""


class Spares:
    """The connections to such processes, the one used last on top: its memory is warmest."""

    def __init__(self, *, kept_s: float = KEPT_S) -> None:
        self._kept_s = kept_s
        self._waiting: dict[socket.socket, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def put(self, connection: socket.socket) -> None:
        """Keep a process whose lease is over, or let it end when there are enough."""
        loop = asyncio.get_running_loop()
        if len(self._waiting) >= SPARES_MAX:
            loop.remove_reader(connection)
            connection.close()
            return
        loop.add_reader(connection, self._drop, connection)
        self._waiting[connection] = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(self._kept_s, self._let_go)

    def guard(self, spec: Spec) -> socket.socket | None:
        """Have a kept process guard; return the connection to it, None when there is none.

        As with a forked one, the connection is closed without a message when nothing came of it.
        """
        while self._waiting:
            connection, _ = self._waiting.popitem()
            try:
                connection.send(pack(spec))
            except OSError:
                self._drop(connection)
            else:
                return connection
        return None

    def close(self) -> None:
        """Let all of them end."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for connection in list(self._waiting):
            self._drop(connection)

    def _drop(self, connection: socket.socket) -> None:
        """Let one end, or forget one that has ended: a waiting one says nothing else."""
        self._waiting.pop(connection, None)
        asyncio.get_running_loop().remove_reader(connection)
        connection.close()

    def _let_go(self) -> None:
        """Let those end that were not used for long; the longest unused comes first."""
        loop = asyncio.get_running_loop()
        old = [c for c, since in self._waiting.items() if loop.time() - since >= self._kept_s]
        for connection in old:
            self._drop(connection)
        left = bool(self._waiting)
        self._timer = loop.call_later(self._kept_s, self._let_go) if left else None
