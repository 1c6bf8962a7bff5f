"""Drops the oldest batches of the audit trail, in steps, and keeps the head of what was dropped.

Decides that nothing is dropped that does not verify: a breach stays to be found. What is dropped is
computed in the database as sealing is; a step keeps the sealer away for as long as it takes.
"""

from __future__ import annotations

from typing import Final

from tenure_core.audit.retention import Sealed, TrailLimits, to_drop
from tenure_core.timebase import Clock
from tenure_runtime.audit.trail import BATCH_HASH, DIGEST, alone
from tenure_runtime.postgres.pool import Pool
from tenure_runtime.postgres.transaction import Transaction, run
from tenure_runtime.telemetry import metrics
from tenure_runtime.telemetry.logging import get_logger

STEPS_MAX: Final = 100
ENTRIES_MAX: Final = 5_000
BATCHES_MAX: Final = 200

# The first batch, of those up to $1, that is not what its entries and the one before it make it.
_FIRST_BREACH: Final = f"""
SELECT min(number) FROM (
    SELECT number, hash, previous, digests,
           coalesce(lag(hash) OVER (ORDER BY number), (SELECT hash FROM audit_kept)) AS before,
           coalesce(lag(number) OVER (ORDER BY number), (SELECT number FROM audit_kept)) AS follows,
           (SELECT coalesce(string_agg({DIGEST}, '' ORDER BY sequence), '')
            FROM audit_entries WHERE sequence = ANY (sequences)) AS found,
           {BATCH_HASH} AS computed
    FROM (SELECT *, (SELECT coalesce(string_agg(int8send(s), '' ORDER BY s), '')
                     FROM unnest(sequences) s) AS places
          FROM audit_batches WHERE number <= $1) listed
) recomputed
WHERE number <> follows + 1 OR previous <> before OR digests <> found OR hash <> computed
"""  # noqa: S608 - ours
_DROP_ENTRIES: Final = (
    "DELETE FROM audit_entries WHERE sequence IN"
    " (SELECT unnest(sequences) FROM audit_batches WHERE number <= $1)"
)
_KEEP_HEAD: Final = (
    "UPDATE audit_kept SET number = b.number, hash = b.hash, entries = entries + $2,"
    " bytes = greatest(audit_kept.bytes - $3, 0) FROM audit_batches b WHERE b.number = $1"
    " RETURNING encode(audit_kept.hash, 'hex')"
)


class Retention:
    """The body of the loop that drops. Several replicas may run one each."""

    def __init__(self, pool: Pool, limits: TrailLimits, clock: Clock) -> None:
        self._pool = pool
        self._limits = limits
        self._clock = clock

    async def run_once(self) -> int:
        """Drop what is over the limits, in at most 100 steps of 5,000 entries; return how many."""
        total = 0
        for _ in range(STEPS_MAX):
            count = await run(self._pool, self._step)
            total += count
            if count == 0:
                break
        return total

    async def _step(self, tx: Transaction) -> int:
        if not await alone(tx):
            return 0
        rows = await tx.fetch(
            "SELECT number, sealed_ms, cardinality(sequences) AS entries, bytes FROM audit_batches"
            " WHERE number < (SELECT max(number) FROM audit_batches) ORDER BY number LIMIT $1",
            BATCHES_MAX,
        )
        kept_bytes = await tx.fetchval("SELECT bytes FROM audit_kept")
        oldest = [Sealed(*row) for row in rows]
        dropped = to_drop(oldest, kept_bytes, self._limits, self._clock.now_ms(), ENTRIES_MAX)
        if dropped:
            breach = await tx.fetchval(_FIRST_BREACH, dropped[-1].number)
            if breach is not None:
                get_logger().error("audit.unfit", batch=breach)
                dropped = tuple(batch for batch in dropped if batch.number < breach)
        return await _drop(tx, dropped) if dropped else 0


async def _drop(tx: Transaction, dropped: tuple[Sealed, ...]) -> int:
    last, entries = dropped[-1].number, sum(batch.entries for batch in dropped)
    await tx.execute("SELECT set_config('tenure.audit_retention', 'on', true)")
    await tx.execute(_DROP_ENTRIES, last)
    digest = await tx.fetchval(_KEEP_HEAD, last, entries, sum(batch.bytes for batch in dropped))
    await tx.execute("DELETE FROM audit_batches WHERE number <= $1", last)

    def tell() -> None:
        metrics.AUDIT_DROPPED.add(entries)
        get_logger().info("audit.dropped", batch=last, hash=digest, entries=entries)

    tx.after_commit(tell)
    return max(entries, 1)
