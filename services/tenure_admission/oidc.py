"""Tokens of an OpenID Connect issuer: who they speak for, by settings that map their claims.

Decides what is believed: the issuer and the algorithms of the settings, never those of a token; the
keys that the issuer's discovery document names. Callers get a prefix, so that nobody at the issuer
can choose the name of a service or of a caller with a key. How keys are kept while the issuer is
away is `key_sets`', what the roles may do the services' tables'.
"""

from __future__ import annotations

import asyncio
import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any, Final, Literal, Self

import jwt
from pydantic import BaseModel, ConfigDict, Field, model_validator

from tenure_admission.credentials import STREAM_MS_MAX
from tenure_core.errors import Unavailable
from tenure_core.identity.grants import ADMINS, GRANTABLE, Scope
from tenure_core.timebase import Clock
from tenure_runtime.rpc.identity import Credential, Identity, Role
from tenure_runtime.rpc.key_sets import KeySet, keys_of
from tenure_runtime.rpc.tokens import check_times, invalid, unverified

DOCUMENT_BYTES_MAX: Final = 1024 * 1024
FETCH_TIMEOUT_S: Final = 4.0
_CALLER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.@+_|-]{0,62}")
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"]


class OidcSettings(BaseModel):
    """The issuer whose tokens are taken, and what their claims mean; claims may be paths, `a.b`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    issuer: str = Field(description="https://…, as the tokens' `iss` has it")
    audience: str = Field(min_length=1, description="the tokens' `aud` must name it")
    algorithms: tuple[Algorithm, ...] = Field(("RS256", "ES256"), min_length=1)
    leeway_s: float = Field(30.0, ge=0, le=300, description="how far the clocks may be apart")
    caller_claim: str = Field("sub", description="who calls")
    caller_prefix: str = Field("oidc:", pattern=r"[a-z0-9:.-]{0,20}")
    roles_claim: str = Field("roles", description="values that `roles` maps to roles")
    roles: Mapping[str, str] = Field(default_factory=dict, description="value → role")
    default_role: str = Field("", description="role of everybody else; empty: refused")
    administers_claim: str = Field("", description="projects that an admin administers")
    projects_claim: str = Field("", description="projects to which the caller is limited")

    @model_validator(mode="after")
    def _can_be_meant(self) -> Self:
        url = urllib.parse.urlsplit(self.issuer)
        if url.scheme != "https" and not (url.scheme == "http" and url.hostname in _LOOPBACK):
            raise ValueError("oidc.issuer is https://… (http:// on the loopback address only)")
        named = {*self.roles.values(), *([self.default_role] if self.default_role else [])}
        if not named <= GRANTABLE:
            raise ValueError(f"oidc roles are {', '.join(sorted(GRANTABLE))}")
        if named & ADMINS and not self.administers_claim:
            raise ValueError("oidc.administers_claim says what admins administer")
        return self


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """An issuer that sends us elsewhere is not the one that was named."""

    def redirect_request(self, *_: Any) -> None:
        """Follow nothing."""
        return None


_OPENER: Final = urllib.request.build_opener(_NoRedirect)


class OidcKeys:
    """Fetches the keys of an issuer by its discovery document."""

    def __init__(self, issuer: str) -> None:
        self._issuer = issuer

    async def fetch(self) -> Mapping[str, jwt.PyJWK]:
        """Return the issuer's keys by id. Raises Unavailable ISSUER_UNAVAILABLE."""
        try:
            return await asyncio.to_thread(self._fetch)
        except (OSError, ValueError, urllib.error.URLError) as error:
            text = f"{self._issuer} does not give its keys: {error}"
            raise Unavailable("ISSUER_UNAVAILABLE", text) from None

    def _fetch(self) -> Mapping[str, jwt.PyJWK]:
        place = f"{self._issuer.rstrip('/')}/.well-known/openid-configuration"
        document = json.loads(self._get(place))
        if not isinstance(document, dict) or document.get("issuer") != self._issuer:
            raise ValueError("the discovery document is of another issuer")
        return keys_of(self._get(str(document.get("jwks_uri"))))

    def _get(self, url: str) -> bytes:
        ours, theirs = urllib.parse.urlsplit(self._issuer), urllib.parse.urlsplit(url)
        if theirs.scheme != "https" and (theirs.scheme, theirs.hostname) != (
            ours.scheme,
            ours.hostname,
        ):
            raise ValueError(f"{url} is not https")
        with _OPENER.open(url, timeout=FETCH_TIMEOUT_S) as answer:
            body: bytes = answer.read(DOCUMENT_BYTES_MAX + 1)
        if len(body) > DOCUMENT_BYTES_MAX:
            raise ValueError(f"{url} is larger than {DOCUMENT_BYTES_MAX} bytes")
        return body


class OidcVerifier:
    """A gate's verifier of an issuer's tokens."""

    def __init__(self, settings: OidcSettings, keys: KeySet, clock: Clock) -> None:
        self._settings = settings
        self._keys = keys
        self._clock = clock

    async def identify(self, credential: str) -> Identity | None:
        """Return who the token speaks for, None for what is no token of the issuer.

        Raises Unauthenticated TOKEN_INVALID, TOKEN_EXPIRED; Unavailable TOKEN_KEYS_UNAVAILABLE.
        """
        seen = unverified(credential)
        if seen is None or seen[1].get("iss") != self._settings.issuer:
            return None
        header, _ = seen
        algorithm, key_id = header.get("alg"), header.get("kid")
        if algorithm not in self._settings.algorithms or not isinstance(key_id, str):
            raise invalid()
        key = await self._keys.find(key_id)
        # A key that names its algorithm is for no other.
        if key is None or key.algorithm_name != algorithm:
            raise invalid()
        now = self._clock.now_ms()
        claims = self._claims(credential, key, algorithm)
        check_times(claims, now, round(self._settings.leeway_s * 1_000))
        return self._identity(claims, now)

    def _claims(self, token: str, key: jwt.PyJWK, algorithm: str) -> Mapping[str, Any]:
        try:
            return jwt.decode(
                token,
                key.key,
                algorithms=[algorithm],
                audience=self._settings.audience,
                issuer=self._settings.issuer,
                # Instants are compared by our clock.
                options={
                    "require": ["iss", "aud", "exp", "iat"],
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                },
            )
        except (jwt.PyJWTError, ValueError):
            raise invalid() from None

    def _identity(self, claims: Mapping[str, Any], now: int) -> Identity:
        """Return the caller that the claims mean. Raises TOKEN_INVALID where they mean none."""
        settings = self._settings
        caller = _at(claims, settings.caller_claim)
        if not isinstance(caller, str) or not _CALLER.fullmatch(caller):
            raise invalid()
        name = settings.caller_prefix + caller
        values = _texts(claims, settings.roles_claim)
        roles = {settings.roles[value] for value in values if value in settings.roles}
        roles = roles or ({settings.default_role} if settings.default_role else set())
        if not roles or len(name) > 63:
            raise invalid()
        projects: frozenset[str] = frozenset()
        if settings.projects_claim:
            projects = _texts(claims, settings.projects_claim)
            if not projects and "operator" not in roles:
                raise invalid()
        administers: frozenset[str] = frozenset()
        if roles & ADMINS:
            administers = _texts(claims, settings.administers_claim)
        return Identity(
            name,
            frozenset(Role(role) for role in roles),
            Scope(projects=frozenset() if "operator" in roles else projects),
            administers,
            Credential.OIDC,
            min(now + STREAM_MS_MAX, int(claims["exp"] * 1_000)),
        )


def _at(claims: Mapping[str, Any], path: str) -> Any:
    found: Any = claims
    for part in path.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _texts(claims: Mapping[str, Any], path: str) -> frozenset[str]:
    """Return a claim that is a text, a list of texts or absent. Raises TOKEN_INVALID."""
    found = _at(claims, path)
    if found is None:
        return frozenset()
    texts = [found] if isinstance(found, str) else found
    if not isinstance(texts, list) or not all(isinstance(each, str) for each in texts):
        raise invalid()
    return frozenset(texts)
