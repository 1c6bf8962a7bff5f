"""Contexts: named places with a credential, kept in one file that only its owner can read.

Decides the file (`contexts.json` in the user's folder of settings, mode 0600) and what it holds.
One that others may read is refused: it holds credentials.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final

from tenure_core.errors import NotFound, WrongState
from tenure_runtime.rpc.identity import write_private
from tenure_runtime.rpc.transport import TlsFiles

_FILE: Final = "contexts.json"
INVITATION: Final = "context.json"


@dataclass(frozen=True, slots=True)
class Context:
    """Where the services are, by name, and what to show them; empty for what is found elsewhere."""

    addresses: Mapping[str, str] = field(default_factory=dict)
    credential: str = field(default="", repr=False)
    tls_authority: str = ""
    tls_certificate: str = ""
    tls_private_key: str = ""

    @classmethod
    def invited(cls, folder: Path) -> Context:
        """Return what a folder for somebody else holds: addresses, and files beside them.

        Raises NotFound INVITATION_NOT_FOUND, WrongState INVITATION_UNREADABLE.
        """
        file = folder / INVITATION
        try:
            stored = json.loads(file.read_text(encoding="utf-8"))
            names = ("tls_authority", "tls_certificate", "tls_private_key")
            files = {name: str((folder / stored[name]).absolute()) for name in names}
            return cls(
                {str(name): str(each) for name, each in stored["addresses"].items()}, **files
            )
        except FileNotFoundError:
            text = f"there is no {INVITATION} in {folder}: `tenure certificate make` makes it"
            raise NotFound("INVITATION_NOT_FOUND", text) from None
        except (ValueError, TypeError, KeyError, AttributeError):
            text = f"{file} cannot be read; have it made anew"
            raise WrongState("INVITATION_UNREADABLE", text) from None

    @property
    def tls(self) -> TlsFiles | None:
        """Return the TLS files to call with; None without an authority to trust."""
        if not self.tls_authority:
            return None
        certificate, key = self.tls_certificate, self.tls_private_key
        return TlsFiles(
            Path(certificate) if certificate else None,
            Path(key) if key else None,
            Path(self.tls_authority),
        )


@dataclass(frozen=True, slots=True)
class Contexts:
    """All contexts of one user, and the name of the one in use ("" for none)."""

    file: Path
    current: str = ""
    by_name: Mapping[str, Context] = field(default_factory=dict)

    @classmethod
    def load(cls, environment: Mapping[str, str] = os.environ) -> Contexts:
        """Read the file; no contexts without one. Raises WrongState CONTEXTS_UNREADABLE."""
        base = environment.get("XDG_CONFIG_HOME") or Path.home() / ".config"
        file = Path(base) / "tenure" / _FILE
        try:
            mode, text = file.stat().st_mode, file.read_text(encoding="utf-8")
        except FileNotFoundError:
            return cls(file)
        if mode & 0o077:
            raise WrongState(
                "CONTEXTS_UNREADABLE", f"{file} must be readable by its owner only (chmod 600)"
            )
        try:
            stored = json.loads(text)
            by_name = {name: Context(**fields) for name, fields in stored["contexts"].items()}
            return cls(file, stored["current"], by_name)
        except (ValueError, TypeError, KeyError, AttributeError):
            text = f"{file} cannot be read; mend or remove it"
            raise WrongState("CONTEXTS_UNREADABLE", text) from None

    def store(self) -> None:
        """Write the file in one step, mode 0600."""
        self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        contexts = {name: asdict(context) for name, context in self.by_name.items()}
        stored = {"current": self.current, "contexts": contexts}
        write_private(self.file, json.dumps(stored, indent=2, sort_keys=True) + "\n")

    def named(self, name: str) -> Context:
        """Return a context. Raises NotFound CONTEXT_NOT_FOUND."""
        if name not in self.by_name:
            text = f"there is no context {name!r}: `tenure context set` makes one"
            raise NotFound("CONTEXT_NOT_FOUND", text, context=name)
        return self.by_name[name]

    def with_context(self, name: str, context: Context) -> Contexts:
        """Return the contexts with one more, or one changed; the first is in use at once."""
        return replace(self, current=self.current or name, by_name={**self.by_name, name: context})

    def using(self, name: str) -> Contexts:
        """Return the contexts with another in use. Raises NotFound CONTEXT_NOT_FOUND."""
        self.named(name)
        return replace(self, current=name)


def context_in_use(environment: Mapping[str, str]) -> Context:
    """Return the context that counts: $TENURE_CONTEXT's, or the one in use; an empty one for none.

    $TENURE_DATA names a local suite, for which no context is in use. Raises CONTEXT_NOT_FOUND,
    CONTEXTS_UNREADABLE.
    """
    wanted = environment.get("TENURE_CONTEXT", "")
    if not wanted and environment.get("TENURE_DATA"):
        return Context()
    contexts = Contexts.load(environment)
    name = wanted or contexts.current
    return contexts.named(name) if name else Context()
