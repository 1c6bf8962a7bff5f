"""The warm process from which guardians are forked, so that a lease costs a fork and no start-up.

It never touches gRPC (a fork after gRPC was used may hang), imports what guardians need, and does
one thing: for each spec that the agent sends it makes a guardian and forks a process that runs it,
with the connection that came along. It ends with the agent; guardians do not.

A process whose lease is over waits on its connection for the spec of another, until the agent
closes it: a process that has run once has its own pages, and needs no fork (docs/adr/0084).
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import traceback
from contextlib import suppress
from typing import NoReturn

from tenure_agent.guardian import folder as folders
from tenure_agent.guardian.confinement import discard_idle, forget_made
from tenure_agent.guardian.guard import Guardian
from tenure_agent.guardian.spec import MESSAGE_BYTES_MAX, Spec, is_spec, unpack

# A process serves so many leases, one after the other: whatever it may leak is bounded.
LEASES_MAX = 500


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
    guardian = _prepare(unpack(content), connection)
    if guardian is None:
        return
    try:
        if os.fork() == 0:
            agent.close()
            _be(guardian)
    finally:
        guardian.let_go()


def _prepare(spec: Spec, agent: socket.socket) -> Guardian | None:
    """Take the folder and make all that its guardian needs.

    Returns None when the folder belongs to another or was voided: then nothing may run there.
    Raises OSError when the machine has no room for it: nothing has begun then.
    """
    claim = folders.take(spec.folder)
    if claim is None:
        return None
    try:
        return Guardian(spec, claim, agent)
    except OSError:
        os.close(claim)
        raise


def _be(guardian: Guardian) -> NoReturn:
    code = 1
    try:
        os.setsid()
        forget_made()
        _serve_leases(guardian)
        discard_idle()
        code = 0
    except Exception:  # noqa: BLE001 - the top of a process; the agent sees the closed connection
        traceback.print_exc()
    finally:
        # Nothing of the zygote's own end may run twice.
        os._exit(code)


def _serve_leases(guardian: Guardian | None) -> None:
    """Be a guardian, then another as long as the agent has use for one. Never two at a time."""
    for left in reversed(range(LEASES_MAX)):
        if guardian is None or not guardian.run(again=left > 0):
            return
        agent = guardian.leave()
        # Nothing is guarded now: whoever ends it, ends it.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        spec = _next_spec(agent) if agent is not None else None
        if agent is None or spec is None:
            return
        guardian = _prepare(spec, agent)


def _next_spec(agent: socket.socket) -> Spec | None:
    """Wait for the next spec; None when the agent has gone or has no more use for us.

    What the agent said to the lease that ended, before it heard of that, comes first and is void.
    """
    agent.setblocking(True)
    with suppress(ConnectionError):
        while content := agent.recv(MESSAGE_BYTES_MAX):
            if is_spec(content):
                return unpack(content)
    return None
