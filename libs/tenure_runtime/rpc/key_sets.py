"""Public keys of an issuer by their ids: fetched, kept, and fetched anew when one is unknown.

Decides how often is asked: by `run_once` (a loop's body), and at most once in `gap_s` because of
ids that nobody knows, so that made-up ids cost the issuer nothing. While the issuer is away the
keys known last go on, and it is asked more often: it may just be starting.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import jwt

from tenure_core.errors import DomainError, Unavailable
from tenure_runtime.telemetry.logging import get_logger

KEYS_MAX: Final = 100
FETCH_TIMEOUT_S: Final = 5.0
GAP_S: Final = 5.0
AWAY_GAP_S: Final = 0.5
REFRESH_S: Final = 60.0

Fetch = Callable[[], Awaitable[Mapping[str, jwt.PyJWK]]]


class KeySet:
    """The keys of one issuer. `fetch` raises DomainError while the issuer is away."""

    def __init__(
        self,
        fetch: Fetch,
        *,
        gap_s: float = GAP_S,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetch = fetch
        self._gap_s = gap_s
        self._monotonic_s = monotonic_s
        self._keys: Mapping[str, jwt.PyJWK] = {}
        self._asked_s = float("-inf")
        self._away = False
        self._asking = asyncio.Lock()
        self.version = 0
        """Grows whenever the keys change."""

    async def find(self, key_id: str) -> jwt.PyJWK | None:
        """Return a key, None when the issuer has none of that id.

        Raises Unavailable TOKEN_KEYS_UNAVAILABLE when it is unknown and the issuer cannot be asked.
        """
        if key_id not in self._keys:
            async with self._asking:
                gap_s = min(AWAY_GAP_S, self._gap_s) if self._away else self._gap_s
                due = self._monotonic_s() - self._asked_s >= gap_s
                if due and key_id not in self._keys:
                    await self._refresh()
        found = self._keys.get(key_id)
        if found is None and self._away:
            text = "Tokens cannot be verified while their issuer is away."
            raise Unavailable(
                "TOKEN_KEYS_UNAVAILABLE", text, retry_after_ms=int(AWAY_GAP_S * 1_000)
            )
        return found

    async def run_once(self) -> None:
        """Fetch the keys; an issuer that is away is logged and what is known is kept."""
        async with self._asking:
            await self._refresh()

    async def _refresh(self) -> None:
        self._asked_s = self._monotonic_s()
        try:
            async with asyncio.timeout(FETCH_TIMEOUT_S):
                keys = await self._fetch()
        except (DomainError, TimeoutError, OSError, ValueError) as error:
            # An issuer that starts at the same time is not there yet.
            say = get_logger().warning if self._away or self.version else get_logger().info
            say("token_keys.unseen", error=str(error))
            self._away = True
            return
        self._away = False
        if keys.keys() != self._keys.keys():
            self.version += 1
        self._keys = keys


def keys_of(document: str | bytes) -> dict[str, jwt.PyJWK]:
    """Return the signature keys of a JWK Set by id; those of unknown kinds are left out.

    Symmetric keys are left out too: whoever could verify by them could sign. Raises ValueError.
    """
    parsed = json.loads(document)
    entries: Any = parsed.get("keys") if isinstance(parsed, dict) else None
    if not isinstance(entries, list) or len(entries) > KEYS_MAX:
        raise ValueError(f"a JWK Set has a list of at most {KEYS_MAX} keys")
    found: dict[str, jwt.PyJWK] = {}
    for entry in entries:
        if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
            continue
        key_id = entry.get("kid")
        if not isinstance(key_id, str) or entry.get("kty") not in ("RSA", "EC", "OKP"):
            continue
        try:
            found[key_id] = jwt.PyJWK(entry)
        except jwt.PyJWTError:
            continue
    return found
