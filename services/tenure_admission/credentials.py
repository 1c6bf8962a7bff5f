"""API keys as callers show them, and how admission verifies them.

`tnk_<id>_<secret>`, the secret with 256 random bits: the id says which row to compare with, so that
a caller may have several keys, and names need no escaping.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import Final

from tenure_admission.identity_ports import KeyBook
from tenure_core.identity.api_keys import ApiKey
from tenure_core.timebase import FOREVER, MINUTE_MS, Clock, Millis
from tenure_runtime.rpc.identity import Credential, Identity, Role, unknown_key

STREAM_MS_MAX: Final[Millis] = 5 * MINUTE_MS
"""How long a stream lasts that was opened with a key or with a token of somebody else's."""
PREFIX: Final = "tnk_"
_SHOWN: Final = re.compile(r"tnk_([a-z0-9]{1,32})_([0-9a-f]{64})")
_NOBODY: Final = hashlib.sha256(b"no such key").digest()


def new_secret() -> str:
    """Return a secret that nobody has."""
    return secrets.token_hex(32)


def digest(secret: str) -> bytes:
    """Return what is kept of a secret."""
    return hashlib.sha256(secret.encode()).digest()


def shown(key_id: str, secret: str) -> str:
    """Return a key as its owner gets it."""
    return f"{PREFIX}{key_id}_{secret}"


def identity_of(key: ApiKey, now: Millis) -> Identity:
    """Return the caller that a key speaks for."""
    grant = key.grant
    return Identity(
        grant.caller,
        frozenset(Role(role) for role in grant.roles),
        grant.scope,
        grant.administers,
        Credential.API_KEY,
        min(now + STREAM_MS_MAX, key.expires or FOREVER),
    )


class ApiKeyVerifier:
    """A gate's verifier of the keys in the book: each call looks, so that a withdrawn one is dead.

    A key that is malformed, unknown, withdrawn, expired or has another secret makes the same work
    and gets the same answer.
    """

    def __init__(self, book: KeyBook, clock: Clock) -> None:
        self._book = book
        self._clock = clock

    async def identify(self, credential: str) -> Identity | None:
        """Return who shows the key, None for what is no such key. Raises API_KEY_INVALID."""
        if not credential.startswith(PREFIX):
            return None
        match = _SHOWN.fullmatch(credential)
        key = await self._book.get(match[1] if match else "-")
        given = digest(match[2] if match else "")
        right = hmac.compare_digest(key.secret_sha256 if key else _NOBODY, given)
        now = self._clock.now_ms()
        if not right or key is None or not key.usable(now):
            raise unknown_key()
        return identity_of(key, now)
