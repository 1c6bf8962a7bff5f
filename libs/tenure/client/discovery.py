"""Finds the services and the caller's key: as given, from the environment, or from a local suite.

Decides precedence: arguments, then `TENURE_<SERVICE>_ADDRESS`, `TENURE_API_KEY`, `TENURE_KEY_FILE`
and `TENURE_TLS_…`, then the context in use (`contexts`), then the folder of a suite that `tenure
up` started on this machine (`TENURE_DATA`, or `tenure` in the user's data folder). A folder that
is given wins over the environment. Connecting is left to `aio`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tenure.client.contexts import context_in_use
from tenure_core.errors import NotFound
from tenure_runtime.rpc.transport import TlsFiles

_STATE: Final = "suite.json"
_KEY: Final = Path("keys", "operator.key")


def default_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return where `tenure up` keeps its suite unless told otherwise."""
    named = environment.get("TENURE_DATA")
    if named:
        return Path(named).absolute()
    base = environment.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "tenure"


@dataclass(frozen=True, slots=True)
class Discovery:
    """Where to look. Nothing is read before it is asked for.

    `addresses` maps services (`admission`, `registry`, …) to host:port.
    """

    folder: Path | None = None
    addresses: Mapping[str, str] = field(default_factory=dict)
    api_key: str | None = field(default=None, repr=False)
    tls: TlsFiles | None = None
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)

    def address(self, service: str) -> str:
        """Return host:port of a service. Raises NotFound SUITE_NOT_FOUND."""
        named = self.addresses.get(service)
        if not named and self.folder is None:
            named = self.environment.get(f"TENURE_{service.upper()}_ADDRESS")
            named = named or context_in_use(self.environment).addresses.get(service)
        return named or self._of_suite(service)

    def key(self) -> str:
        """Return the caller's API key. Raises NotFound API_KEY_NOT_FOUND."""
        if self.api_key:
            return self.api_key
        if self.folder is None:
            named = self.environment.get("TENURE_API_KEY")
            if named:
                return named
            stored = self.environment.get("TENURE_KEY_FILE")
            kept = "" if stored else context_in_use(self.environment).credential
            if kept:
                return kept
            file = Path(stored or self._folder() / _KEY)
        else:
            file = self.folder / _KEY
        try:
            return file.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            raise NotFound(
                "API_KEY_NOT_FOUND",
                f"no API key: set TENURE_API_KEY or TENURE_KEY_FILE ({file} does not exist)",
            ) from None

    def transport(self) -> TlsFiles | None:
        """Return the TLS files to call with; None means plain text."""
        authority = self.environment.get("TENURE_TLS_AUTHORITY")
        if self.tls is not None or self.folder is not None:
            return self.tls
        authority = authority or context_in_use(self.environment).tls_authority
        if not authority:
            return None
        certificate = self.environment.get("TENURE_TLS_CERTIFICATE")
        private_key = self.environment.get("TENURE_TLS_PRIVATE_KEY")
        return TlsFiles(
            Path(certificate) if certificate else None,
            Path(private_key) if private_key else None,
            Path(authority),
        )

    def _folder(self) -> Path:
        return self.folder or default_folder(self.environment)

    def _of_suite(self, service: str) -> str:
        folder = self._folder()
        try:
            ports = json.loads((folder / _STATE).read_text(encoding="utf-8"))["ports"]
        except FileNotFoundError:
            raise NotFound(
                "SUITE_NOT_FOUND",
                f"there is no suite in {folder}: `tenure up` starts one, or set "
                f"TENURE_{service.upper()}_ADDRESS",
            ) from None
        return f"127.0.0.1:{ports[service]}"
