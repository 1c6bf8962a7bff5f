"""How full the quotas are: limits counted by the share that is used of them.

By share and not by name: owners and projects are users', and would be labels without an end.
"""

from __future__ import annotations

from typing import Final

from tenure_runtime.postgres.transaction import Transaction

SHARES: Final = (50, 80, 95, 100)
"""In percent; a limit counts for each that it has reached."""

_FULLNESS: Final = """
WITH used AS (
    SELECT q.dimension, CASE
        WHEN l.value::numeric > 0 THEN 100 * coalesce(u.amount, 0) / l.value::numeric
        WHEN coalesce(u.amount, 0) > 0 THEN 100 ELSE 0 END AS percent
    FROM quotas q CROSS JOIN LATERAL jsonb_each_text(q.limits) AS l (key, value)
    LEFT JOIN usage u ON (u.dimension, u.name, u.resource) = (q.dimension, q.name, l.key)
    WHERE q.valid_start_ms IS NULL
       OR extract(epoch FROM now()) * 1000 BETWEEN q.valid_start_ms AND q.valid_end_ms
)
SELECT d.dimension, s.share, count(used.percent) AS limits
FROM unnest(ARRAY['owner', 'project']) AS d (dimension) CROSS JOIN unnest($1::int[]) AS s (share)
LEFT JOIN used ON used.dimension = d.dimension AND used.percent >= s.share
GROUP BY d.dimension, s.share
"""


async def fullness(tx: Transaction) -> dict[tuple[str, ...], float]:
    """Return the number of limits by dimension and share: `("owner", "80%")`."""
    return {
        (row["dimension"], f"{row['share']}%"): row["limits"]
        for row in await tx.fetch(_FULLNESS, list(SHARES))
    }
