"""API keys and signing keys in PostgreSQL; see `identity_ports`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from tenure_admission import auditing
from tenure_admission.identity_ports import KeyListing, key_not_found, secret_shown
from tenure_admission.records import RequestKey
from tenure_admission.store.creation import runtime_key
from tenure_admission.store.key_rows import COLUMNS, bytes_of, key_in, key_of, row_of
from tenure_core.identity.api_keys import ApiKey
from tenure_core.timebase import Millis
from tenure_runtime.audit import trail
from tenure_runtime.postgres import idempotency
from tenure_runtime.postgres.pool import Pool
from tenure_runtime.postgres.transaction import Transaction, run

_INSERT: Final = (
    f"INSERT INTO api_keys ({', '.join(COLUMNS)})"  # noqa: S608 - constants
    f" VALUES ({', '.join(f'${number}' for number in range(1, len(COLUMNS) + 1))})"
)
# All else of a key stays as it was made.
_UPDATE: Final = """
UPDATE api_keys SET expires_ms = $2, revoked_ms = $3, revoker = $4, replaced_by = $5 WHERE id = $1
"""
_PAGE: Final = """
SELECT * FROM api_keys WHERE id > $1 AND ($2::text IS NULL OR caller = $2)
   AND ($3::bigint IS NULL OR (revoked_ms IS NULL AND (expires_ms IS NULL OR expires_ms > $3)))
ORDER BY id LIMIT $4
"""
_PUBLISH: Final = """
INSERT INTO signing_keys (id, public_jwk, expires_ms) VALUES ($1, $2, $3)
ON CONFLICT (id) DO UPDATE SET expires_ms = greatest(signing_keys.expires_ms, excluded.expires_ms)
"""


class PostgresKeys:
    """The keys of one schema."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def create(self, key: ApiKey, request: RequestKey | None) -> None:
        """Store a key."""

        async def effect(tx: Transaction) -> bytes:
            await tx.execute(_INSERT, *row_of(key))
            await trail.write(tx, [auditing.key_change(None, key)])
            return key.id.encode()

        made = await self._once(effect, request)
        if made.decode() != key.id:
            raise secret_shown(made.decode())

    async def rotate(
        self,
        key_id: str,
        decide: Callable[[ApiKey], tuple[ApiKey, ApiKey]],
        request: RequestKey | None,
    ) -> tuple[ApiKey, ApiKey]:
        """Store a key as it goes on, and its successor."""
        decided: list[tuple[ApiKey, ApiKey]] = []

        async def effect(tx: Transaction) -> bytes:
            found = await _locked(tx, key_id)
            before, after = decide(found)
            await _update(tx, before)
            await tx.execute(_INSERT, *row_of(after))
            changes = [auditing.key_change(found, before), auditing.key_change(None, after)]
            await trail.write(tx, changes)
            # The last run of the transaction is the one that was committed.
            decided[:] = [(before, after)]
            return after.id.encode()

        made = await self._once(effect, request)
        if not decided:
            raise secret_shown(made.decode())
        return decided[0]

    async def change(
        self, key_id: str, decide: Callable[[ApiKey], ApiKey], request: RequestKey | None
    ) -> ApiKey:
        """Store a key as it is changed."""

        async def effect(tx: Transaction) -> bytes:
            found = await _locked(tx, key_id)
            after = decide(found)
            if after != found:
                await _update(tx, after)
                await trail.write(tx, [auditing.key_change(found, after)])
            return bytes_of(after)

        return key_in(await self._once(effect, request))

    async def _once(
        self, effect: Callable[[Transaction], Awaitable[bytes]], request: RequestKey | None
    ) -> bytes:
        async def use_case(tx: Transaction) -> bytes:
            if request is None:
                return await effect(tx)
            return await idempotency.once(tx, runtime_key(request), lambda: effect(tx))

        return await run(self._pool, use_case)

    async def get(self, key_id: str) -> ApiKey | None:
        """Return a key, None when there is none of that id."""

        async def use_case(tx: Transaction) -> ApiKey | None:
            row = await tx.fetchrow("SELECT * FROM api_keys WHERE id = $1", key_id)
            return None if row is None else key_of(dict(row))

        return await run(self._pool, use_case, readonly=True)

    async def page(self, listing: KeyListing) -> list[ApiKey]:
        """Return keys by id."""

        async def use_case(tx: Transaction) -> list[ApiKey]:
            rows = await tx.fetch(
                _PAGE, listing.after, listing.caller, listing.usable_at, listing.limit
            )
            return [key_of(dict(row)) for row in rows]

        return await run(self._pool, use_case, readonly=True)

    async def publish(self, key_id: str, public_jwk: str, expires: Millis, now: Millis) -> None:
        """Store a signing key's public half, or its expiry; forget those that have expired."""

        async def use_case(tx: Transaction) -> None:
            await tx.execute(_PUBLISH, key_id, public_jwk, expires)
            await tx.execute("DELETE FROM signing_keys WHERE expires_ms <= $1", now)

        await run(self._pool, use_case)

    async def published(self, now: Millis) -> list[str]:
        """Return the JWKs that have not expired."""

        async def use_case(tx: Transaction) -> list[str]:
            sql = "SELECT public_jwk FROM signing_keys WHERE expires_ms > $1 ORDER BY id"
            return [row["public_jwk"] for row in await tx.fetch(sql, now)]

        return await run(self._pool, use_case, readonly=True)


async def _locked(tx: Transaction, key_id: str) -> ApiKey:
    row = await tx.fetchrow("SELECT * FROM api_keys WHERE id = $1 FOR UPDATE", key_id)
    if row is None:
        raise key_not_found(key_id)
    return key_of(dict(row))


async def _update(tx: Transaction, key: ApiKey) -> None:
    await tx.execute(_UPDATE, key.id, key.expires, key.revoked, key.revoker, key.replaced_by)
