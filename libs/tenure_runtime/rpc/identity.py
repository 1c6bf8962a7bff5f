"""Who is calling and what they may call: API keys, roles and the table of methods.

A key is `tnr_<name>_<secret>`. The keyring file (JSON, mode 0600) stores only the SHA-256 of the
secret: secrets carry 256 random bits, so a slow hash would add nothing. What a caller may do
*within* a call (own leases, quotas) is left to the services.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import threading
from collections.abc import Collection, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from tenure_core.errors import Forbidden, Unauthenticated
from tenure_core.identity.grants import IMPLIED, WHOLE, Scope
from tenure_core.timebase import Millis
from tenure_runtime.rpc import scoping


class Role(StrEnum):
    """What a caller is allowed to be."""

    USER = "user"
    PROJECT_ADMIN = "project-admin"
    DOMAIN_ADMIN = "domain-admin"
    OPERATOR = "operator"
    SERVICE = "service"
    AGENT = "agent"


class Credential(StrEnum):
    """By what a caller is known."""

    KEYRING = "keyring"
    API_KEY = "api_key"
    OIDC = "oidc"
    TOKEN = "token"  # noqa: S105 - a kind, no secret


@dataclass(frozen=True, slots=True)
class Identity:
    """A caller that has shown a credential. `administers` are projects, for their admins.

    A stream lasts until `ends` at most (None: for ever), so that it does not outlive a key that was
    withdrawn.
    """

    name: str
    roles: frozenset[Role]
    scope: Scope = WHOLE
    administers: frozenset[str] = frozenset()
    credential: Credential = Credential.KEYRING
    ends: Millis | None = field(default=None, compare=False)

    def has(self, role: Role) -> bool:
        """Say whether the caller has the role."""
        return role in self.roles


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """What the keyring keeps of one key: never the secret itself."""

    name: str
    secret_sha256: str
    roles: frozenset[Role]


_KEY: Final = re.compile(r"tnr_([a-z0-9][a-z0-9.-]{0,62})_([A-Za-z0-9-]{20,128})")
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9.-]{0,62}")
_NOBODY: Final = hashlib.sha256(b"no such key").hexdigest()
# Open to everyone: probes and tools carry no key.
OPEN_PREFIXES: Final = (
    "/grpc.health.v1.Health/",
    "/grpc.reflection.v1alpha.ServerReflection/",
    "/grpc.reflection.v1.ServerReflection/",
)

_current: ContextVar[Identity | None] = ContextVar("tenure_identity", default=None)


def create_key(name: str, roles: Iterable[Role]) -> tuple[str, KeyEntry]:
    """Make a new key: the text for its owner, and the entry for the keyring.

    `name` is lower-case letters, digits, `.` and `-`, at most 63.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"a key's name is lower-case letters, digits, '.' and '-', not {name!r}")
    secret = secrets.token_hex(32)
    return f"tnr_{name}_{secret}", KeyEntry(name, _sha256(secret), frozenset(roles))


class Keyring:
    """The keys that a server accepts."""

    def __init__(self, entries: Iterable[KeyEntry]) -> None:
        self._entries = {entry.name: entry for entry in entries}

    @classmethod
    def load(cls, path: Path) -> Keyring:
        """Read a keyring file. Raises PermissionError when others may read or write it."""
        if path.stat().st_mode & 0o077:
            raise PermissionError(f"{path} must be readable by its owner only (chmod 600)")
        stored = json.loads(path.read_text(encoding="utf-8"))
        return cls(
            KeyEntry(name, entry["sha256"], frozenset(Role(role) for role in entry["roles"]))
            for name, entry in stored["keys"].items()
        )

    def store(self, path: Path) -> None:
        """Write the keyring file with mode 0600, replacing it in one step."""
        keys = {
            entry.name: {"sha256": entry.secret_sha256, "roles": sorted(entry.roles)}
            for entry in self._entries.values()
        }
        write_private(path, json.dumps({"keys": keys}, indent=2, sort_keys=True) + "\n")

    def entries(self) -> Collection[KeyEntry]:
        """Return what is known of every key."""
        return self._entries.values()

    def identify(self, key: str) -> Identity:
        """Return who the key belongs to. Raises Unauthenticated API_KEY_INVALID.

        The same work is done for unknown names, and hashes are compared in constant time.
        """
        match = _KEY.fullmatch(key)
        entry = self._entries.get(match[1]) if match else None
        expected = entry.secret_sha256 if entry else _NOBODY
        given = _sha256(match[2] if match else "")
        if not hmac.compare_digest(expected, given) or entry is None:
            raise unknown_key()
        return Identity(entry.name, entry.roles)


def unknown_key() -> Unauthenticated:
    """Return the error of an API key that is wrong, whatever is wrong with it."""
    return Unauthenticated("API_KEY_INVALID", "The API key is not known here.")


def write_private(path: Path, text: str, *, durable: bool = True) -> None:
    """Write a file that only its owner can read (0600), replacing it in one step.

    Not `durable`: a power cut may leave it empty, for what can be made again.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    temporary.replace(path)


def _sha256(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Permissions:
    """Which roles may call which method; a method that is not listed is closed to everyone."""

    roles_of_method: Mapping[str, frozenset[Role]]

    @classmethod
    def of(cls, service: str, methods: Mapping[str, Collection[Role]]) -> Permissions:
        """Return the table of the service with the full name `tenure.<name>.v1.<Name>Service`.

        Whoever may do what a role may is added to those that have it.
        """
        return cls(
            {f"/{service}/{name}": _with_superiors(roles) for name, roles in methods.items()}
        )

    def also(self, other: Permissions) -> Permissions:
        """Return both tables as one."""
        return Permissions({**self.roles_of_method, **other.roles_of_method})

    def check(self, identity: Identity, method: str) -> None:
        """Raise Forbidden unless one of the caller's roles, and its scope, may call `method`.

        METHOD_FORBIDDEN, or SCOPE_FORBIDDEN.
        """
        if identity.roles.isdisjoint(self.roles_of_method.get(method, frozenset())):
            raise Forbidden(
                "METHOD_FORBIDDEN",
                f"{identity.name} may not call {method}.",
                caller=identity.name,
                method=method,
            )
        scoping.check(identity.scope, method)


def _with_superiors(roles: Collection[Role]) -> frozenset[Role]:
    superiors = (role for role, implied in IMPLIED.items() if implied & set(roles))
    return frozenset(roles).union(map(Role, superiors))


def bearer_of(authorization: str | None) -> str:
    """Return the key in an `authorization` value. Raises Unauthenticated API_KEY_MISSING."""
    scheme, _, key = (authorization or "").partition(" ")
    if scheme.lower() != "bearer" or not key:
        raise Unauthenticated(
            "API_KEY_MISSING", "The call carries no API key (authorization: Bearer tnr_…)."
        )
    return key.strip()


def enter(identity: Identity) -> None:
    """Set the caller of the present task; the server's edge does this."""
    _current.set(identity)


def current_identity() -> Identity:
    """Return who made the call being served; only callable while serving one."""
    identity = _current.get()
    assert identity is not None, "no call is being served"
    return identity
