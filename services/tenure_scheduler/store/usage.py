"""What was used of each pool, in PostgreSQL: stored by its leader, and gone on from by the next."""

from __future__ import annotations

from decimal import Decimal

from tenure_core.admission.usage_meter import DAYS_KEPT, Account, Usage, UsageMeter
from tenure_core.errors import Stale
from tenure_core.timebase import DAY_MS, Millis
from tenure_runtime.postgres.pool import Pool as Database
from tenure_runtime.postgres.transaction import Transaction, run
from tenure_scheduler.ports import Claim

_CLOCK = """
INSERT INTO usage_clocks AS c (pool, until_ms, epoch) VALUES ($1, $3, $4)
ON CONFLICT (pool) DO UPDATE SET until_ms = excluded.until_ms, epoch = excluded.epoch
WHERE c.until_ms = $2 AND c.epoch <= excluded.epoch
RETURNING 1
"""
_ADD = """
INSERT INTO usage_days AS u (pool, day, owner, project, kind, used)
SELECT $1, * FROM unnest($2::int[], $3::text[], $4::text[], $5::text[], $6::numeric[])
ON CONFLICT (pool, day, owner, project, kind) DO UPDATE SET used = u.used + excluded.used
"""


class PostgresUsage:
    """See `ports.UsageStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self, pool: str, now: Millis) -> UsageMeter:
        """Return what is stored; a pool that was never metered begins now."""

        async def read(tx: Transaction) -> UsageMeter:
            until = await tx.fetchval("SELECT until_ms FROM usage_clocks WHERE pool = $1", pool)
            rows = await tx.fetch(
                "SELECT day, owner, project, kind, used FROM usage_days WHERE pool = $1", pool
            )
            usage = {
                Account(row["day"], row["owner"], row["project"], row["kind"]): int(row["used"])
                for row in rows
            }
            return UsageMeter(now if until is None else until, usage)

        return await run(self._database, read, isolation="repeatable_read", readonly=True)

    async def add(self, claim: Claim, since: Millis, until: Millis, usage: Usage) -> None:
        """Store what was used from `since` to `until`. Raises Stale USAGE_MOVED_ON."""
        accounts = sorted(usage)

        async def write(tx: Transaction) -> None:
            if await tx.fetchval(_CLOCK, claim.pool, since, until, claim.epoch) is None:
                raise usage_moved_on(claim)
            if accounts:
                columns = [list(column) for column in zip(*accounts, strict=True)]
                amounts = [Decimal(usage[account]) for account in accounts]
                await tx.execute(_ADD, claim.pool, *columns, amounts)
            await tx.execute(
                "DELETE FROM usage_days WHERE pool = $1 AND day < $2",
                claim.pool,
                until // DAY_MS - DAYS_KEPT,
            )

        await run(self._database, write)


class MemoryUsage:
    """The same contract in memory."""

    def __init__(self) -> None:
        self._meters: dict[str, tuple[int, UsageMeter]] = {}

    async def load(self, pool: str, now: Millis) -> UsageMeter:
        """Return what is stored."""
        _, stored = self._meters.get(pool, (0, UsageMeter(now)))
        return UsageMeter(stored.until, dict(stored.usage))

    async def add(self, claim: Claim, since: Millis, until: Millis, usage: Usage) -> None:
        """Store what was used. Raises Stale USAGE_MOVED_ON."""
        epoch, stored = self._meters.get(claim.pool, (0, UsageMeter(since)))
        if stored.until != since or claim.epoch < epoch:
            raise usage_moved_on(claim)
        merged = dict(stored.usage)
        for account, used in usage.items():
            merged[account] = merged.get(account, 0) + used
        oldest = until // DAY_MS - DAYS_KEPT
        kept = {account: used for account, used in merged.items() if account.day >= oldest}
        self._meters[claim.pool] = (claim.epoch, UsageMeter(until, kept))


def usage_moved_on(claim: Claim) -> Stale:
    """Return the error of a leader that another has followed."""
    text = f"Usage of pool {claim.pool} was stored by another leader meanwhile. Step down."
    return Stale("USAGE_MOVED_ON", text, pool=claim.pool, epoch=claim.epoch)
