"""One pool inside a transaction: what a use case may do, and how its changes are written."""

from __future__ import annotations

from dataclasses import dataclass

from tenure_core.audit.entry import AuditedChange
from tenure_core.errors import Stale
from tenure_core.slots.commit import PoolTable
from tenure_core.slots.operations import RowChanges
from tenure_core.timebase import Millis
from tenure_runtime.audit import trail
from tenure_runtime.postgres.changefeed import ChangeFeed, NewChange
from tenure_runtime.postgres.transaction import Transaction
from tenure_slottable import metrics
from tenure_slottable.ports import MaintenanceWindow, StoredRow
from tenure_slottable.store.codec import dump, node_to_json, row_to_json


@dataclass
class OpenPool:
    """A pool as a use case sees it in its transaction."""

    now: Millis
    revision: int
    table: PoolTable
    tx: Transaction
    pool: str

    async def compare_epoch(self, scope: str, epoch: int) -> None:
        """Raise Stale STALE_EPOCH when older than the scope's; remember a newer one."""
        accepted = await self.tx.fetchval(
            "INSERT INTO epochs AS e (scope, epoch) VALUES ($1, $2)"
            " ON CONFLICT (scope) DO UPDATE SET epoch = $2 WHERE e.epoch <= $2 RETURNING epoch",
            scope,
            epoch,
        )
        if accepted is None:
            raise Stale(
                "STALE_EPOCH",
                f"epoch {epoch} of {scope} has been superseded",
                scope=scope,
                epoch=epoch,
            )

    async def put_window(self, window: MaintenanceWindow) -> None:
        """Store a maintenance window."""
        await self.tx.execute(
            "INSERT INTO maintenance_windows (id, pool, nodes, start_ms, end_ms, message)"
            " VALUES ($1, $2, $3, $4, $5, $6)",
            window.id,
            window.pool,
            list(window.nodes),
            window.interval.start,
            window.interval.end,
            window.message,
        )
        await trail.write(self.tx, [_audited(window, None, _window_to_json(window))])

    async def drop_window(self, window: MaintenanceWindow) -> None:
        """Forget a maintenance window; nothing when another call has."""
        dropped = await self.tx.fetchval(
            "DELETE FROM maintenance_windows WHERE id = $1 RETURNING id", window.id
        )
        if dropped is not None:
            await trail.write(self.tx, [_audited(window, _window_to_json(window), None)])


def _window_to_json(window: MaintenanceWindow) -> bytes:
    start, end = window.interval.start, window.interval.end
    fields = {"pool": window.pool, "nodes": list(window.nodes), "message": window.message}
    return dump({"id": window.id, **fields, "start_ms": start, "end_ms": end}).encode()


def _audited(window: MaintenanceWindow, before: bytes | None, after: bytes | None) -> AuditedChange:
    return trail.json_change(f"maintenanceWindows/{window.id}", before, after)


async def write(
    opened: OpenPool, changes: RowChanges, created: dict[str, Millis], feed: ChangeFeed
) -> None:
    """Write what changed, with the new revision and the change feed beside it."""
    tx, pool, revision = opened.tx, opened.pool, opened.revision + 1
    stored = [
        StoredRow(row, pool, created.setdefault(row.id, opened.now))
        for _, row in sorted(changes.written.items())
    ]
    if changes.released:
        released = sorted(changes.released)
        for reservation in released:
            created.pop(reservation, None)
        await tx.execute("DELETE FROM reservations WHERE id = ANY($1::text[])", released)
        await tx.execute(
            "INSERT INTO released (pool, revision, id) SELECT $1, $2, unnest($3::text[])",
            pool,
            revision,
            released,
        )
    if stored:
        await tx.execute(_UPSERT, *_columns(stored), revision)
    if changes.nodes:
        await tx.executemany(
            "INSERT INTO nodes (id, pool, revision, body) VALUES ($1, $2, $3, $4)"
            " ON CONFLICT (id) DO UPDATE SET revision = $3, body = $4",
            [
                (node.id, pool, revision, dump(node_to_json(node)))
                for node in changes.nodes.values()
            ],
        )
    await tx.execute(
        "UPDATE pools SET revision = $2, last_ms = $3 WHERE pool = $1",
        pool,
        revision,
        opened.now,
    )
    tx.after_commit(lambda: metrics.REVISION.set(revision, pool))
    await feed.append(tx, _feed_rows(pool, revision, opened.now, stored, changes))


_UPSERT = """
INSERT INTO reservations (id, pool, node, lease, attempt, rank, kind, start_ms, end_ms, amounts,
                          displaced, version, created_ms, revision)
SELECT *, $14::bigint FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::integer[],
    $6::integer[], $7::text[], $8::bigint[], $9::bigint[], $10::jsonb[], $11::boolean[],
    $12::bigint[], $13::bigint[])
ON CONFLICT (id) DO UPDATE SET
    node = excluded.node, attempt = excluded.attempt, kind = excluded.kind,
    start_ms = excluded.start_ms, end_ms = excluded.end_ms, amounts = excluded.amounts,
    displaced = excluded.displaced, version = excluded.version, revision = excluded.revision
"""


def _columns(stored: list[StoredRow]) -> list[list[object]]:
    fields = [row_to_json(each) for each in stored]
    for body in fields:
        body["amounts"] = dump(body["amounts"])
    return [[body[name] for body in fields] for name in fields[0]]


def _feed_rows(
    pool: str, revision: int, now: Millis, stored: list[StoredRow], changes: RowChanges
) -> list[NewChange]:
    def payload(body: object) -> bytes:
        return dump({"revision": revision, "at": now, "pool": pool, "body": body}).encode()

    rows = [
        NewChange(f"{pool}/{reservation}", "released", payload(reservation))
        for reservation in sorted(changes.released)
    ]
    rows += [
        NewChange(f"{pool}/{node.id}", "node", payload(node_to_json(node)))
        for _, node in sorted(changes.nodes.items())
    ]
    rows += [
        NewChange(f"{pool}/{each.row.id}", "reservation", payload(row_to_json(each)))
        for each in stored
    ]
    return rows
