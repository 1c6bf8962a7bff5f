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
from typing import Any, Final

from tenure.client.contexts import context_in_use
from tenure_core.errors import NotFound, WrongState
from tenure_runtime.rpc.transport import TlsFiles, is_loopback

_STATE: Final = "suite.json"
_OPERATOR: Final = "operator"
_KEY: Final = Path("keys", f"{_OPERATOR}.key")
_TLS: Final = "tls"


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
        return self._named(service) or f"127.0.0.1:{self._suite(service)['ports'][service]}"

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

    def transport(self, service: str) -> TlsFiles | None:
        """Return the TLS files to call a service with; None means plain text.

        A folder that is given says how its suite speaks, also where addresses are given beside it.
        Raises WrongState PLAINTEXT_REFUSED for plain text to another machine, unless
        TENURE_PLAINTEXT is set.
        """
        if self.tls is not None:
            return self.tls
        if self.folder is None:
            named = self._tls_named()
            if named is not None:
                return named
        address = self._named(service)
        if self.folder is not None or not address:
            return self._tls_of_suite(service)
        if not is_loopback(address) and not self.environment.get("TENURE_PLAINTEXT"):
            raise WrongState(
                "PLAINTEXT_REFUSED",
                f"the key would go to {address} in plain text: set TENURE_TLS_AUTHORITY, "
                "TENURE_TLS_CERTIFICATE and TENURE_TLS_PRIVATE_KEY (or TENURE_PLAINTEXT=1)",
            )
        return None

    def _tls_named(self) -> TlsFiles | None:
        """Return the files that the environment names, or the context in use."""
        if not self.environment.get("TENURE_TLS_AUTHORITY"):
            return context_in_use(self.environment).tls
        return TlsFiles(
            self._path("TENURE_TLS_CERTIFICATE"),
            self._path("TENURE_TLS_PRIVATE_KEY"),
            self._path("TENURE_TLS_AUTHORITY"),
        )

    def _path(self, variable: str) -> Path | None:
        named = self.environment.get(variable)
        return Path(named) if named else None

    def _named(self, service: str) -> str | None:
        named = self.addresses.get(service)
        if not named and self.folder is None:
            named = self.environment.get(f"TENURE_{service.upper()}_ADDRESS")
            named = named or context_in_use(self.environment).addresses.get(service)
        return named

    def _folder(self) -> Path:
        return self.folder or default_folder(self.environment)

    def _tls_of_suite(self, service: str) -> TlsFiles | None:
        """Return the files of whoever a keyring key is of: its name stands in the key.

        Any person's go with other credentials; whoever may read this folder is its operator.
        """
        # A suite of a version without TLS says nothing about it.
        if self._suite(service).get("plaintext", True):
            return None
        key = self.key()
        name = key[len("tnr_") :].rpartition("_")[0] if key.startswith("tnr_") else _OPERATOR
        tls = self._folder() / _TLS
        return TlsFiles(tls / f"{name}.crt", tls / f"{name}.key", tls / "authority.pem")

    def _suite(self, service: str) -> dict[str, Any]:
        folder = self._folder()
        try:
            state: dict[str, Any] = json.loads((folder / _STATE).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise NotFound(
                "SUITE_NOT_FOUND",
                f"there is no suite in {folder}: `tenure up` starts one, or set "
                f"TENURE_{service.upper()}_ADDRESS",
            ) from None
        return state
