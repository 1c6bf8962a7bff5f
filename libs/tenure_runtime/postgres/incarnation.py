"""Which incarnation a change feed is: it begins anew when its database was moved or restored.

Decides by where the transaction ids belong to. What an incarnation is good for is `position`'s.
"""

from __future__ import annotations

from typing import Final

from tenure_runtime.ids import RandomIds
from tenure_runtime.postgres.transaction import Transaction

# Transaction ids mean something on one server, timeline and database only; a restore moves to
# another, and with it the feed gets a new incarnation.
HOME: Final = """
SELECT system_identifier::text || '/' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)
       || '/' || (SELECT oid FROM pg_database WHERE datname = current_database())
FROM pg_control_system()
"""


async def settle_incarnation(tx: Transaction, feed: str) -> str:
    """Make the feed if it is new, begin it anew if it was moved, and return its incarnation."""
    home = await tx.fetchval(HOME)
    fresh = RandomIds().short(12)
    await tx.execute(
        "INSERT INTO feeds (feed, incarnation, home) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
        feed,
        fresh,
        home,
    )
    row = await tx.fetchrow("SELECT incarnation, home FROM feeds WHERE feed = $1 FOR UPDATE", feed)
    assert row is not None
    if row["home"] == home:
        return str(row["incarnation"])
    await tx.execute("DELETE FROM changes WHERE feed = $1", feed)
    await tx.execute(
        "UPDATE feeds SET incarnation = $2, home = $3, pruned_tx = 0, pruned_sequence = 0"
        " WHERE feed = $1",
        feed,
        fresh,
        home,
    )
    return fresh
