"""Leaders' records in PostgreSQL: epoch compared, leases charged and moved, in one transaction.

The number of statements does not depend on the number of transitions.
"""

from __future__ import annotations

from collections.abc import Mapping

from tenure_admission.ports import LeaderRecord, TransitionOutcome
from tenure_admission.records import Forecast, LeaseRecord
from tenure_admission.store import ledger, rows, spending
from tenure_admission.transitions import Book, record_all
from tenure_core.errors import Stale
from tenure_core.leases.states import HOLDING
from tenure_core.timebase import Millis
from tenure_runtime.postgres.changefeed import ChangeFeed
from tenure_runtime.postgres.transaction import Transaction

# Records of one scope hold its lock shared until they commit, a fence takes it alone: so a fence is
# answered only when no record with a smaller epoch is under way. The lock manager queues fairly;
# row locks do not, and let a fence starve among busy records. The first number is ours.
_LOCK_SHARED = """
SELECT pg_advisory_xact_lock_shared(709459, hashtext($1)) FROM epochs
WHERE scope = $1 AND epoch = $2
"""
_LOCK_ALONE = "SELECT pg_advisory_xact_lock(709459, hashtext($1))"
_EPOCH = "SELECT epoch FROM epochs WHERE scope = $1"
# The comparison is repeated in the statement that raises, whoever else raises meanwhile.
_RAISE = """
INSERT INTO epochs (scope, epoch) VALUES ($1, $2)
ON CONFLICT (scope) DO UPDATE SET epoch = excluded.epoch WHERE epochs.epoch <= excluded.epoch
RETURNING epoch
"""
# Forecasts that say nothing new are rewritten every five seconds only. `checks` are as in
# `records.with_check`.
_FORECAST = """
INSERT INTO forecasts AS f
       (lease_id, evaluated_ms, predicted_start_ms, queue_position, reason, message, checks)
SELECT g.lease_id, $2, g.predicted_start_ms, g.queue_position, g.reason, g.message,
       jsonb_build_object(g.reason, jsonb_build_array($2::bigint))
FROM unnest($3::text[], $4::bigint[], $5::int[], $6::text[], $7::text[])
     AS g (lease_id, predicted_start_ms, queue_position, reason, message)
JOIN leases l ON l.id = g.lease_id AND l.pool = $1 AND l.state IN ('PENDING', 'QUEUED')
ORDER BY g.lease_id
ON CONFLICT (lease_id) DO UPDATE SET
    evaluated_ms = excluded.evaluated_ms, predicted_start_ms = excluded.predicted_start_ms,
    queue_position = excluded.queue_position, reason = excluded.reason, message = excluded.message,
    checks = CASE WHEN f.reason = excluded.reason THEN f.checks ELSE f.checks
        || jsonb_build_object(
               f.reason, jsonb_build_array(f.checks -> f.reason -> 0, excluded.evaluated_ms))
        || excluded.checks END
WHERE (f.predicted_start_ms, f.queue_position, f.reason, f.message) IS DISTINCT FROM
      (excluded.predicted_start_ms, excluded.queue_position, excluded.reason, excluded.message)
   OR f.evaluated_ms < excluded.evaluated_ms - 5000
"""


async def fence(tx: Transaction, scope: str, epoch: int) -> int:
    """Raise the scope's epoch once no record is under way. Raises Stale STALE_EPOCH."""
    await tx.execute(_LOCK_ALONE, scope)
    return await _raise(tx, scope, epoch)


async def hold_epoch(tx: Transaction, scope: str, epoch: int) -> None:
    """Let the transaction write as this epoch: no greater one is accepted until it ends.

    A greater epoch than the stored one is a fence too. Raises Stale STALE_EPOCH for a smaller one.
    """
    if not await tx.fetch(_LOCK_SHARED, scope, epoch):
        await fence(tx, scope, epoch)
        return
    # A statement of its own: it must see what was committed while the lock was waited for.
    stored = await tx.fetchval(_EPOCH, scope)
    if stored != epoch:
        raise stale_epoch(scope, epoch, stored)


async def _raise(tx: Transaction, scope: str, epoch: int) -> int:
    raised: int | None = await tx.fetchval(_RAISE, scope, epoch)
    if raised is None:
        raise stale_epoch(scope, epoch, await tx.fetchval(_EPOCH, scope))
    return raised


def stale_epoch(scope: str, epoch: int, stored: int) -> Stale:
    """Return the error of a leader that another has followed."""
    return Stale(
        "STALE_EPOCH",
        f"Epoch {epoch} of {scope} is over; its leader now has epoch {stored}. Step down.",
        scope=scope,
        epoch=epoch,
        stored_epoch=stored,
    )


async def record(tx: Transaction, feed: ChangeFeed, asked: LeaderRecord) -> list[TransitionOutcome]:
    """Record transitions and forecasts; an outcome for each transition. Raises STALE_EPOCH."""
    await hold_epoch(tx, asked.scope, asked.epoch)
    outcomes: list[TransitionOutcome] = []
    if asked.transitions:
        outcomes = await _transitions(tx, feed, asked)
    if asked.forecasts:
        await _store_forecasts(tx, asked)
    return outcomes


async def _transitions(
    tx: Transaction, feed: ChangeFeed, asked: LeaderRecord
) -> list[TransitionOutcome]:
    locked = await rows.lock(tx, {transition.lease for transition in asked.transitions})
    locked = {
        lease_id: each
        for lease_id, each in locked.items()
        if each.record.lease.spec.pool == asked.pool
    }
    book = await _book(tx, asked, {lease_id: each.record for lease_id, each in locked.items()})
    recorded = record_all(book, asked.transitions, asked.now)
    bodies = {lease_id: each.body for lease_id, each in locked.items()}
    bodies.update(await rows.update(tx, feed, locked, recorded.changed))
    return [
        TransitionOutcome(refusal, bodies.get(transition.lease))
        for transition, refusal in zip(asked.transitions, recorded.refusals, strict=True)
    ]


async def _book(tx: Transaction, asked: LeaderRecord, records: dict[str, LeaseRecord]) -> Book:
    """Return the locked leases and, where something is charged, the limits, locked."""
    charged = [
        records[transition.lease]
        for transition in asked.transitions
        if transition.lease in records
        and transition.state in HOLDING
        and (transition.charge is not None or transition.verdict is not None)
    ]
    return await _with_limits(tx, Book(records), charged, asked.now)


async def _with_limits(
    tx: Transaction, book: Book, charged: list[LeaseRecord], now: Millis
) -> Book:
    if not charged:
        return book
    book.limits = await ledger.lock_limits(
        tx,
        sorted({record.lease.spec.owner for record in charged}),
        sorted({record.lease.spec.project for record in charged}),
    )
    if book.limits:
        book.charges = await ledger.charges_under(tx, book.limits)
    if any(limit.period for limit in book.limits):
        subjects = {(limit.dimension, limit.name) for limit in book.limits if limit.period}
        book.spent = await spending.spent_by(tx, subjects, now)
    return book


async def _store_forecasts(tx: Transaction, asked: LeaderRecord) -> None:
    forecasts: Mapping[str, Forecast] = asked.forecasts
    await tx.execute(
        _FORECAST,
        asked.pool,
        asked.now,
        list(forecasts),
        [each.predicted_start for each in forecasts.values()],
        [each.queue_position for each in forecasts.values()],
        [each.reason for each in forecasts.values()],
        [each.message for each in forecasts.values()],
    )
