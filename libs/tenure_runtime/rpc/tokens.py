"""Tenure's own tokens: short-lived JWTs, signed by admission with Ed25519, verified by all.

Decides what a token says and when it is right. One algorithm, named here and never by the token;
the key is found by its id among the published ones, and no other header is looked at. A token that
was verified is remembered until it expires or the keys change: verifying costs more than the rest
of a small call's edge.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import jwt

from tenure_core.errors import Unauthenticated
from tenure_core.identity.grants import Scope
from tenure_core.timebase import Clock, Millis
from tenure_runtime.rpc.identity import Credential, Identity, Role
from tenure_runtime.rpc.key_sets import KeySet

ALGORITHM: Final = "EdDSA"
TYPE: Final = "tenure+jwt"
ISSUER: Final = "tenure"
LEEWAY_MS: Final[Millis] = 30_000
"""How far the clocks of two machines may be apart."""
REMEMBERED_MAX: Final = 10_000
_KEY_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_REQUIRED: Final = ("iss", "aud", "sub", "roles", "iat", "nbf", "exp", "jti")


def claims_of(
    identity: Identity, now: Millis, lifetime_ms: Millis, token_id: str
) -> dict[str, Any]:
    """Return what a token says of a caller; instants in seconds, as JWTs have them."""
    scope = identity.scope
    claims: dict[str, Any] = {
        "iss": ISSUER,
        "aud": ISSUER,
        "sub": identity.name,
        "roles": sorted(identity.roles),
        "iat": now // 1_000,
        "nbf": now // 1_000,
        "exp": (now + lifetime_ms) // 1_000,
        "jti": token_id,
    }
    limits = {
        "read_only": scope.read_only,
        "pools": sorted(scope.pools),
        "projects": sorted(scope.projects),
        "administers": sorted(identity.administers),
    }
    return claims | {name: value for name, value in limits.items() if value}


def identity_of(claims: Mapping[str, Any]) -> Identity:
    """Return the caller that a verified token speaks for. Raises Unauthenticated TOKEN_INVALID."""
    try:
        return Identity(
            str(claims["sub"]),
            frozenset(Role(role) for role in claims["roles"]),
            Scope(
                claims.get("read_only", False),
                frozenset(claims.get("pools", ())),
                frozenset(claims.get("projects", ())),
            ),
            frozenset(claims.get("administers", ())),
            Credential.TOKEN,
            int(claims["exp"] * 1_000) + LEEWAY_MS,
        )
    except (ValueError, TypeError):
        # A newer admission may know roles that this program does not.
        raise invalid() from None


def invalid() -> Unauthenticated:
    """Return the error of a token that is not right; it does not say what is wrong with it."""
    return Unauthenticated("TOKEN_INVALID", "The token is not valid here.")


def expired() -> Unauthenticated:
    """Return the error of a token that was right: ask for another."""
    return Unauthenticated("TOKEN_EXPIRED", "The token has expired.")


def unverified(token: str) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
    """Return header and claims of what looks like a JWT, None of anything else; trust neither."""
    try:
        parts = jwt.decode_complete(token, options={"verify_signature": False})
    except (jwt.PyJWTError, ValueError, RecursionError):
        return None
    return parts["header"], parts["payload"]


def check_times(claims: Mapping[str, Any], now: Millis, leeway_ms: Millis) -> None:
    """Raise Unauthenticated TOKEN_EXPIRED or TOKEN_INVALID unless the token counts now."""
    instants = [claims.get(name, 0) for name in ("exp", "nbf", "iat")]
    if any(not isinstance(each, int | float) or isinstance(each, bool) for each in instants):
        raise invalid()
    expires, begins, issued = (each * 1_000 for each in instants)
    if now >= expires + leeway_ms:
        raise expired()
    if now < max(begins, issued) - leeway_ms:
        raise invalid()


@dataclass(frozen=True, slots=True)
class _Known:
    identity: Identity
    version: int


class TokenVerifier:
    """A gate's verifier of Tenure's own tokens."""

    def __init__(self, keys: KeySet, clock: Clock) -> None:
        self._keys = keys
        self._clock = clock
        self._known: OrderedDict[str, _Known] = OrderedDict()

    async def identify(self, credential: str) -> Identity | None:
        """Return who the token speaks for, None for what is no token of Tenure's.

        Raises Unauthenticated TOKEN_INVALID, TOKEN_EXPIRED; Unavailable TOKEN_KEYS_UNAVAILABLE.
        """
        known = self._known.get(credential)
        if known is not None and known.version == self._keys.version:
            ends = known.identity.ends
            assert ends is not None, "a token expires"
            if self._clock.now_ms() < ends:
                return known.identity
            raise expired()
        seen = unverified(credential)
        if seen is None or seen[1].get("iss") != ISSUER:
            return None
        claims = await self._verified(credential, seen[0])
        identity = identity_of(claims)
        self._remember(credential, _Known(identity, self._keys.version))
        return identity

    async def _verified(self, token: str, header: Mapping[str, Any]) -> Mapping[str, Any]:
        key_id = header.get("kid")
        if header.get("alg") != ALGORITHM or header.get("typ") != TYPE or "crit" in header:
            raise invalid()
        if not isinstance(key_id, str) or not _KEY_ID.fullmatch(key_id):
            raise invalid()
        key = await self._keys.find(key_id)
        if key is None or key.key_type != "OKP":
            raise invalid()
        try:
            claims = jwt.decode(
                token,
                key.key,
                algorithms=[ALGORITHM],
                audience=ISSUER,
                issuer=ISSUER,
                # Instants are compared by our clock below.
                options={
                    "require": list(_REQUIRED),
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                },
            )
        except (jwt.PyJWTError, ValueError):
            raise invalid() from None
        check_times(claims, self._clock.now_ms(), LEEWAY_MS)
        return claims

    def _remember(self, token: str, known: _Known) -> None:
        self._known[token] = known
        if len(self._known) > REMEMBERED_MAX:
            self._known.popitem(last=False)
