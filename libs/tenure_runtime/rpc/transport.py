"""What servers and clients share of the transport: message size, TLS files, and no forking.

Apart from `server`, so that a client (the CLI above all) loads nothing of a server.
"""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MESSAGE_BYTES_MAX: Final = 4 * 1024 * 1024

# The process that used gRPC first, and None until one did.
_users: Final[list[int]] = []


class ForkedProcess(RuntimeError):
    """gRPC was used before this process was forked; here it would hang for ever."""


def refuse_after_fork() -> None:
    """Note that this process uses gRPC. Raises ForkedProcess when its parent did so before.

    Start processes by spawn or exec, never by fork.
    """
    if not _users:
        _users.append(os.getpid())
    if _users[0] != os.getpid():
        raise ForkedProcess(
            "gRPC does not survive a fork: start the process by spawn or exec, not by fork"
        )


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files of one side.

    A server needs its certificate and key; with `authority`, clients must show a certificate too. A
    client needs the authority of the server, and a certificate and key where they are asked for.
    """

    certificate: Path | None = None
    private_key: Path | None = None
    authority: Path | None = None


def is_loopback(address: str) -> bool:
    """Say whether host:port is of this machine alone; a name other than localhost is not."""
    name = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"
