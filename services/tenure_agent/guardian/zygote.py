"""The warm process from which guardians are forked, so that a lease costs a fork and no start-up.

It never touches gRPC (a fork after gRPC was used may hang), imports what guardians need, and does
one thing: for each spec that the agent sends it makes a guardian and forks a process that runs it,
with the connection that came along. It ends with the agent; guardians do not.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import traceback
from typing import NoReturn

from tenure_agent.guardian.confinement import discard_idle
from tenure_agent.guardian.guard import Guardian, prepare
from tenure_agent.guardian.spec import MESSAGE_BYTES_MAX, unpack


def main() -> None:
    """Serve the agent at descriptor 3 of this process until it goes."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # guardians that ended are reaped by the kernel
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    # What is warm now stays shared with every guardian: no collector touches its pages.
    gc.disable()
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))
    discard_idle()


def serve(agent: socket.socket) -> None:
    """Make a guardian for each spec the agent sends; return when the agent has gone."""
    agent.setblocking(True)
    os.set_inheritable(agent.fileno(), False)
    while True:
        try:
            content, descriptors, _, _ = socket.recv_fds(agent, MESSAGE_BYTES_MAX, 1)
        except ConnectionError:
            return
        if not content:
            return
        connection = socket.socket(fileno=descriptors[0])
        os.set_inheritable(connection.fileno(), False)
        try:
            _guard(content, connection, agent)
        except OSError:
            # The agent sees its connection closed, and what is left of the folder.
            traceback.print_exc()
        finally:
            connection.close()


def _guard(content: bytes, connection: socket.socket, agent: socket.socket) -> None:
    guardian = prepare(unpack(content), connection)
    if guardian is None:
        return
    try:
        if os.fork() == 0:
            agent.close()
            _be(guardian)
    finally:
        guardian.let_go()


def _be(guardian: Guardian) -> NoReturn:
    code = 1
    try:
        os.setsid()
        guardian.run()
        code = 0
    except Exception:  # noqa: BLE001 - the top of a process; the agent sees the closed connection
        traceback.print_exc()
    finally:
        # Nothing of the zygote's own end may run twice.
        os._exit(code)
