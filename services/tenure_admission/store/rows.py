"""Rows of the table `leases` ⇄ records, and the statements that write them and their changes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from tenure_admission import convert
from tenure_admission.budgets import given_back
from tenure_admission.charges import charge_of, usage_deltas
from tenure_admission.notices.facts import notice_of
from tenure_admission.records import Draft, Forecast, LeaseRecord, StoredLease
from tenure_admission.store import ledger, notices, secret_rows, spending
from tenure_core.audit.entry import Origin
from tenure_core.leases.states import ENDED, WAITING, LeaseState
from tenure_runtime.audit import trail
from tenure_runtime.postgres.changefeed import APPENDING, ChangeFeed, NewChange
from tenure_runtime.postgres.transaction import Record, Transaction

T = TypeVar("T")

# Lease, change and audit entry have the same body: it is sent once. So is what all rows of a column
# have in common (`_column`): one owner's leases of one kind are most batches.
_INSERT = f"""
WITH given AS MATERIALIZED (
    SELECT * FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::int[],
                         $8::text[], $9::text[], $10::bytea[], $11::text[], $12::text[],
                         $13::text[], $14::bytea[])
         AS given (id, owner, project, pool, created_ms, node_count, amounts, labels, body,
                   method, peer, request_id, hidden)
), stored AS (
    INSERT INTO leases (id, owner, project, pool, state, version, attempt, created_ms, node_count,
                        amounts, labels, body)
    SELECT id, coalesce(owner, ($3::text[])[1]), coalesce(project, ($4::text[])[1]),
           coalesce(pool, ($5::text[])[1]), 'PENDING', 1, 0,
           coalesce(created_ms, ($6::bigint[])[1]), coalesce(node_count, ($7::int[])[1]),
           coalesce(amounts, ($8::text[])[1])::jsonb, coalesce(labels, ($9::text[])[1])::jsonb, body
    FROM given ON CONFLICT (id) DO NOTHING RETURNING 1
), told AS (
    {APPENDING} SELECT $1, id, 'created', body FROM given
), audited AS (
    {trail.WRITING}
    SELECT coalesce(owner, ($3::text[])[1]), coalesce(method, ($11::text[])[1]),
           coalesce(peer, ($12::text[])[1]), coalesce(request_id, ($13::text[])[1]),
           'leases/' || id, NULL, coalesce(hidden, body) FROM given
)
SELECT count(*) FROM stored
"""  # noqa: S608 - a constant
# The version is compared although the row is locked: a mistake here must not overwrite a lease.
_UPDATE = """
UPDATE leases SET state = g.state, version = g.version, attempt = g.attempt,
    node_count = g.node_count, labels = g.labels::jsonb,
    charge_start_ms = g.charge_start_ms, charge_end_ms = g.charge_end_ms, body = g.body,
    ended_ms = CASE WHEN g.state IN ('DONE', 'FAILED', 'CANCELLED', 'REJECTED')
        THEN coalesce(ended_ms, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) END
FROM unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[], $5::int[], $6::int[],
            $7::text[], $8::bigint[], $9::bigint[], $10::bytea[])
     AS g (id, version_before, state, version, attempt, node_count, labels,
           charge_start_ms, charge_end_ms, body)
WHERE leases.id = g.id AND leases.version = g.version_before
"""
SELECT_STORED = """
SELECT l.id, l.owner, l.project, l.pool, l.state, l.created_ms, l.body,
       f.evaluated_ms, f.predicted_start_ms, f.queue_position, f.reason, f.message
FROM leases l LEFT JOIN forecasts f
     ON f.lease_id = l.id AND l.state IN ('PENDING', 'QUEUED')
"""
_LOCK = "SELECT id, body FROM leases WHERE id = ANY ($1) ORDER BY id FOR UPDATE"


def _json(mapping: Mapping[str, int] | Mapping[str, str]) -> str:
    return _json_of(tuple(mapping.items())) if mapping else "{}"


# The same few amounts are asked for over and over.
@lru_cache(maxsize=1_024)
def _json_of(items: tuple[tuple[str, int | str], ...]) -> str:
    return json.dumps(dict(items), separators=(",", ":"))


def _count(tag: str) -> int:
    return int(tag.rpartition(" ")[2])


def _column(values: list[T]) -> list[T]:
    """Return the first value where all are the same, for `unnest` and `coalesce` to repeat."""
    return values[:1] if values.count(values[0]) == len(values) else values


async def insert(
    tx: Transaction, feed: ChangeFeed, drafts: Sequence[Draft], origins: Sequence[Origin]
) -> int:
    """Store new leases, their changes and who made them; return how many ids were free.

    Each draft's owner is its caller.
    """
    if not drafts:
        return 0
    hidden = [draft.hidden_body for draft in drafts]
    free: int = await tx.fetchval(
        _INSERT,
        feed.feed,
        [draft.id for draft in drafts],
        _column([draft.owner for draft in drafts]),
        _column([draft.project for draft in drafts]),
        _column([draft.pool for draft in drafts]),
        _column([draft.created for draft in drafts]),
        _column([draft.node_count for draft in drafts]),
        _column([_json(draft.amounts) for draft in drafts]),
        _column([_json(draft.labels) for draft in drafts]),
        [draft.body for draft in drafts],
        _column([origin.method for origin in origins]),
        _column([origin.peer for origin in origins]),
        _column([origin.request_id for origin in origins]),
        hidden if any(hidden) else [],
    )
    feed.appended(tx)
    return free


@dataclass(frozen=True, slots=True)
class Locked:
    """A lease whose row is locked, and its bytes as stored."""

    record: LeaseRecord
    body: bytes


async def lock(tx: Transaction, lease_ids: Iterable[str]) -> dict[str, Locked]:
    """Return those of the leases that exist, locked in the order of their ids."""
    rows = await tx.fetch(_LOCK, sorted(lease_ids))
    return {row["id"]: Locked(convert.decode(row["body"]), row["body"]) for row in rows}


async def update(
    tx: Transaction,
    feed: ChangeFeed,
    locked: Mapping[str, Locked],
    after: Mapping[str, LeaseRecord],
) -> dict[str, bytes]:
    """Store changed leases, their changes and what they change of usage; return their bytes."""
    if not after:
        return {}
    ids = sorted(after)
    before = {lease_id: locked[lease_id].record for lease_id in ids}
    bodies = {
        each: convert.encode_after(locked[each].body, before[each], after[each]) for each in ids
    }
    records = [after[lease_id] for lease_id in ids]
    tag = await tx.execute(
        _UPDATE,
        ids,
        [before[lease_id].lease.version for lease_id in ids],
        [record.lease.state.value for record in records],
        [record.lease.version for record in records],
        [record.lease.attempt for record in records],
        [record.lease.spec.node_count for record in records],
        [_json(record.lease.spec.labels) for record in records],
        [record.charge.start if record.charge else None for record in records],
        [record.charge.end if record.charge else None for record in records],
        [bodies[lease_id] for lease_id in ids],
    )
    assert _count(tag) == len(ids), "locked leases kept their versions"
    await feed.append(tx, [NewChange(each, "changed", bodies[each]) for each in ids])
    charges = [(charge_of(before[each]), charge_of(after[each])) for each in ids]
    await ledger.change_usage(tx, usage_deltas(charges))
    told = [notice_of(before[each], after[each]) for each in ids]
    await notices.write(tx, [notice for notice in told if notice is not None])
    spent = [row for each in ids for row in given_back(before[each], after[each])]
    await spending.add(tx, spent)
    left = [
        each
        for each in ids
        if before[each].lease.state in WAITING and after[each].lease.state not in WAITING
    ]
    if left:
        await tx.execute("DELETE FROM forecasts WHERE lease_id = ANY ($1)", left)
    await secret_rows.remove(tx, [each for each in ids if _gives_up_secrets(after[each])])
    return bodies


def _gives_up_secrets(record: LeaseRecord) -> bool:
    return record.lease.state in ENDED and bool(record.lease.spec.work.secrets)


def stored_of(row: Record) -> StoredLease:
    """Return a row of `SELECT_STORED`."""
    forecast = None
    if row["evaluated_ms"] is not None:
        forecast = Forecast(
            row["evaluated_ms"],
            row["predicted_start_ms"],
            row["queue_position"],
            row["reason"],
            row["message"],
        )
    return StoredLease(
        row["id"],
        row["owner"],
        row["project"],
        row["pool"],
        LeaseState(row["state"]),
        bytes(row["body"]),
        forecast,
    )
