"""The life of an API key: made, perhaps rotated, and over when withdrawn or expired."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tenure_core.errors import WrongState
from tenure_core.identity.grants import Grant
from tenure_core.timebase import Millis


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as it is kept: of its secret only the SHA-256."""

    id: str
    grant: Grant
    secret_sha256: bytes
    created: Millis
    creator: str
    description: str = ""
    expires: Millis | None = None
    revoked: Millis | None = None
    revoker: str = ""
    replaced_by: str = ""

    def usable(self, now: Millis) -> bool:
        """Say whether the key opens anything."""
        return self.revoked is None and (self.expires is None or now < self.expires)


def revoke(key: ApiKey, who: str, now: Millis) -> ApiKey:
    """Return the key withdrawn; one that is withdrawn already as it is."""
    return key if key.revoked is not None else replace(key, revoked=now, revoker=who)


def check_rotates(key: ApiKey, now: Millis) -> None:
    """Raise WrongState KEY_ENDED for a key that opens nothing: it has no place to be taken."""
    if not key.usable(now):
        raise WrongState("KEY_ENDED", f"apiKeys/{key.id} was withdrawn or has expired.", key=key.id)


def retire(key: ApiKey, successor: str, now: Millis, overlap_ms: Millis) -> ApiKey:
    """Return a key that another replaces: it goes on for the overlap, not beyond its own end."""
    until = now + overlap_ms
    ends = until if key.expires is None else min(until, key.expires)
    return replace(key, expires=ends, replaced_by=successor)


def successor_expiry(key: ApiKey, wanted: Millis | None, now: Millis) -> Millis | None:
    """Return when a key's successor expires: as wanted, or as long after its making as the key."""
    if wanted is not None or key.expires is None:
        return wanted
    return now + (key.expires - key.created)
