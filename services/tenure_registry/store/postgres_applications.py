"""Applications in PostgreSQL: their last reports, and what they shall be."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tenure_registry.store.postgres_commands import raise_epoch
from tenure_registry.values import ApplicationOrder, StoredApplication
from tenure_runtime.postgres.pool import Pool
from tenure_runtime.postgres.transaction import Transaction, run


class PostgresApplications:
    """See `ApplicationStore`; the part of the store that has applications."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def application_reported(self, agent: str, session: str, report: bytes) -> bytes | None:
        """See `ApplicationStore`."""

        async def use_case(tx: Transaction) -> bytes | None:
            return await _reported(tx, agent, session, report)

        return await run(self._pool, use_case)

    async def applications(self, agents: Collection[str]) -> list[StoredApplication]:
        """See `ApplicationStore`."""

        async def use_case(tx: Transaction) -> list[StoredApplication]:
            return await _applications(tx, agents)

        return await run(self._pool, use_case, readonly=True)

    async def order_applications(
        self, scope: str, epoch: int, orders: Sequence[ApplicationOrder]
    ) -> None:
        """See `ApplicationStore`."""

        async def use_case(tx: Transaction) -> None:
            await _order(tx, scope, epoch, orders)

        await run(self._pool, use_case)


async def _reported(tx: Transaction, agent: str, session: str, report: bytes) -> bytes | None:
    """Store a report of an agent's present session; return the order for its incarnation."""
    incarnation = await tx.fetchval(
        "INSERT INTO applications AS a SELECT agent, incarnation, 1, clock_timestamp(), $3"
        " FROM agents WHERE agent = $1 AND session = $2 ON CONFLICT (agent) DO UPDATE SET"
        " incarnation = excluded.incarnation, sequence = a.sequence + 1,"
        " received_at = excluded.received_at, report = excluded.report RETURNING incarnation",
        agent,
        session,
        report,
    )
    if incarnation is None:
        return None
    body = await tx.fetchval(
        "SELECT body FROM application_orders WHERE agent = $1 AND incarnation = $2",
        agent,
        incarnation,
    )
    return None if body is None else bytes(body)


async def _applications(tx: Transaction, agents: Collection[str]) -> list[StoredApplication]:
    """Return what is known of the applications on agents, by agent."""
    rows = await tx.fetch(
        "SELECT a.*, (extract(epoch FROM clock_timestamp() - received_at) * 1000)::bigint AS age,"
        " coalesce(o.order_id, '') AS order_id FROM applications a"
        " LEFT JOIN application_orders o USING (agent, incarnation)"
        " WHERE agent = ANY($1) ORDER BY agent",
        list(agents),
    )
    return [
        StoredApplication(
            row["agent"],
            row["incarnation"],
            row["sequence"],
            max(0, row["age"]),
            bytes(row["report"]),
            row["order_id"],
        )
        for row in rows
    ]


async def _order(
    tx: Transaction, scope: str, epoch: int, orders: Sequence[ApplicationOrder]
) -> None:
    """Store a leader's orders over those before. Raises Stale STALE_EPOCH."""
    await raise_epoch(tx, scope, epoch)
    await tx.execute(
        "INSERT INTO application_orders SELECT * FROM unnest($1::text[], $2::text[], $3::text[],"
        " $4::bytea[]) ON CONFLICT (agent) DO UPDATE SET incarnation = excluded.incarnation,"
        " order_id = excluded.order_id, body = excluded.body",
        [each.agent for each in orders],
        [each.incarnation for each in orders],
        [each.order_id for each in orders],
        [each.body for each in orders],
    )
