"""Looks at certificates on disk, for `tenure doctor`."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tenure_runtime.embedded.authority import (
    files_in,
    is_signed_by,
    read_certificate,
    read_certificates,
    span_of,
)
from tenure_runtime.rpc.transport import TlsFiles


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """What is true of one certificate. `left_ms` is negative once it has ended."""

    file: str
    readable: bool = False
    fits_key: bool = False
    trusted: bool = False
    left_ms: int = 0
    life_ms: int = 0


def look_at(every: Iterable[TlsFiles], now_ms: int) -> list[CertificateFacts]:
    """Return what is true of each certificate."""
    return [_look_at(files, now_ms) for files in every if files.certificate is not None]


def used_here(folder: Path) -> list[TlsFiles]:
    """Return the files that the environment names, and all those in the folder of a suite."""
    named = {
        part: os.environ.get(f"TENURE_TLS_{part}")
        for part in ("CERTIFICATE", "PRIVATE_KEY", "AUTHORITY")
    }
    if all(named.values()):
        return [TlsFiles(*(Path(path or "") for path in named.values()))]
    return [files_in(folder, file.stem) for file in sorted(folder.glob("*.crt"))]


def _look_at(files: TlsFiles, now_ms: int) -> CertificateFacts:
    assert files.certificate is not None and files.authority is not None
    certificate = read_certificate(files.certificate)
    if certificate is None:
        return CertificateFacts(str(files.certificate))
    span = span_of(certificate)
    authorities = read_certificates(files.authority)
    return CertificateFacts(
        str(files.certificate),
        readable=True,
        fits_key=_fits_key(files),
        trusted=any(is_signed_by(certificate, each) for each in authorities),
        left_ms=span.end - now_ms,
        life_ms=span.duration_ms,
    )


def _fits_key(files: TlsFiles) -> bool:
    assert files.certificate is not None
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_cert_chain(files.certificate, files.private_key, "")
    except OSError:
        return False
    return True
