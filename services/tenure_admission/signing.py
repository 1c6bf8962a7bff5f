"""Signs tokens: one Ed25519 key a replica, made anew at each start and every so often.

A private key is never written anywhere; its public half is published in the database, from where
every replica gives it to the other services. A key is published for a while before it signs, so
that whoever verifies has it by then; at a start it signs at once, and is asked for when it is first
seen. `run_once` is a loop's body.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from jwt.algorithms import OKPAlgorithm

from tenure_admission.identity_ports import SigningKeyBook
from tenure_admission.ports import Ids
from tenure_core.errors import Unavailable
from tenure_core.timebase import MINUTE_MS, SECOND_MS, Clock, Millis
from tenure_runtime.rpc.identity import Identity
from tenure_runtime.rpc.key_sets import REFRESH_S, keys_of
from tenure_runtime.rpc.tokens import ALGORITHM, LEEWAY_MS, TYPE, claims_of

LEAD_MS: Final[Millis] = 2 * int(REFRESH_S * SECOND_MS)
"""For how long a key is published before it signs."""
RENEWAL_MS: Final[Millis] = 10 * MINUTE_MS
"""For how long beyond its last token a key stays published without being renewed."""


@dataclass(frozen=True, slots=True)
class _Key:
    id: str
    private: Ed25519PrivateKey
    made: Millis

    @property
    def public_jwk(self) -> str:
        jwk = json.loads(OKPAlgorithm.to_jwk(self.private.public_key()))
        return json.dumps(jwk | {"kid": self.id, "use": "sig", "alg": ALGORITHM}, sort_keys=True)


@dataclass(frozen=True, slots=True)
class SigningTimes:
    """How long a token lasts, and how long one key signs."""

    lifetime_ms: Millis = 5 * MINUTE_MS
    period_ms: Millis = 24 * 60 * MINUTE_MS


class Signing:
    """The signing keys of one replica."""

    def __init__(
        self, book: SigningKeyBook, clock: Clock, ids: Ids, times: SigningTimes | None = None
    ) -> None:
        self._book = book
        self._clock = clock
        self._ids = ids
        self._times = times or SigningTimes()
        self._current: _Key | None = None
        self._next: _Key | None = None

    async def run_once(self) -> None:
        """Make the key that is due, and publish what signs or is about to."""
        now = self._clock.now_ms()
        current, following = self._current, self._next
        if current is None:
            current = self._new(now)
        elif following is None and now >= current.made + self._times.period_ms:
            following = self._new(now)
        elif following is not None and now >= following.made + LEAD_MS:
            current, following = following, None
        expires = now + self._times.lifetime_ms + LEEWAY_MS + RENEWAL_MS
        for key in (current, following):
            if key is not None:
                await self._book.publish(key.id, key.public_jwk, expires, now)
        self._current, self._next = current, following

    def _new(self, now: Millis) -> _Key:
        return _Key(self._ids.short(16), Ed25519PrivateKey.generate(), now)

    def issue(self, identity: Identity) -> tuple[str, Millis]:
        """Return a token for the caller, and how long it lasts.

        Raises Unavailable SIGNING_KEY_MISSING before the first key is published.
        """
        key = self._current
        if key is None:
            raise Unavailable("SIGNING_KEY_MISSING", "No signing key is published yet; try again.")
        lifetime_ms = self._times.lifetime_ms
        claims = claims_of(identity, self._clock.now_ms(), lifetime_ms, self._ids.short(20))
        headers = {"kid": key.id, "typ": TYPE}
        return jwt.encode(claims, key.private, algorithm=ALGORITHM, headers=headers), lifetime_ms

    async def jwks(self) -> str:
        """Return the published keys of all replicas as a JWK Set."""
        published = await self._book.published(self._clock.now_ms())
        return json.dumps({"keys": [json.loads(each) for each in published]})

    async def fetch(self) -> Mapping[str, jwt.PyJWK]:
        """Return the published keys by id, for admission's own gate."""
        return keys_of(await self.jwks())
