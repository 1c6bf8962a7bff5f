"""Pools and policies in PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict, replace
from typing import Any, TypeVar

from tenure_core.audit.entry import AuditedChange
from tenure_core.errors import AlreadyExists, Conflict, NotFound, WrongState
from tenure_runtime.audit import trail
from tenure_runtime.postgres import idempotency
from tenure_runtime.postgres.pool import Pool as Database
from tenure_runtime.postgres.transaction import Transaction, run
from tenure_scheduler.pools import Pool, PoolBook, PoolPolicy
from tenure_scheduler.ports import RepeatKey

Result = TypeVar("Result", Pool, PoolPolicy)


class PostgresPoolStore:
    """The store of `tenure_scheduler.ports` over one schema."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def book(self) -> PoolBook:
        """Return all pools and policies."""
        pools = await self._database.fetch("SELECT id, policy, version, body FROM pools")
        policies = await self._database.fetch("SELECT id, version, body FROM policies")
        return PoolBook(
            {row["id"]: _pool(row) for row in pools},
            {row["id"]: _policy(row) for row in policies},
        )

    async def create_pool(self, pool: Pool, repeat: RepeatKey) -> Pool:
        """Store a new pool."""

        async def insert(tx: Transaction) -> Pool:
            await _policy_exists(tx, pool.policy)
            created = await tx.fetchval(
                "INSERT INTO pools (id, policy, version, body) VALUES ($1, $2, 1, $3)"
                " ON CONFLICT DO NOTHING RETURNING id",
                pool.id,
                pool.policy,
                _body(pool, "policy"),
            )
            if created is None:
                raise AlreadyExists("POOL_EXISTS", f"There is a pool {pool.id} already.")
            return await _audited(tx, None, replace(pool, version=1))

        return await self._once(repeat, insert, Pool)

    async def update_pool(self, pool: Pool, expected: int | None) -> Pool:
        """Replace a pool and count its version up."""

        async def update(tx: Transaction) -> Pool:
            before = _pool(await _lock(tx, "pools", pool.id, expected, "POOL_NOT_FOUND"))
            await _policy_exists(tx, pool.policy)
            after = replace(pool, version=before.version + 1)
            await tx.execute(
                "UPDATE pools SET policy = $2, version = $3, body = $4 WHERE id = $1",
                pool.id,
                pool.policy,
                after.version,
                _body(pool, "policy"),
            )
            return await _audited(tx, before, after)

        return await run(self._database, update)

    async def delete_pool(self, pool: str, expected: int | None) -> None:
        """Forget a pool."""

        async def delete(tx: Transaction) -> None:
            before = _pool(await _lock(tx, "pools", pool, expected, "POOL_NOT_FOUND"))
            await tx.execute("DELETE FROM pools WHERE id = $1", pool)
            await trail.write(tx, [_change(before, None)])

        await run(self._database, delete)

    async def create_policy(self, policy: PoolPolicy, repeat: RepeatKey) -> PoolPolicy:
        """Store a new policy."""

        async def insert(tx: Transaction) -> PoolPolicy:
            created = await tx.fetchval(
                "INSERT INTO policies (id, version, body) VALUES ($1, 1, $2)"
                " ON CONFLICT DO NOTHING RETURNING id",
                policy.id,
                _body(policy),
            )
            if created is None:
                raise AlreadyExists("POLICY_EXISTS", f"There is a policy {policy.id} already.")
            return await _audited(tx, None, replace(policy, version=1))

        return await self._once(repeat, insert, PoolPolicy)

    async def update_policy(self, policy: PoolPolicy, expected: int | None) -> PoolPolicy:
        """Replace a policy and count its version up."""

        async def update(tx: Transaction) -> PoolPolicy:
            locked = await _lock(tx, "policies", policy.id, expected, "POLICY_NOT_FOUND")
            before = _policy(locked)
            after = replace(policy, version=before.version + 1)
            await tx.execute(
                "UPDATE policies SET version = $2, body = $3 WHERE id = $1",
                policy.id,
                after.version,
                _body(policy),
            )
            return await _audited(tx, before, after)

        return await run(self._database, update)

    async def delete_policy(self, policy: str, expected: int | None) -> None:
        """Forget a policy."""

        async def delete(tx: Transaction) -> None:
            before = _policy(await _lock(tx, "policies", policy, expected, "POLICY_NOT_FOUND"))
            used = await tx.fetchval("SELECT id FROM pools WHERE policy = $1 LIMIT 1", policy)
            if used is not None:
                raise WrongState("POLICY_IN_USE", f"Pool {used} is planned by policy {policy}.")
            await tx.execute("DELETE FROM policies WHERE id = $1", policy)
            await trail.write(tx, [_change(before, None)])

        await run(self._database, delete)

    async def note_step_down(self, pool: str, epoch: int) -> None:
        """Note in the audit trail that a caller ends a leadership."""
        ended = trail.json_change(
            f"leaderships/{pool}", json.dumps({"epoch": epoch}).encode(), None
        )

        async def note(tx: Transaction) -> None:
            await trail.write(tx, [ended])

        await run(self._database, note)

    async def _once(
        self,
        repeat: RepeatKey,
        effect: Callable[[Transaction], Awaitable[Result]],
        kind: type[Result],
    ) -> Result:
        async def use_case(tx: Transaction) -> bytes:
            async def answer() -> bytes:
                return json.dumps(asdict(await effect(tx))).encode()

            key = idempotency.RequestKey(repeat.caller, repeat.request_id, repeat.request)
            return await idempotency.once(tx, key, answer)

        return kind(**json.loads(await run(self._database, use_case)))


async def _policy_exists(tx: Transaction, policy: str) -> None:
    found = await tx.fetchval("SELECT id FROM policies WHERE id = $1 FOR SHARE", policy)
    if found is None:
        raise NotFound("POLICY_NOT_FOUND", f"There is no policy {policy}.", policy=policy)


async def _lock(tx: Transaction, table: str, name: str, expected: int | None, reason: str) -> Any:
    row = await tx.fetchrow(
        f"SELECT * FROM {table} WHERE id = $1 FOR UPDATE",  # noqa: S608  # our own constants
        name,
    )
    if row is None:
        raise NotFound(reason, f"There is no {name}.", name=name)
    if expected not in (None, row["version"]):
        raise Conflict("ETAG_MISMATCH", f"{name} was changed meanwhile; read it again.", name=name)
    return row


async def _audited(tx: Transaction, before: Result | None, after: Result) -> Result:
    """Write the change to the audit trail and return what is there now."""
    await trail.write(tx, [_change(before, after)])
    return after


def _change(before: Pool | PoolPolicy | None, after: Pool | PoolPolicy | None) -> AuditedChange:
    def encoded(value: Pool | PoolPolicy | None) -> bytes | None:
        return None if value is None else json.dumps(asdict(value)).encode()

    one = after or before
    assert one is not None, "a change is of something"
    kind = "pools" if isinstance(one, Pool) else "policies"
    return trail.json_change(f"{kind}/{one.id}", encoded(before), encoded(after))


def _body(value: Pool | PoolPolicy, *columns: str) -> str:
    fields = asdict(value)
    for column in ("id", "version", *columns):
        del fields[column]
    return json.dumps(fields)


def _pool(row: Any) -> Pool:
    return Pool(
        id=row["id"], policy=row["policy"], version=row["version"], **json.loads(row["body"])
    )


def _policy(row: Any) -> PoolPolicy:
    return PoolPolicy(id=row["id"], version=row["version"], **json.loads(row["body"]))
