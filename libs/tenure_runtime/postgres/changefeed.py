"""Change feeds: what changed, stored in the transaction that changed it, read without a miss.

Sequence numbers become visible out of commit order, so a feed is read in the order (transaction id,
sequence) and only below the oldest transaction still running: no later commit can land in what was
read (`pg_snapshot_xmin`; the rule is spelled out in the architecture, promise 8). The price: any
long *writing* transaction anywhere in the database cluster delays all feeds, so keep them short.

Writers wake readers in their own process directly, those in others by NOTIFY, sent after the commit
and on a connection of its own (NOTIFY inside a transaction serialises all commits of the cluster).
A lost wake-up costs a poll period, never a change. Serving watchers is left to `feedhub`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import asyncpg

from tenure_core.errors import Stale, Unavailable
from tenure_core.timebase import Millis
from tenure_runtime.postgres.incarnation import settle_incarnation
from tenure_runtime.postgres.pool import Pool
from tenure_runtime.postgres.position import SEQUENCE_MAX, Position, parse_token
from tenure_runtime.postgres.transaction import Transaction, is_away, run
from tenure_runtime.telemetry.logging import get_logger

APPENDING: Final = "INSERT INTO changes (feed, key, kind, payload)"
"""What a part of a statement begins with that appends by itself; see `ChangeFeed.appended`."""

KEPT_MAX: Final = 20_000_000
"""How many changes a feed keeps, whatever their age."""

_READ: Final = """
SELECT f.incarnation, f.pruned_tx, f.pruned_sequence,
       c.tx, c.sequence, c.key, c.kind, c.payload, c.tx < s.xmin AS settled
FROM feeds f
CROSS JOIN (SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS xmin) s
LEFT JOIN LATERAL (
    SELECT tx, sequence, key, kind, payload FROM changes
    WHERE feed = f.feed AND (tx, sequence) > ($2, $3)
      AND ($4 = '' OR NOT pg_visible_in_snapshot(tx::text::xid8, nullif($4, '')::pg_snapshot))
    ORDER BY tx, sequence LIMIT $5
) c ON true
WHERE f.feed = $1
ORDER BY c.tx, c.sequence
"""


@dataclass(frozen=True, slots=True)
class NewChange:
    """A change to append: what kind of change to which key, and what it looks like now."""

    key: str
    kind: str
    payload: bytes = b""


@dataclass(frozen=True, slots=True)
class Change:
    """A change as read; `position.token()` resumes after it."""

    key: str
    kind: str
    payload: bytes
    tx: int
    sequence: int
    position: Position


@dataclass(frozen=True, slots=True)
class Page:
    """What one read returned.

    `position` is behind the last change. `more` says that the page was full, `unsettled` that newer
    changes wait for an older transaction to end: read again in some milliseconds.
    """

    changes: tuple[Change, ...]
    position: Position
    more: bool
    unsettled: bool


class ChangeFeed:
    """One named feed in the schema of a pool: `await ChangeFeed.open(pool, "leases")`."""

    def __init__(self, pool: Pool, feed: str, incarnation: str, channel: str) -> None:
        self.feed = feed
        self.incarnation = incarnation
        self._pool = pool
        self._channel = channel
        self._woken = asyncio.Event()
        self._to_notify = asyncio.Event()

    @classmethod
    async def open(cls, pool: Pool, feed: str) -> ChangeFeed:
        """Return the feed, made if it is new; after a restore it gets a new incarnation."""

        async def settle(tx: Transaction) -> tuple[str, str]:
            return await settle_incarnation(tx, feed), await tx.fetchval("SELECT current_schema()")

        incarnation, schema = await run(pool, settle)
        return cls(pool, feed, incarnation, f"tenure_{schema}_{feed}"[:63])

    async def append(self, tx: Transaction, changes: Sequence[NewChange]) -> None:
        """Store changes in the transaction that makes them; readers are woken once it commits."""
        if not changes:
            return
        await tx.execute(
            f"{APPENDING} SELECT $1, * FROM unnest($2::text[], $3::text[], $4::bytea[])",  # noqa: S608
            self.feed,
            [change.key for change in changes],
            [change.kind for change in changes],
            [change.payload for change in changes],
        )
        self.appended(tx)

    def appended(self, tx: Transaction) -> None:
        """Wake readers once `tx` commits: it has appended changes, be it by a statement of its own.

        A statement that writes what changed and the changes in one sends each payload once.
        """
        tx.after_commit(self.wake)

    async def position(self, tx: Transaction) -> Position:
        """Return the position of what `tx` sees: a watch from it repeats nothing the list showed.

        Exact in a `repeatable_read` transaction that also reads the list. Under `read_committed`
        take it before the list; then a change may come twice, but none is missed.
        """
        row = await tx.fetchrow(
            "SELECT incarnation, pg_current_snapshot()::text AS snapshot FROM feeds"
            " WHERE feed = $1",
            self.feed,
        )
        assert row is not None, self.feed
        xmin = int(row["snapshot"].partition(":")[0])
        return Position(row["incarnation"], xmin - 1, SEQUENCE_MAX, row["snapshot"])

    async def now(self) -> Position:
        """Return the present position."""
        return await run(self._pool, self.position, isolation="repeatable_read", readonly=True)

    async def read(self, after: Position | str, limit: int = 500) -> Page:
        """Return up to `limit` changes after a position or token, in order.

        Raises Stale RESUME_TOKEN_EXPIRED when what follows was trimmed, or the feed is another
        incarnation: list again.
        """
        start = parse_token(after) if isinstance(after, str) else after

        async def use_case(tx: Transaction) -> list[asyncpg.Record]:
            return await tx.fetch(
                _READ, self.feed, start.tx, start.sequence, start.snapshot, limit + 1
            )

        rows = await run(self._pool, use_case, one_statement=True)
        assert rows, self.feed
        head = rows[0]
        pruned = (head["pruned_tx"], head["pruned_sequence"])
        if head["incarnation"] != start.incarnation or start.order < pruned:
            raise expired()
        return _page(start, rows, limit)

    async def trim(
        self, retention_ms: Millis, limit: int = 10_000, kept_max: int = KEPT_MAX
    ) -> int:
        """Remove the oldest changes, at most `limit`, older than the retention or too many.

        Too many are those more than `kept_max` numbers below the newest.
        """

        async def use_case(tx: Transaction) -> int:
            row = await tx.fetchrow(
                "SELECT tx, sequence FROM ("
                " SELECT tx, sequence, created_at, (SELECT sequence FROM changes WHERE feed = $1"
                "  ORDER BY tx DESC, sequence DESC LIMIT 1) - $4 AS beyond"
                " FROM changes WHERE feed = $1"
                " AND tx < pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
                " ORDER BY tx, sequence LIMIT $3) oldest"
                " WHERE created_at < clock_timestamp() - $2 * interval '1 millisecond'"
                " OR sequence <= beyond"
                " ORDER BY tx DESC, sequence DESC LIMIT 1",
                self.feed,
                retention_ms,
                limit,
                kept_max,
            )
            if row is None:
                return 0
            place = (self.feed, row["tx"], row["sequence"])
            await tx.execute(
                "UPDATE feeds SET pruned_tx = $2, pruned_sequence = $3 WHERE feed = $1", *place
            )
            tag = await tx.execute(
                "DELETE FROM changes WHERE feed = $1 AND (tx, sequence) <= ($2, $3)", *place
            )
            return int(tag.rpartition(" ")[2])

        return await run(self._pool, use_case)

    def wake(self) -> None:
        """Tell readers, here and in other processes, that something was committed."""
        self._woken.set()
        self._to_notify.set()

    async def wait(self, timeout_s: float) -> None:
        """Return when woken or after `timeout_s`; for one reader (the hub) at a time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._woken.wait()
        except TimeoutError:
            pass
        self._woken.clear()

    async def run(self) -> None:
        """Listen for wake-ups of other processes and send ours; for ever, over reconnections."""
        while True:
            try:
                await self._attend()
            except Exception as error:
                if not (is_away(error) or isinstance(error, Unavailable)):
                    raise
                get_logger().warning("feed.unattended", feed=self.feed, error=str(error))
            # Whatever was missed meanwhile is found by reading once.
            self._woken.set()
            await asyncio.sleep(0.5)

    async def _attend(self) -> None:
        def heard(*_: object) -> None:
            self._woken.set()

        def lost(_: object) -> None:
            gone.set()
            self._to_notify.set()

        # Whoever restored the database has ended our connection, so this is the place to notice.
        self.incarnation = await run(self._pool, lambda tx: settle_incarnation(tx, self.feed))
        gone = asyncio.Event()
        async with self._pool.acquire() as connection:
            connection.add_termination_listener(lost)
            await connection.add_listener(self._channel, heard)
            try:
                while not gone.is_set():
                    await self._to_notify.wait()
                    self._to_notify.clear()
                    if not gone.is_set():
                        await connection.execute("SELECT pg_notify($1, '')", self._channel)
            finally:
                # A lost connection has left the pool, and cannot be asked for anything any more.
                if not gone.is_set():
                    connection.remove_termination_listener(lost)
                    await connection.remove_listener(self._channel, heard)


def expired() -> Stale:
    """Return the error of a resume token that leads nowhere any more."""
    return Stale(
        "RESUME_TOKEN_EXPIRED",
        "The changes after this token are no longer kept; list again and watch from its token.",
    )


def _page(start: Position, rows: list[asyncpg.Record], limit: int) -> Page:
    position = start
    changes: list[Change] = []
    for row in rows:
        if row["tx"] is None:
            break
        if not row["settled"]:
            return Page(tuple(changes), position, more=False, unsettled=True)
        if len(changes) == limit:
            return Page(tuple(changes), position, more=True, unsettled=False)
        position = position.after(row["tx"], row["sequence"])
        changes.append(
            Change(
                row["key"],
                row["kind"],
                bytes(row["payload"]),
                row["tx"],
                row["sequence"],
                position,
            )
        )
    return Page(tuple(changes), position, more=False, unsettled=False)
