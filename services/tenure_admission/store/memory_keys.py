"""API keys and signing keys in memory: the same promises as PostgreSQL's.

Nothing awaits between reading and writing, so each call is a transaction of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from tenure_admission.identity_ports import KeyListing, key_not_found, secret_shown
from tenure_admission.records import RequestKey
from tenure_admission.store.key_rows import bytes_of, key_in
from tenure_core.identity.api_keys import ApiKey
from tenure_core.timebase import Millis

Remembered = Callable[[RequestKey | None], bytes | None]
Remember = Callable[[RequestKey | None, bytes], None]


class MemoryKeys:
    """The keys of a memory store, which lends its request log."""

    def __init__(self, remembered: Remembered, remember: Remember) -> None:
        self._remembered = remembered
        self._remember = remember
        self._keys: dict[str, ApiKey] = {}
        self._signing: dict[str, tuple[str, Millis]] = {}

    async def create(self, key: ApiKey, request: RequestKey | None) -> None:
        """Store a key."""
        self._refuse_repeat(request)
        self._keys[key.id] = key
        self._remember(request, key.id.encode())

    async def rotate(
        self,
        key_id: str,
        decide: Callable[[ApiKey], tuple[ApiKey, ApiKey]],
        request: RequestKey | None,
    ) -> tuple[ApiKey, ApiKey]:
        """Store a key as it goes on, and its successor."""
        self._refuse_repeat(request)
        before, after = decide(self._found(key_id))
        self._keys[before.id], self._keys[after.id] = before, after
        self._remember(request, after.id.encode())
        return before, after

    def _refuse_repeat(self, request: RequestKey | None) -> None:
        repeated = self._remembered(request)
        if repeated is not None:
            raise secret_shown(repeated.decode())

    async def change(
        self, key_id: str, decide: Callable[[ApiKey], ApiKey], request: RequestKey | None
    ) -> ApiKey:
        """Store a key as it is changed."""
        repeated = self._remembered(request)
        if repeated is not None:
            return key_in(repeated)
        after = self._keys[key_id] = decide(self._found(key_id))
        self._remember(request, bytes_of(after))
        return after

    def _found(self, key_id: str) -> ApiKey:
        if key_id not in self._keys:
            raise key_not_found(key_id)
        return self._keys[key_id]

    async def get(self, key_id: str) -> ApiKey | None:
        """Return a key, None when there is none of that id."""
        return self._keys.get(key_id)

    async def page(self, listing: KeyListing) -> list[ApiKey]:
        """Return keys by id."""
        found = [
            key
            for key_id, key in sorted(self._keys.items())
            if key_id > listing.after
            and listing.caller in (None, key.grant.caller)
            and (listing.usable_at is None or key.usable(listing.usable_at))
        ]
        return found[: listing.limit]

    async def publish(self, key_id: str, public_jwk: str, expires: Millis, now: Millis) -> None:
        """Store a signing key's public half, or its expiry; forget those that have expired."""
        _, known = self._signing.get(key_id, ("", 0))
        self._signing[key_id] = public_jwk, max(known, expires)
        for each in [each for each, (_, end) in self._signing.items() if end <= now]:
            del self._signing[each]

    async def published(self, now: Millis) -> list[str]:
        """Return the JWKs that have not expired."""
        return [jwk for _, (jwk, expires) in sorted(self._signing.items()) if expires > now]
