"""Certificates for tests, from an authority of their own."""

from __future__ import annotations

from pathlib import Path

from tenure_runtime.clocks import SystemClock
from tenure_runtime.embedded.authority import CertificateCabinet
from tenure_runtime.embedded.authority_plan import CertificateTerms
from tenure_runtime.rpc.identity import Role
from tenure_runtime.rpc.peer import Peer
from tenure_runtime.rpc.transport import TlsFiles


def certified(
    folder: Path,
    role: Role | str,
    name: str,
    *,
    terms: CertificateTerms | None = None,
    later_ms: int = 0,
) -> TlsFiles:
    """Return the files of a caller, made now or `later_ms` from now; a folder is an authority."""
    cabinet = CertificateCabinet(folder, terms)
    cabinet.renew([Peer(Role(role), name)], SystemClock().now_ms() + later_ms)
    return cabinet.files(name)
