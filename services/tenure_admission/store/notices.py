"""Notices in PostgreSQL: written with what they tell of, taken by one sender at a time."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from tenure_admission.notices.facts import Notice
from tenure_admission.notices.values import (
    ATTEMPTS_MAX,
    Delivery,
    KeptNotice,
    NoticeSettings,
    pause_ms,
)
from tenure_core.timebase import Millis
from tenure_runtime.audit import trail
from tenure_runtime.postgres.pool import Pool
from tenure_runtime.postgres.transaction import Record, Transaction, run

TAKEN_MS: Final[Millis] = 60_000
"""How long a sender that took a row has before another may try it: a dead sender's rows go on."""
LISTED_MAX: Final = 100
_ENDING_MAX: Final = 1_000
_NOW: Final = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"

_CHANNELS: Final = """
CROSS JOIN LATERAL (VALUES ('webhook', s.webhook_url), ('email', s.email)) AS c (channel, target)
"""
_WRITE: Final = f"""
INSERT INTO notices (id, channel, owner, kind, facts)
SELECT g.id, c.channel, g.owner, g.kind, g.facts::jsonb
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS g (id, owner, kind, facts)
JOIN notice_settings s ON s.owner = g.owner {_CHANNELS}
WHERE c.target <> '' AND (s.kinds = '{{}}' OR g.kind = ANY (s.kinds) OR g.kind = 'TEST')
ON CONFLICT DO NOTHING
"""  # noqa: S608 - a constant
# The id is made of the lease and its end: another end is another fact, and is told again.
_ENDING: Final = f"""
INSERT INTO notices (id, channel, owner, kind, facts)
SELECT e.id, c.channel, e.owner, 'ENDING', e.facts
FROM (
    SELECT l.id || '.' || l.charge_end_ms || '.ending' AS id, l.owner, jsonb_build_object(
        'lease', 'leases/' || l.id, 'pool', l.pool, 'state', l.state,
        'reason', 'ENDING', 'message', 'Its time is over soon.', 'time_ms', {_NOW},
        'start_ms', l.charge_start_ms, 'end_ms', l.charge_end_ms) AS facts
    FROM leases l JOIN notice_settings s ON s.owner = l.owner
    WHERE l.state = 'ACTIVE' AND l.charge_end_ms > {_NOW} AND l.charge_end_ms <= {_NOW} + $1
      AND l.charge_end_ms - {_NOW}
          <= least(s.ending_lead_ms, (l.charge_end_ms - l.charge_start_ms) / 2)
      AND (s.kinds = '{{}}' OR 'ENDING' = ANY (s.kinds))
      AND NOT EXISTS (SELECT 1 FROM notices n
                      WHERE n.id = l.id || '.' || l.charge_end_ms || '.ending')
    ORDER BY l.charge_end_ms LIMIT $2
) e JOIN notice_settings s ON s.owner = e.owner {_CHANNELS}
WHERE c.target <> ''
ON CONFLICT DO NOTHING
"""  # noqa: S608 - a constant
_OVERTAKEN: Final = """
UPDATE notices n SET state = 'OVERTAKEN' FROM leases l
WHERE n.state = 'PENDING' AND n.kind = 'ENDING' AND l.id = substr(n.facts->>'lease', 8)
  AND (l.state <> 'ACTIVE' OR l.charge_end_ms IS DISTINCT FROM (n.facts->>'end_ms')::bigint)
"""
_TAKE: Final = f"""
WITH due AS (
    SELECT id, channel FROM notices WHERE state = 'PENDING' AND due_ms <= {_NOW}
    ORDER BY due_ms LIMIT $1 FOR UPDATE SKIP LOCKED
)
UPDATE notices n SET due_ms = {_NOW} + $2, attempts = n.attempts + 1
FROM due
WHERE n.id = due.id AND n.channel = due.channel
RETURNING n.id, n.channel, n.kind, n.owner, n.facts, n.created_ms, n.attempts,
    (SELECT CASE n.channel WHEN 'webhook' THEN s.webhook_url ELSE s.email END
     FROM notice_settings s WHERE s.owner = n.owner) AS target,
    (SELECT s.webhook_secret FROM notice_settings s WHERE s.owner = n.owner) AS secret
"""  # noqa: S608 - a constant


async def write(tx: Transaction, notices: Sequence[Notice]) -> None:
    """Write notices in the transaction of what they tell of, for owners who want them."""
    if notices:
        await tx.execute(
            _WRITE,
            [notice.id for notice in notices],
            [notice.owner for notice in notices],
            [notice.kind.value for notice in notices],
            [json.dumps(dict(notice.facts)) for notice in notices],
        )


class PostgresNotices:
    """Settings and notices of one schema."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def settings(self, owner: str) -> NoticeSettings | None:
        """Return how an owner is told, None when never said."""

        async def use_case(tx: Transaction) -> NoticeSettings | None:
            return await _settings(tx, owner)

        return await run(self._pool, use_case, readonly=True)

    async def set(self, owner: str, wanted: NoticeSettings) -> NoticeSettings:
        """Replace an owner's settings; an empty secret keeps the one there is."""

        async def use_case(tx: Transaction) -> NoticeSettings:
            before = await _settings(tx, owner)
            row = await tx.fetchrow(
                "INSERT INTO notice_settings AS s VALUES ($1, $2, $3, $4, $5, $6)"
                " ON CONFLICT (owner) DO UPDATE SET webhook_url = excluded.webhook_url,"
                " webhook_secret = coalesce(nullif(excluded.webhook_secret, ''), s.webhook_secret),"
                " email = excluded.email, kinds = excluded.kinds,"
                " ending_lead_ms = excluded.ending_lead_ms RETURNING *",
                owner,
                wanted.webhook_url,
                wanted.webhook_secret,
                wanted.email,
                list(wanted.kinds),
                wanted.ending_lead_ms,
            )
            assert row is not None
            after = _settings_of(row)
            was = None if before is None else _audited(before)
            await trail.write(tx, [trail.json_change(f"notices/{owner}", was, _audited(after))])
            return after

        return await run(self._pool, use_case)

    async def add(self, notice: Notice) -> None:
        """Write a notice that tells of no change."""

        async def use_case(tx: Transaction) -> None:
            await write(tx, [notice])
            target = trail.json_change(f"notices/{notice.owner}/test", None, b"{}")
            await trail.write(tx, [target])

        await run(self._pool, use_case)

    async def write_ending(self, lead_max_ms: Millis) -> int:
        """Write notices for leases that end soon, at most 1,000; return how many."""

        async def use_case(tx: Transaction) -> int:
            tag = await tx.execute(_ENDING, lead_max_ms, _ENDING_MAX)
            return int(tag.rpartition(" ")[2])

        return await run(self._pool, use_case)

    async def take(self, limit: int) -> list[Delivery]:
        """Return deliveries that are due, so that nobody else tries them for a minute."""

        async def use_case(tx: Transaction) -> list[Delivery]:
            await tx.execute(_OVERTAKEN)
            return [_delivery_of(row) for row in await tx.fetch(_TAKE, limit, TAKEN_MS)]

        return await run(self._pool, use_case)

    async def delivered(self, delivery: Delivery) -> None:
        """Note that the receiver took it."""
        await self._note(delivery, "DELIVERED", 0, "")

    async def failed(self, delivery: Delivery, error: str, *, for_good: bool) -> bool:
        """Note a failed attempt; return whether it is given up."""
        dead = for_good or delivery.attempts >= ATTEMPTS_MAX
        state = "DEAD" if dead else "PENDING"
        await self._note(delivery, state, pause_ms(delivery.attempts), error[:500])
        return dead

    async def _note(self, delivery: Delivery, state: str, pause: Millis, error: str) -> None:
        async def use_case(tx: Transaction) -> None:
            await tx.execute(
                f"UPDATE notices SET state = $3, due_ms = {_NOW} + $4, error = $5"  # noqa: S608
                " WHERE id = $1 AND channel = $2",
                delivery.id,
                delivery.channel,
                state,
                pause,
                error,
            )

        await run(self._pool, use_case)

    async def listed(self, owner: str) -> list[KeptNotice]:
        """Return an owner's newest notices, at most 100."""

        async def use_case(tx: Transaction) -> list[KeptNotice]:
            rows = await tx.fetch(
                "SELECT id, channel, kind, coalesce(facts->>'lease', '') AS lease, state,"
                " created_ms, attempts, error FROM notices WHERE owner = $1"
                " ORDER BY created_ms DESC, id DESC, channel LIMIT $2",
                owner,
                LISTED_MAX,
            )
            return [KeptNotice(*row) for row in rows]

        return await run(self._pool, use_case, readonly=True)

    async def forget(self, retention_ms: Millis) -> int:
        """Forget notices older than the retention that wait no more, at most 10,000."""

        async def use_case(tx: Transaction) -> int:
            tag = await tx.execute(
                "DELETE FROM notices WHERE ctid = ANY (ARRAY(SELECT ctid FROM notices"  # noqa: S608
                f" WHERE state <> 'PENDING' AND created_ms < {_NOW} - $1 LIMIT 10000))",
                retention_ms,
            )
            return int(tag.rpartition(" ")[2])

        return await run(self._pool, use_case)


async def _settings(tx: Transaction, owner: str) -> NoticeSettings | None:
    row = await tx.fetchrow("SELECT * FROM notice_settings WHERE owner = $1", owner)
    return None if row is None else _settings_of(row)


def _settings_of(row: Record) -> NoticeSettings:
    return NoticeSettings(
        row["webhook_url"],
        row["webhook_secret"],
        row["email"],
        tuple(row["kinds"]),
        row["ending_lead_ms"],
    )


def _audited(settings: NoticeSettings) -> bytes:
    shown: Mapping[str, object] = {
        "webhook_url": settings.webhook_url,
        "email": settings.email,
        "kinds": settings.kinds,
        "ending_lead_ms": settings.ending_lead_ms,
    }
    return json.dumps(shown).encode()


def _delivery_of(row: Record) -> Delivery:
    return Delivery(
        row["id"],
        row["channel"],
        row["kind"],
        row["owner"],
        json.loads(row["facts"]),
        row["created_ms"],
        row["attempts"],
        row["target"] or "",
        row["secret"] or "",
    )
