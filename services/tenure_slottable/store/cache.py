"""The newest committed state of each pool, held in memory and caught up before it is used.

A pool's revision grows by one with each commit, under the lock of its row, so a cache at the locked
revision *is* the pool. A cache that is behind reads only what changed since (another replica
wrote); one that is behind the horizon, or that was in doubt after a failed commit, reads all.
"""

from __future__ import annotations

import asyncio
import json

from tenure_core.slots.commit import PoolTable
from tenure_core.slots.operations import Node
from tenure_runtime.postgres.transaction import Transaction
from tenure_slottable.store.codec import node_from_json, row_from_json

_ROWS = """
SELECT id, pool, node, lease, attempt, rank, kind, start_ms, end_ms, amounts, displaced, version,
       created_ms
FROM reservations WHERE pool = $1 AND revision > $2
"""


class CachedPool:
    """One pool's table at a revision; `lock` is held while it is read or changed."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.table: PoolTable | None = None
        self.revision = -1
        self.created: dict[str, int] = {}

    def forget(self) -> None:
        """Drop what is held; the next use loads everything."""
        self.table, self.revision = None, -1

    async def catch_up(self, tx: Transaction, pool: str, revision: int, horizon: int) -> PoolTable:
        """Bring the table to `revision`, which `tx` sees, and return it."""
        if self.table is not None and self.revision == revision:
            return self.table
        if self.table is None or self.revision < horizon or self.revision > revision:
            self.forget()
            nodes = await _nodes(tx, pool, -1)
            rows = [row_from_json(dict(row)) for row in await tx.fetch(_ROWS, pool, -1)]
            self.created = {stored.row.id: stored.created for stored in rows}
            self.table = PoolTable(nodes, (stored.row for stored in rows))
        else:
            rows = [row_from_json(dict(row)) for row in await tx.fetch(_ROWS, pool, self.revision)]
            released = [
                row["id"]
                for row in await tx.fetch(
                    "SELECT id FROM released WHERE pool = $1 AND revision > $2", pool, self.revision
                )
            ]
            written = {stored.row.id for stored in rows}
            nodes = await _nodes(tx, pool, self.revision)
            table, self.table = self.table, None
            table.follow(
                nodes,
                [stored.row for stored in rows],
                [reservation for reservation in released if reservation not in written],
            )
            for reservation in released:
                self.created.pop(reservation, None)
            self.created.update((stored.row.id, stored.created) for stored in rows)
            self.table = table
        self.revision = revision
        return self.table


async def _nodes(tx: Transaction, pool: str, since: int) -> list[Node]:
    rows = await tx.fetch(
        "SELECT body FROM nodes WHERE pool = $1 AND revision > $2 ORDER BY id", pool, since
    )
    return [node_from_json(json.loads(row["body"])) for row in rows]
