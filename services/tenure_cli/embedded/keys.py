"""The API keys of an embedded suite: made once, kept in files that only their owner can read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tenure_runtime.rpc.identity import (
    KeyEntry,
    Keyring,
    Role,
    create_key,
    write_private,
)
from tenure_runtime.rpc.peer import Peer
from tenure_runtime.sealing import SecretKeys

KEYRING: Final = "keyring.json"
SECRETS: Final = "secrets.json"
OPERATOR: Final = "operator"
_CERTIFIED_AS: Final = (Role.OPERATOR, Role.SERVICE, Role.AGENT, Role.USER)
"""A certificate is of one role: the first of these that a key has."""
SERVICES: Final = ("admission", "slottable", "scheduler", "registry", "autoscaler")


class KeyCabinet:
    """The keys in one folder (0700): a file for each name, and the keyring of their hashes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def folder(self) -> Path:
        """Return the folder, with a file `{name}.key` for each name."""
        return self._folder

    @property
    def keyring_file(self) -> Path:
        """Return the file that servers check callers against."""
        return self._folder / KEYRING

    @property
    def secrets_file(self) -> Path:
        """Return the file of the keys under which admission keeps secrets of leases."""
        return self._folder / SECRETS

    def file(self, name: str) -> Path:
        """Return the file that holds a key."""
        return self._folder / f"{name}.key"

    def read(self, name: str) -> str:
        """Return a key."""
        return self.file(name).read_text(encoding="utf-8").strip()

    def peers(self) -> list[Peer]:
        """Return whom certificates are made for: everybody who has a key."""
        return [
            Peer(next(role for role in _CERTIFIED_AS if role in entry.roles), entry.name)
            for entry in Keyring.load(self.keyring_file).entries()
            if entry.roles
        ]

    def prepare(self, agents: Iterable[str]) -> None:
        """Make the keys that are missing, for the operator, the services and the agents named."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        known: dict[str, KeyEntry] = {}
        if self.keyring_file.exists():
            known = {entry.name: entry for entry in Keyring.load(self.keyring_file).entries()}
        wanted: list[tuple[str, set[Role]]] = [(OPERATOR, {Role.OPERATOR, Role.USER})]
        wanted += [(service, {Role.SERVICE}) for service in SERVICES]
        wanted += [(agent, {Role.AGENT}) for agent in agents]
        changed = False
        for name, roles in wanted:
            if name in known and self.file(name).exists():
                continue
            key, known[name] = create_key(name, roles)
            write_private(self.file(name), key + "\n")
            changed = True
        if not self.secrets_file.exists():
            SecretKeys.made().store(self.secrets_file)
        if changed:
            Keyring(known.values()).store(self.keyring_file)
