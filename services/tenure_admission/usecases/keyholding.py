"""Make, list, rotate and withdraw API keys, for those who may."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tenure_admission.identity_ports import KeyBook, KeyListing, key_not_found
from tenure_admission.ports import Ids
from tenure_admission.records import RequestKey
from tenure_core.errors import Forbidden
from tenure_core.identity import api_keys
from tenure_core.identity.api_keys import ApiKey
from tenure_core.identity.grants import DOMAIN_ADMIN, OPERATOR, Grant, is_own, may_hand_out
from tenure_core.timebase import Clock, Millis


@dataclass(frozen=True, slots=True)
class WantedKey:
    """A key as it is asked for."""

    grant: Grant
    description: str = ""
    expires: Millis | None = None


@dataclass(frozen=True, slots=True)
class WantedRotation:
    """For how long a key goes on, and when its successor expires (None: as the key did)."""

    overlap_ms: Millis
    expires: Millis | None = None


class Keyholding:
    """API keys. `digest` makes of a secret what is kept of it."""

    def __init__(
        self, book: KeyBook, clock: Clock, ids: Ids, digest: Callable[[str], bytes]
    ) -> None:
        self._book = book
        self._clock = clock
        self._ids = ids
        self._digest = digest

    async def create(
        self, wanted: WantedKey, secret: str, maker: Grant, request: RequestKey | None
    ) -> ApiKey:
        """Store a key with the secret and return it.

        Raises Forbidden KEY_FORBIDDEN, WrongState SECRET_SHOWN_ONCE, Invalid REQUEST_ID_REUSED.
        """
        if not may_hand_out(maker, wanted.grant):
            text = f"{maker.caller} may make keys only for members and admins of its projects."
            raise Forbidden("KEY_FORBIDDEN", text, caller=maker.caller)
        key = ApiKey(
            id=self._ids.short(),
            grant=wanted.grant,
            secret_sha256=self._digest(secret),
            created=self._clock.now_ms(),
            creator=maker.caller,
            description=wanted.description,
            expires=wanted.expires,
        )
        await self._book.create(key, request)
        return key

    async def rotate(
        self,
        key_id: str,
        wanted: WantedRotation,
        secret: str,
        maker: Grant,
        request: RequestKey | None,
    ) -> tuple[ApiKey, ApiKey]:
        """Return the key as it goes on, and its successor with the secret.

        Who may not make such a key gains no time by it: the successor of their own ends with it.
        Raises KEY_NOT_FOUND, KEY_ENDED, SECRET_SHOWN_ONCE, REQUEST_ID_REUSED.
        """
        now, new_id, kept = self._clock.now_ms(), self._ids.short(), self._digest(secret)

        def decide(key: ApiKey) -> tuple[ApiKey, ApiKey]:
            _check_touches(maker, key)
            api_keys.check_rotates(key, now)
            expires = api_keys.successor_expiry(key, wanted.expires, now)
            if key.expires is not None and not may_hand_out(maker, key.grant):
                expires = min(expires or key.expires, key.expires)
            successor = replace(
                key,
                id=new_id,
                secret_sha256=kept,
                created=now,
                creator=maker.caller,
                expires=expires,
                replaced_by="",
            )
            return api_keys.retire(key, new_id, now, wanted.overlap_ms), successor

        return await self._book.rotate(key_id, decide, request)

    async def revoke(self, key_id: str, maker: Grant, request: RequestKey | None) -> ApiKey:
        """Withdraw a key and return it. Raises KEY_NOT_FOUND, REQUEST_ID_REUSED."""
        now = self._clock.now_ms()

        def decide(key: ApiKey) -> ApiKey:
            _check_touches(maker, key)
            return api_keys.revoke(key, maker.caller, now)

        return await self._book.change(key_id, decide, request)

    async def page(
        self, caller: str, after: str, limit: int, viewer: Grant, *, show_ended: bool
    ) -> list[ApiKey]:
        """Return keys by id that the viewer may see, of one caller or ("") of all."""
        usable_at = None if show_ended else self._clock.now_ms()
        if OPERATOR in viewer.roles:
            return await self._book.page(KeyListing(limit, after, caller or None, usable_at))
        if DOMAIN_ADMIN not in viewer.roles:
            if caller not in ("", viewer.caller):
                return []
            return await self._book.page(KeyListing(limit, after, viewer.caller, usable_at))
        found: list[ApiKey] = []
        while len(found) < limit:
            portion = await self._book.page(KeyListing(limit, after, caller or None, usable_at))
            found += [key for key in portion if _sees(viewer, key)]
            if len(portion) < limit:
                break
            after = portion[-1].id
        return found[:limit]

    def now(self) -> Millis:
        """Return the instant by which a request is judged."""
        return self._clock.now_ms()


def _sees(viewer: Grant, key: ApiKey) -> bool:
    return key.grant.caller == viewer.caller or may_hand_out(viewer, key.grant)


def _check_touches(maker: Grant, key: ApiKey) -> None:
    """Raise NotFound KEY_NOT_FOUND for a key that is none of the maker's business.

    A key that opens more than the credential of the call is none of its business either: who has
    found a limited key must not come by the secret of one that is not.
    """
    if not may_hand_out(maker, key.grant) and not is_own(maker, key.grant):
        raise key_not_found(key.id)
