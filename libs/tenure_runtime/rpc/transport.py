"""What servers and clients share of the transport: the size of a message and the files of TLS.

Apart from `server`, so that a client (the CLI above all) loads nothing of a server.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

MESSAGE_BYTES_MAX: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files of one side.

    A server needs its certificate and key; with `authority`, clients must show a certificate too. A
    client needs the authority of the server, and a certificate and key where they are asked for.
    """

    certificate: Path | None = None
    private_key: Path | None = None
    authority: Path | None = None
