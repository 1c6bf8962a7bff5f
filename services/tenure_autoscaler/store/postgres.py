"""The autoscaler's store in PostgreSQL."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Final

from tenure_autoscaler.store.rows import (
    amounts_text,
    changed_group,
    check_version,
    decision_of,
    elastic_text,
    group_audited,
    group_exists,
    group_in_use,
    group_not_found,
    group_of,
    group_text,
    machine_of,
    machine_payload,
    same_but_version,
    says_the_same,
)
from tenure_autoscaler.values import (
    Decision,
    Group,
    GroupChange,
    Machine,
    MachineChange,
    MachineState,
    RequestMark,
)
from tenure_core.timebase import Millis
from tenure_runtime.audit import trail
from tenure_runtime.postgres import idempotency
from tenure_runtime.postgres.changefeed import ChangeFeed, NewChange
from tenure_runtime.postgres.feedhub import Bookmark, FeedHub
from tenure_runtime.postgres.pool import Pool
from tenure_runtime.postgres.transaction import Transaction, run
from tenure_runtime.rpc.draining import Draining

SCHEMA: Final = "autoscaler"
FEED_RETENTION_MS: Final[Millis] = 3_600_000


class PostgresStore:
    """Open it with `await PostgresStore.open(...)`, and run `run()` in a TaskGroup."""

    def __init__(self, pool: Pool, machines: FeedHub) -> None:
        self._pool = pool
        self._machines = machines

    @classmethod
    async def open(cls, pool: Pool, draining: Draining) -> PostgresStore:
        """Return the store of a schema that is migrated."""
        return cls(pool, FeedHub(await ChangeFeed.open(pool, "machines"), draining))

    async def run(self) -> None:
        """Follow the feed until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._machines.feed.run())
            group.create_task(self._machines.run())

    async def create_group(self, group: Group, mark: RequestMark) -> Group:
        """See `GroupStore`."""

        async def use_case(tx: Transaction) -> bytes:
            async def effect() -> bytes:
                stored = await tx.fetchval(
                    "INSERT INTO groups VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12,"
                    " $13, $14) ON CONFLICT DO NOTHING RETURNING group_id",
                    group.group,
                    group.kind.value,
                    group.pool,
                    group.size_min,
                    group.size_max,
                    group.provider,
                    amounts_text(group.amounts),
                    group.boot_ms,
                    group.paused,
                    group.dry_run,
                    group.version,
                    group.created_ms,
                    group.idle_ms,
                    elastic_text(group.elastic),
                )
                if stored is None:
                    raise group_exists(group.group)
                await trail.write(tx, [group_audited(None, group)])
                return group_text(group)

            key = idempotency.RequestKey(mark.caller, mark.request_id, mark.request)
            return await idempotency.once(tx, key, effect)

        # An answer kept from before there were elastic groups lacks the column.
        return group_of({"elastic": None, **json.loads(await run(self._pool, use_case))})

    async def get_group(self, group: str) -> Group:
        """See `GroupStore`."""
        row = await self._pool.fetchrow("SELECT * FROM groups WHERE group_id = $1", group)
        if row is None:
            raise group_not_found(group)
        return group_of(row)

    async def list_groups(self, after: str, limit: int) -> list[Group]:
        """See `GroupStore`."""
        rows = await self._pool.fetch(
            "SELECT * FROM groups WHERE group_id > $1 ORDER BY group_id LIMIT $2", after, limit
        )
        return [group_of(row) for row in rows]

    async def change_group(self, group: str, change: GroupChange, version: int | None) -> Group:
        """See `GroupStore`."""

        async def use_case(tx: Transaction) -> Group:
            before = await _locked(tx, group)
            after = changed_group(before, change, version)
            if after is not before:
                await tx.execute(
                    "UPDATE groups SET size_min = $2, size_max = $3, amounts = $4, boot_ms = $5,"
                    " paused = $6, dry_run = $7, version = $8, idle_ms = $9, elastic = $10"
                    " WHERE group_id = $1",
                    group,
                    after.size_min,
                    after.size_max,
                    amounts_text(after.amounts),
                    after.boot_ms,
                    after.paused,
                    after.dry_run,
                    after.version,
                    after.idle_ms,
                    elastic_text(after.elastic),
                )
                await trail.write(tx, [group_audited(before, after)])
            return after

        return await run(self._pool, use_case)

    async def delete_group(self, group: str, version: int | None) -> None:
        """See `GroupStore`."""

        async def use_case(tx: Transaction) -> None:
            before = await _locked(tx, group)
            check_version(before, version)
            used = await tx.fetchval(
                "SELECT 1 FROM machines WHERE group_id = $1 AND state <> ALL ($2) LIMIT 1",
                group,
                [MachineState.REMOVED.value, MachineState.LOST.value],
            )
            if used or await tx.fetchval(
                "SELECT 1 FROM orders WHERE group_id = $1 AND live UNION ALL"
                " SELECT 1 FROM fleets WHERE group_id = $1"
                " AND coalesce(memory -> 'offered', '{}') <> '{}' LIMIT 1",
                group,
            ):
                raise group_in_use(group)
            await tx.execute("DELETE FROM groups WHERE group_id = $1", group)
            await trail.write(tx, [group_audited(before, None)])

        await run(self._pool, use_case)

    async def sync_machines(self, seen: Sequence[Machine]) -> int:
        """See `MachineStore`; several replicas may do it at once."""

        async def use_case(tx: Transaction) -> int:
            rows = await tx.fetch(
                "SELECT * FROM machines WHERE machine = ANY($1) ORDER BY machine FOR UPDATE",
                [machine.machine for machine in seen],
            )
            stored = {row["machine"]: machine_of(row) for row in rows}
            changed = [
                replace(machine, version=before.version + 1 if before else 1)
                for machine in seen
                if (before := stored.get(machine.machine)) is None
                or not same_but_version(before, machine)
            ]
            if changed:
                await _save_machines(tx, changed)
                await self._machines.feed.append(
                    tx, [NewChange(m.machine, m.pool, machine_payload(m)) for m in changed]
                )
            return len(changed)

        return await run(self._pool, use_case)

    async def list_machines(
        self, group: str, pool: str, after: str, limit: int
    ) -> tuple[list[Machine], str]:
        """See `MachineStore`."""

        async def use_case(tx: Transaction) -> tuple[list[Machine], str]:
            position = await self._machines.feed.position(tx)
            rows = await tx.fetch(
                "SELECT * FROM machines WHERE machine > $3 AND ($1 = '' OR group_id = $1)"
                " AND ($2 = '' OR pool = $2) ORDER BY machine LIMIT $4",
                group,
                pool,
                after,
                limit,
            )
            return [machine_of(row) for row in rows], position.token()

        return await run(self._pool, use_case, isolation="repeatable_read", readonly=True)

    async def watch_machines(self, token: str) -> AsyncGenerator[MachineChange, None]:
        """See `MachineStore`."""
        start = token or (await self._machines.feed.now()).token()
        async with aclosing(self._machines.watch(start)) as changes:
            async for change in changes:
                where = change.position.token()
                if isinstance(change, Bookmark):
                    yield MachineChange(None, where)
                else:
                    yield MachineChange(machine_of(json.loads(change.payload)), where)

    async def add_decision(self, decision: Decision) -> bool:
        """See `DecisionStore`; a lock on the subject keeps replicas from saying it twice."""

        async def use_case(tx: Transaction) -> bool:
            await tx.execute("SELECT pg_advisory_xact_lock(hashtext($1))", decision.subject)
            row = await tx.fetchrow(
                "SELECT * FROM decisions WHERE subject = $1 ORDER BY number DESC LIMIT 1",
                decision.subject,
            )
            if row is not None and says_the_same(decision_of(row), decision):
                return False
            await insert_decision(tx, decision)
            return True

        return await run(self._pool, use_case)

    async def list_decisions(self, subject: str, before: int, limit: int) -> list[Decision]:
        """See `DecisionStore`."""
        rows = await self._pool.fetch(
            "SELECT * FROM decisions WHERE ($1 = '' OR subject = $1)"
            " AND ($2::bigint = 0 OR number < $2) ORDER BY number DESC LIMIT $3",
            subject,
            before,
            limit,
        )
        return [decision_of(row) for row in rows]

    async def forget(self, retention_ms: Millis) -> int:
        """See `DecisionStore`; also trims the feed and forgets old request ids."""
        await run(self._pool, idempotency.forget_old)
        await self._machines.feed.trim(FEED_RETENTION_MS)
        tag = await self._pool.execute(
            "DELETE FROM decisions WHERE ctid = ANY (ARRAY(SELECT ctid FROM decisions d"
            " WHERE decided_ms < (extract(epoch FROM clock_timestamp()) * 1000)::bigint - $1"
            " AND EXISTS (SELECT 1 FROM decisions n WHERE n.subject = d.subject"
            " AND n.number > d.number) LIMIT 10000))",
            retention_ms,
        )
        return int(str(tag).rpartition(" ")[2])


async def _locked(tx: Transaction, group: str) -> Group:
    row = await tx.fetchrow("SELECT * FROM groups WHERE group_id = $1 FOR UPDATE", group)
    if row is None:
        raise group_not_found(group)
    return group_of(row)


async def _save_machines(tx: Transaction, machines: Sequence[Machine]) -> None:
    await tx.execute(
        "INSERT INTO machines SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[],"
        " $5::jsonb[], $6::bigint[], $7::bigint[], $8::text[]) ON CONFLICT (machine) DO UPDATE SET"
        " group_id = excluded.group_id, pool = excluded.pool, state = excluded.state,"
        " amounts = excluded.amounts, changed_ms = excluded.changed_ms,"
        " version = excluded.version, provider_id = excluded.provider_id",
        [m.machine for m in machines],
        [m.group for m in machines],
        [m.pool for m in machines],
        [m.state.value for m in machines],
        [amounts_text(m.amounts) for m in machines],
        [m.changed_ms for m in machines],
        [m.version for m in machines],
        [m.provider_id for m in machines],
    )


async def insert_decision(tx: Transaction, decision: Decision) -> int:
    """Store a decision and return its number."""
    number: int = await tx.fetchval(
        "INSERT INTO decisions (subject, decided_ms, current, target, rule, message, inputs,"
        " enacted, results) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) RETURNING number",
        decision.subject,
        decision.decided_ms,
        decision.current,
        decision.target,
        decision.rule,
        decision.message,
        json.dumps(dict(decision.inputs)),
        decision.enacted,
        json.dumps(dict(decision.results)),
    )
    return number
