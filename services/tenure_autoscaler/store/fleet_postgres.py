"""The records of fleets in PostgreSQL. Every write compares the leader's epoch and the cap."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tenure_autoscaler.records import (
    FleetBook,
    FleetMemory,
    GroupClaim,
    MachineRecord,
    cap_reached,
    machine_taken,
)
from tenure_autoscaler.store.fleet_rows import memory_of, memory_text, record_of, record_text
from tenure_autoscaler.store.postgres import insert_decision
from tenure_autoscaler.values import Decision
from tenure_core.errors import Stale
from tenure_runtime.postgres.pool import Pool
from tenure_runtime.postgres.transaction import Transaction, run


class PostgresFleetStore:
    """See `FleetStore`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def open_book(self, group: str) -> FleetBook:
        """See `FleetStore`."""

        async def look(tx: Transaction) -> FleetBook:
            rows = await tx.fetch(
                "SELECT body FROM orders WHERE group_id = $1 ORDER BY machine", group
            )
            memory = await tx.fetchval("SELECT memory FROM fleets WHERE group_id = $1", group)
            taken = await tx.fetch("SELECT machine FROM orders WHERE live")
            return FleetBook(
                tuple(record_of(row["body"]) for row in rows),
                FleetMemory() if memory is None else memory_of(memory),
                frozenset(row["machine"] for row in taken),
            )

        return await run(self._pool, look, isolation="repeatable_read", readonly=True)

    async def all_records(self) -> list[MachineRecord]:
        """See `FleetStore`."""
        rows = await self._pool.fetch("SELECT body FROM orders ORDER BY machine")
        return [record_of(row["body"]) for row in rows]

    async def fence(self, claim: GroupClaim) -> None:
        """See `FleetStore`."""
        await run(self._pool, lambda tx: _compare_epoch(tx, claim))

    async def write(
        self,
        claim: GroupClaim,
        records: Sequence[MachineRecord],
        memory: FleetMemory | None = None,
        decision: Decision | None = None,
    ) -> int:
        """See `FleetStore`."""

        async def use_case(tx: Transaction) -> int:
            await _compare_epoch(tx, claim)
            return await _save(tx, claim, records, memory, decision)

        return await run(self._pool, use_case)

    async def order(
        self,
        claim: GroupClaim,
        records: Sequence[MachineRecord],
        memory: FleetMemory,
        decision: Decision,
        *,
        besides: int,
    ) -> int:
        """See `FleetStore`."""

        async def use_case(tx: Transaction) -> int:
            await _compare_epoch(tx, claim)
            number = await _save(tx, claim, records, memory, decision)
            if any(record.waits_for_provider for record in records):
                await _check_cap(tx, claim, besides)
            return number

        return await run(self._pool, use_case)

    async def tell_results(
        self, claim: GroupClaim, number: int, results: Sequence[tuple[str, str]]
    ) -> None:
        """See `FleetStore`."""

        async def use_case(tx: Transaction) -> None:
            await _compare_epoch(tx, claim)
            text = json.dumps(dict(results))
            await tx.execute("UPDATE decisions SET results = $2 WHERE number = $1", number, text)

        await run(self._pool, use_case)


async def _compare_epoch(tx: Transaction, claim: GroupClaim) -> None:
    held = await tx.fetchval(
        "INSERT INTO fleets AS f VALUES ($1, $2, '{}') ON CONFLICT (group_id) DO UPDATE"
        " SET epoch = excluded.epoch WHERE f.epoch <= excluded.epoch RETURNING epoch",
        claim.group,
        claim.epoch,
    )
    if held is None:
        raise Stale("STALE_EPOCH", "Another leader acts for this group.", group=claim.group)


async def _save(
    tx: Transaction,
    claim: GroupClaim,
    records: Sequence[MachineRecord],
    memory: FleetMemory | None,
    decision: Decision | None,
) -> int:
    if records:
        await _save_records(tx, records)
    if memory is not None:
        text = memory_text(memory)
        await tx.execute("UPDATE fleets SET memory = $2 WHERE group_id = $1", claim.group, text)
    return 0 if decision is None else await insert_decision(tx, decision)


async def _save_records(tx: Transaction, records: Sequence[MachineRecord]) -> None:
    saved = await tx.fetch(
        "INSERT INTO orders AS o SELECT * FROM unnest($1::text[], $2::text[], $3::text[],"
        " $4::boolean[], $5::jsonb[]) ON CONFLICT (machine) DO UPDATE SET"
        " group_id = excluded.group_id, token = excluded.token, live = excluded.live,"
        " body = excluded.body WHERE o.group_id = excluded.group_id OR NOT o.live"
        " RETURNING machine",
        [r.machine for r in records],
        [r.group for r in records],
        [r.token for r in records],
        [r.live for r in records],
        [record_text(r) for r in records],
    )
    missing = {r.machine for r in records} - {row["machine"] for row in saved}
    if missing:
        raise machine_taken(min(missing))


async def _check_cap(tx: Transaction, claim: GroupClaim, besides: int) -> None:
    """Refuse what goes beyond the cap; the row's lock holds the cap still until it is written."""
    most = await tx.fetchval(
        "SELECT size_max FROM groups WHERE group_id = $1 FOR SHARE", claim.group
    )
    count = await tx.fetchval(
        "SELECT count(*) FROM orders WHERE group_id = $1 AND live"
        " AND coalesce(body ->> 'role', '') <> 'MASTER'",
        claim.group,
    )
    if most is None or count + besides > most:
        raise cap_reached(claim.group, most or 0)
