"""The warm process from which guardians are forked, so that a lease costs a fork and no start-up.

It never touches gRPC (a fork after gRPC was used may hang), imports what guardians need, and does
one thing: for each folder that the agent names it forks a guardian, handing it the connection that
came with the name. It ends with the agent; guardians do not.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import traceback

from tenure_agent.guardian.guard import guard

PATH_BYTES_MAX = 4_096


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


def serve(agent: socket.socket) -> None:
    """Fork a guardian for each folder the agent names; return when the agent has gone."""
    agent.setblocking(True)
    os.set_inheritable(agent.fileno(), False)
    while True:
        try:
            content, descriptors, _, _ = socket.recv_fds(agent, PATH_BYTES_MAX, 1)
        except ConnectionError:
            return
        if not content:
            return
        connection = socket.socket(fileno=descriptors[0])
        if _fork() == 0:
            agent.close()
            _be_guardian(content.decode(), connection)
        connection.close()


def _fork() -> int:
    """Fork; when the system refuses, return -1: the agent sees its connection closed."""
    try:
        return os.fork()
    except OSError:
        return -1


def _be_guardian(path: str, connection: socket.socket) -> None:
    os.set_inheritable(connection.fileno(), False)
    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        guard(path, connection)
        code = 0
    except Exception:  # noqa: BLE001 - the top of a process; the agent sees the closed connection
        traceback.print_exc()
    finally:
        # Nothing of the zygote's own end may run twice.
        sys.stderr.flush()
        os._exit(code)
