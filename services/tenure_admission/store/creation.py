"""New leases in PostgreSQL: many callers' creations share one durable commit.

Decides the order of statements in such a transaction: claim the request ids, each with the answer
it gets if nothing conflicts; read what the drafts depend on, lock the limits, settle, insert;
forget the requests that were refused. Who is refused `batches` decides.
"""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

from tenure_admission.batches import Known, accounts_of, settle, settle_batch
from tenure_admission.charges import OWNER
from tenure_admission.ports import BatchCreation, BatchOutcome
from tenure_admission.records import Creation, Draft
from tenure_admission.records import RequestKey as OwnKey
from tenure_admission.store import answers, ledger, rows, secret_rows
from tenure_core.audit.entry import Origin
from tenure_core.errors import DomainError
from tenure_runtime.postgres import idempotency
from tenure_runtime.postgres.changefeed import ChangeFeed
from tenure_runtime.postgres.idempotency import RequestKey
from tenure_runtime.postgres.transaction import Transaction
from tenure_runtime.rpc.origin import current_origin

_OWNERS = "SELECT id, owner FROM leases WHERE id = ANY ($1)"


def runtime_key(key: OwnKey) -> RequestKey:
    """Return the key as the library stores it."""
    return RequestKey(key.caller, key.request_id, key.content)


async def create_group(
    tx: Transaction, feed: ChangeFeed, group: Sequence[Creation]
) -> list[bytes | DomainError]:
    """Store a group of single creations; an outcome for each. No two share a request id."""
    outcomes: list[bytes | DomainError | None] = [None] * len(group)
    await _claim(tx, group, outcomes)
    fresh = [index for index, outcome in enumerate(outcomes) if outcome is None]
    known = await _read(tx, [group[index].draft for index in fresh])
    accepted: list[int] = []
    for index in fresh:
        refusal = settle(group[index].draft, known)
        outcomes[index] = refusal or group[index].draft.body
        if refusal is None:
            accepted.append(index)
    stored = [group[index] for index in accepted]
    await _insert(tx, feed, [each.draft for each in stored], [each.origin for each in stored])
    await _forget(tx, [group[index] for index in fresh if not isinstance(outcomes[index], bytes)])
    return [outcome for outcome in outcomes if outcome is not None]


async def _claim(
    tx: Transaction, group: Sequence[Creation], outcomes: list[bytes | DomainError | None]
) -> None:
    """Fill in the outcomes of repeats; the others' answers are stored, their drafts as they are."""
    asked = [index for index, creation in enumerate(group) if creation.request is not None]
    if not asked:
        return
    keys = [runtime_key(key) for index in asked if (key := group[index].request) is not None]
    bodies = [group[index].draft.body for index in asked]
    for index, claim in zip(asked, await idempotency.claim_many(tx, keys, bodies), strict=True):
        outcomes[index] = claim


async def _read(tx: Transaction, drafts: Sequence[Draft]) -> Known:
    """Return what the drafts are settled by; the limits that count open leases are locked."""
    if not drafts:
        return Known({})
    # An id of our own making is free; if it ever is not, the insert shows it.
    asked = {draft.id for draft in drafts if draft.id_chosen} | {
        each for draft in drafts for each in draft.dependencies
    }
    found = await tx.fetch(_OWNERS, sorted(asked)) if asked else []
    owners = {row["id"]: row["owner"] for row in found}
    accounts = sorted({account for draft in drafts for account in accounts_of(draft)})
    limits = await ledger.lock_limits(
        tx,
        [name for dimension, name in accounts if dimension == OWNER],
        [name for dimension, name in accounts if dimension != OWNER],
        counts_only=True,
    )
    subjects = {(limit.dimension, limit.name) for limit in limits}
    return Known(owners, limits, await ledger.lease_counts(tx, subjects))


async def _insert(
    tx: Transaction, feed: ChangeFeed, drafts: Sequence[Draft], origins: Sequence[Origin]
) -> None:
    if await rows.insert(tx, feed, drafts, origins) != len(drafts):
        # Another transaction took one of the ids since they were read: decide again.
        raise asyncpg.SerializationError("a lease id was taken meanwhile")
    await secret_rows.add(tx, drafts)


async def _forget(tx: Transaction, refused: Sequence[Creation]) -> None:
    """Forget requests that were refused, so that a repeat is decided anew."""
    keys = [runtime_key(creation.request) for creation in refused if creation.request is not None]
    if keys:
        await idempotency.forget_many(tx, keys)


async def create_batch(
    tx: Transaction, feed: ChangeFeed, batch: BatchCreation
) -> list[BatchOutcome]:
    """Store one caller's batch; an outcome for each item, also of one that repeats."""
    if batch.request is None:
        return await _batch(tx, feed, batch)
    key = runtime_key(batch.request)
    [claim] = await idempotency.claim_many(tx, [key])
    if isinstance(claim, DomainError):
        raise claim
    if claim is not None:
        return answers.outcomes_of(claim)
    outcomes = await _batch(tx, feed, batch)
    await idempotency.record_many(tx, [(key, answers.bytes_of(outcomes))])
    return outcomes


async def _batch(tx: Transaction, feed: ChangeFeed, batch: BatchCreation) -> list[BatchOutcome]:
    drafts = [item for item in batch.items if isinstance(item, Draft)]
    settled = iter(settle_batch(drafts, await _read(tx, drafts)))
    outcomes, stored = answers.verdicts(batch, settled)
    await _insert(tx, feed, stored, [current_origin()] * len(stored))
    return outcomes
