"""Reads TLS files, again whenever they change, and makes gRPC credentials of them.

Decides when a certificate that was renewed on disk comes into use: a server looks at every
handshake, a client at its calls (`renewing`). A pair that does not fit, as in the moment between
the writing of its two files, is never used: what was read before stays. gRPC itself takes TLS 1.2
and newer only, with forward secrecy and authenticated ciphers; a test measures it.
"""

from __future__ import annotations

import ssl
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc

from tenure_core.errors import WrongState
from tenure_runtime.rpc.transport import TlsFiles
from tenure_runtime.telemetry.logging import get_logger

_TRIES: Final = 25
_PAUSE_S: Final = 0.02
"""A start waits half a second at most for a pair of files that is being replaced."""

_Marks = tuple[tuple[int, int, int] | None, ...]


@dataclass(frozen=True, slots=True)
class TlsContents:
    """What the files of one side hold (PEM)."""

    certificate: bytes | None
    private_key: bytes | None
    authority: bytes | None


class TlsFilesRefused(WrongState):
    """TLS_FILES_REFUSED: files of certificates or keys are missing, unreadable or no pair."""

    def __init__(self, problem: str) -> None:
        super().__init__("TLS_FILES_REFUSED", f"the TLS files cannot be used: {problem}")


class _Unsettled(TlsFilesRefused):
    """They may fit in a moment: a pair is replaced one file after the other."""


class TlsReader:
    """The files of one side. Safe for use by several threads: gRPC asks from its own."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._used: _Marks = ()
        self._complained: _Marks = ()
        self._lock = threading.Lock()

    def read(self) -> TlsContents:
        """Return what the files hold. Raises TlsFilesRefused."""
        for attempt in range(1, _TRIES + 1):
            try:
                return self._read()
            except _Unsettled:
                if attempt == _TRIES:
                    raise
                time.sleep(_PAUSE_S)  # before anything is served
        raise AssertionError("the last try returns or raises")

    def changed(self) -> TlsContents | None:
        """Return what the files hold if that is new and can be used; never raises."""
        with self._lock:
            marks = _marks(self._files)
            if marks == self._used:
                return None
            try:
                contents = self._read()
            except TlsFilesRefused as error:
                if marks != self._complained:
                    self._complained = marks
                    get_logger().warning("tls.not_renewed", problem=str(error))
                return None
            get_logger().info("tls.renewed", certificate=str(self._files.certificate))
            return contents

    def _read(self) -> TlsContents:
        marks = _marks(self._files)
        contents = _contents(self._files)
        if marks != _marks(self._files):
            raise _Unsettled("they change while they are read")
        self._used = marks
        return contents


def server_credentials(files: TlsFiles) -> grpc.ServerCredentials:
    """Return credentials that follow the files. Raises TlsFilesRefused."""
    assert files.certificate is not None and files.private_key is not None, (
        "a server shows who it is"
    )
    reader = TlsReader(files)

    def fetch() -> grpc.ServerCertificateConfiguration | None:
        contents = reader.changed()
        return None if contents is None else _configuration(contents)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(reader.read()),
        fetch,  # type: ignore[arg-type] # None, for no change, is unknown to the stubs only
        require_client_authentication=files.authority is not None,
    )


def _configuration(contents: TlsContents) -> grpc.ServerCertificateConfiguration:
    assert contents.private_key is not None and contents.certificate is not None
    pair = (contents.private_key, contents.certificate)
    return grpc.ssl_server_certificate_configuration([pair], root_certificates=contents.authority)


def channel_credentials(contents: TlsContents) -> grpc.ChannelCredentials:
    """Return the credentials of a client."""
    return grpc.ssl_channel_credentials(
        root_certificates=contents.authority,
        private_key=contents.private_key,
        certificate_chain=contents.certificate,
    )


def _contents(files: TlsFiles) -> TlsContents:
    try:
        if files.certificate is not None and files.private_key is not None:
            _check_pair(files.certificate, files.private_key)
        return TlsContents(
            files.certificate.read_bytes() if files.certificate else None,
            files.private_key.read_bytes() if files.private_key else None,
            files.authority.read_bytes() if files.authority else None,
        )
    except ssl.SSLError as error:
        raise _Unsettled(
            f"{files.certificate} and {files.private_key} are no pair: {error.reason}"
        ) from None
    except OSError as error:
        raise TlsFilesRefused(f"{error.filename}: {error.strerror}") from None


def _check_pair(certificate: Path, private_key: Path) -> None:
    if private_key.stat().st_mode & 0o007:
        raise TlsFilesRefused(f"{private_key} must not be readable by everybody (chmod o-rwx)")
    # An empty password: a key that has one is refused, where OpenSSL would ask the terminal.
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, private_key, "")


def _marks(files: TlsFiles) -> _Marks:
    return tuple(
        None if path is None else _mark(path)
        for path in (files.certificate, files.private_key, files.authority)
    )


def _mark(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
