"""Forgets leases that ended long ago, oldest first, in small steps.

Decides that a lease stays for as long as one that waits depends on it. What the audit trail and
the budgets say of it is theirs, and has limits of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tenure.admission.v1 import lease_pb2 as pb
from tenure_core.timebase import Millis
from tenure_runtime.postgres.pool import Pool
from tenure_runtime.postgres.transaction import Transaction, run

STEP_MAX: Final = 1_000
STEPS_MAX: Final = 200
_ENDED: Final = "state IN ('DONE', 'FAILED', 'CANCELLED', 'REJECTED')"
_SINCE: Final = "coalesce(ended_ms, created_ms)"
_NOW: Final = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
# The newest that is one too many; the statistics' number of rows saves the count as a rule.
_NEWEST_BEYOND: Final = f"""
SELECT {_SINCE} FROM leases
WHERE {_ENDED} AND (SELECT reltuples NOT BETWEEN 0 AND $1 FROM pg_class
                    WHERE oid = 'leases'::regclass)
ORDER BY {_SINCE} DESC, id DESC OFFSET $1 LIMIT 1
"""  # noqa: S608 - ours
_FORGET: Final = f"""
DELETE FROM leases WHERE id = ANY (ARRAY(
    SELECT id FROM leases WHERE {_ENDED} AND {_SINCE} <= $1 AND id <> ALL ($2)
    ORDER BY {_SINCE}, id LIMIT $3 FOR UPDATE SKIP LOCKED))
"""  # noqa: S608 - ours
_WAITING: Final = (
    "SELECT id, body FROM leases WHERE state IN ('PENDING', 'QUEUED') AND id > $1"
    " ORDER BY id LIMIT $2"
)


@dataclass(frozen=True, slots=True)
class EndedLeases:
    """The ended leases of a schema: kept for `retention_ms`, and at most `kept_max` of them."""

    pool: Pool
    retention_ms: Millis
    kept_max: int

    async def run_once(self) -> int:
        """Forget what is over a limit, at most 200,000 leases; return how many."""
        upto = await run(self.pool, self._upto, readonly=True)
        total = 0
        if upto is None:
            return total
        needed = await self._needed()

        async def step(tx: Transaction) -> int:
            tag = await tx.execute(_FORGET, upto, needed, STEP_MAX)
            return int(tag.rpartition(" ")[2])

        for _ in range(STEPS_MAX):
            count = await run(self.pool, step)
            total += count
            if count < STEP_MAX:
                break
        return total

    async def _upto(self, tx: Transaction) -> Millis | None:
        """Return the end of the youngest lease that goes; None when none does."""
        old = await tx.fetchval(
            f"SELECT {_NOW} - $1 FROM leases WHERE {_ENDED} AND {_SINCE} < {_NOW} - $1 LIMIT 1",  # noqa: S608
            self.retention_ms,
        )
        many = await tx.fetchval(_NEWEST_BEYOND, self.kept_max)
        return max((each for each in (old, many) if each is not None), default=None)

    async def _needed(self) -> list[str]:
        """Return the leases that waiting ones depend on."""
        needed: set[str] = set()
        after = ""
        while True:

            async def page(tx: Transaction, after: str = after) -> list[tuple[str, bytes]]:
                return [
                    (row["id"], row["body"]) for row in await tx.fetch(_WAITING, after, STEP_MAX)
                ]

            found = await run(self.pool, page, readonly=True)
            for _, body in found:
                dependencies = pb.Lease.FromString(body).dependencies
                needed.update(each.lease.removeprefix("leases/") for each in dependencies)
            if len(found) < STEP_MAX:
                return sorted(needed)
            after = found[-1][0]
