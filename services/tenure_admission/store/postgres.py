"""The lease book in PostgreSQL, behind all ports of the use cases.

Decides what is one transaction. The statements are in `creation`, `listing`, `recording`, `rows`
and `ledger` beside this file.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Final

from tenure_admission import auditing, convert
from tenure_admission.ports import (
    BatchCreation,
    BatchOutcome,
    ChangeOrder,
    FeedBookmark,
    JointOrder,
    LeaderRecord,
    LeaseEvent,
    LeasePage,
    Listing,
    TransitionOutcome,
)
from tenure_admission.records import Checks, Creation, LeaseRecord, RequestKey, StoredLease
from tenure_admission.store import (
    answers,
    creation,
    listing,
    recording,
    rows,
    secret_rows,
    spending,
)
from tenure_admission.store.postgres_keys import PostgresKeys
from tenure_admission.store.postgres_quotas import PostgresQuotas
from tenure_admission.usecases.viewer import lease_not_found, may_change
from tenure_core.errors import DomainError
from tenure_core.secrets import Encrypted
from tenure_core.timebase import Millis
from tenure_runtime.audit import trail
from tenure_runtime.postgres import idempotency
from tenure_runtime.postgres.changefeed import Change, ChangeFeed
from tenure_runtime.postgres.feedhub import Bookmark, FeedHub
from tenure_runtime.postgres.group_commit import GroupCommit, GroupLimits
from tenure_runtime.postgres.pool import Pool
from tenure_runtime.postgres.position import Position
from tenure_runtime.postgres.transaction import Transaction, run
from tenure_runtime.rpc.draining import Draining

FEED = "leases"
_GATHER_S: Final = 0.005
"""A group's round trips cost more than a dozen of its creations: under load, groups of three were
most of the work. Of what a call takes then it is little."""


class _DryRun(Exception):
    """Carries the answer out of a transaction that is to leave nothing."""

    def __init__(self, answer: bytes) -> None:
        super().__init__()
        self.answer = answer


class _Unanswered(Exception):
    """Ends a transaction that found no answer, so that it claims nothing."""


class PostgresStore:
    """The lease book in one schema. Get it with `await PostgresStore.open(pool, draining)`.

    `run()` belongs in a TaskGroup: it commits the grouped creations and follows the feed.
    """

    def __init__(self, pool: Pool, feed: ChangeFeed, draining: Draining) -> None:
        self._pool = pool
        self._feed = feed
        self._hub = FeedHub(feed, draining)
        self.quotas = PostgresQuotas(pool)
        self.keys = PostgresKeys(pool)
        self._creations: GroupCommit[Creation, bytes] = GroupCommit(
            pool,
            self._create_group,
            name="admission.create",
            key=_request_name,
            limits=GroupLimits(batch_max=128, gather_s=_GATHER_S),
        )

    @classmethod
    async def open(cls, pool: Pool, draining: Draining) -> PostgresStore:
        """Return the store of a schema that `migrate` has brought up to date."""
        return cls(pool, await ChangeFeed.open(pool, FEED), draining)

    async def run(self) -> None:
        """Commit groups and follow the feed until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._feed.run())
            group.create_task(self._hub.run())
            group.create_task(self._creations.run())

    async def create(self, creation_: Creation) -> bytes:
        """Store one lease, in a commit shared with other callers'."""
        if creation_.dry:
            return await self._dry_create(creation_)
        return await self._creations.submit(creation_)

    async def _create_group(
        self, tx: Transaction, group: Sequence[Creation]
    ) -> Sequence[bytes | DomainError]:
        return await creation.create_group(tx, self._feed, group)

    async def _dry_create(self, creation_: Creation) -> bytes:
        async def use_case(tx: Transaction) -> None:
            [outcome] = await creation.create_group(tx, self._feed, [creation_])
            if isinstance(outcome, DomainError):
                raise outcome
            raise _DryRun(outcome)

        return await self._dry(use_case)

    async def _dry(self, use_case: Callable[[Transaction], Awaitable[None]]) -> bytes:
        try:
            await run(self._pool, use_case)
        except _DryRun as rolled_back:
            return rolled_back.answer
        raise AssertionError("a dry run ends by an exception")

    async def create_batch(self, batch: BatchCreation) -> list[BatchOutcome]:
        """Store one caller's batch in a transaction of its own."""

        async def use_case(tx: Transaction) -> list[BatchOutcome]:
            return await creation.create_batch(tx, self._feed, batch)

        return await run(self._pool, use_case)

    async def answered(self, request: RequestKey) -> bytes | None:
        """Return the first answer to a request, without claiming its id."""

        async def use_case(tx: Transaction) -> None:
            [claim] = await idempotency.claim_many(tx, [creation.runtime_key(request)])
            if isinstance(claim, DomainError):
                raise claim
            if claim is not None:
                raise _DryRun(claim)
            raise _Unanswered

        try:
            return await self._dry(use_case)
        except _Unanswered:
            return None

    async def get(self, lease_ids: Sequence[str]) -> list[StoredLease]:
        """Return those of the leases that exist."""

        async def use_case(tx: Transaction) -> list[StoredLease]:
            return [rows.stored_of(row) for row in await listing.get(tx, list(lease_ids))]

        return await run(self._pool, use_case, readonly=True)

    async def secrets_of(self, lease_id: str) -> Encrypted | None:
        """Return a lease's secrets, None when none are kept."""
        return await run(self._pool, lambda tx: secret_rows.get(tx, lease_id), readonly=True)

    async def page(self, asked: Listing) -> LeasePage:
        """Return a page and a resume token of one snapshot."""

        async def use_case(tx: Transaction) -> LeasePage:
            return await listing.page(tx, self._feed, asked)

        return await run(self._pool, use_case, isolation="repeatable_read", readonly=True)

    async def checks(self, lease_id: str) -> Checks:
        """Return what leaders found to stand in a waiting lease's way."""

        async def use_case(tx: Transaction) -> Checks:
            return await listing.checks(tx, lease_id)

        return await run(self._pool, use_case, readonly=True)

    async def projects_of(self, owner: str, limit: int) -> list[str]:
        """Return projects that an owner charged leases to of late."""

        async def use_case(tx: Transaction) -> list[str]:
            return await listing.projects_of(tx, owner, limit)

        return await run(self._pool, use_case, readonly=True)

    async def change(self, order: ChangeOrder) -> bytes:
        """Change one lease, its row locked while `decide` decides."""

        async def use_case(tx: Transaction) -> bytes:
            async def effect() -> bytes:
                return await self._change(tx, order)

            if order.request is None or order.dry:
                return await effect()
            return await idempotency.once(tx, creation.runtime_key(order.request), effect)

        return await run(self._pool, use_case)

    async def _change(self, tx: Transaction, order: ChangeOrder) -> bytes:
        locked = await rows.lock(tx, [order.lease_id])
        before = _seen(locked, order.lease_id, order)
        after = order.decide(before)
        if after is before:
            return locked[order.lease_id].body
        if order.dry:
            return convert.encode(after)
        bodies = await rows.update(tx, self._feed, locked, {order.lease_id: after})
        before_body, body = locked[order.lease_id].body, bodies[order.lease_id]
        await trail.write(tx, [auditing.lease_change(order.lease_id, before_body, body)])
        return body

    async def change_together(self, order: JointOrder) -> list[bytes]:
        """Change several leases, their rows locked while `decide` decides."""

        async def use_case(tx: Transaction) -> bytes:
            async def effect() -> bytes:
                return answers.bytes_of_leases(await self._change_together(tx, order))

            if order.request is None:
                return await effect()
            return await idempotency.once(tx, creation.runtime_key(order.request), effect)

        return answers.leases_of(await run(self._pool, use_case))

    async def _change_together(self, tx: Transaction, order: JointOrder) -> list[bytes]:
        locked = await rows.lock(tx, order.lease_ids)
        after = {each: order.decide(_seen(locked, each, order)) for each in order.lease_ids}
        changed = {each: new for each, new in after.items() if new is not locked[each].record}
        bodies = await rows.update(tx, self._feed, locked, changed)
        audited = [auditing.lease_change(each, locked[each].body, bodies[each]) for each in bodies]
        await trail.write(tx, audited)
        return [bodies.get(each, locked[each].body) for each in order.lease_ids]

    async def record(self, asked: LeaderRecord) -> list[TransitionOutcome]:
        """Record what a leader decided."""

        async def use_case(tx: Transaction) -> list[TransitionOutcome]:
            return await recording.record(tx, self._feed, asked)

        return await run(self._pool, use_case)

    async def fence(self, scope: str, epoch: int) -> int:
        """Raise a scope's epoch; returns once no record with a smaller one is under way."""

        async def use_case(tx: Transaction) -> int:
            return await recording.fence(tx, scope, epoch)

        return await run(self._pool, use_case)

    async def now(self) -> Position:
        """Return the feed's present position."""
        return await self._feed.now()

    async def watch(
        self, token: str, wants: Callable[[str, bytes], bool]
    ) -> AsyncGenerator[LeaseEvent | FeedBookmark, None]:
        """Yield each change after `token` that is wanted, and bookmarks when idle."""

        def wanted(change: Change) -> bool:
            return wants(change.key, change.payload)

        async with aclosing(self._hub.watch(token, wanted)) as changes:
            async for change in changes:
                if isinstance(change, Bookmark):
                    yield FeedBookmark(change.position)
                else:
                    yield LeaseEvent(change.key, change.payload, change.position)

    async def trim_feed(self, retention_ms: Millis) -> int:
        """Forget changes older than the retention; return how many."""
        return await self._feed.trim(retention_ms)

    async def forget_spent(self, before_day: int) -> int:
        """Forget what was spent on the oldest day before one; return of how many sums."""

        async def use_case(tx: Transaction) -> int:
            return await spending.forget(tx, before_day)

        return await run(self._pool, use_case)

    async def forget_requests(self, retention_ms: Millis) -> int:
        """Forget request ids older than the retention; return how many."""

        async def use_case(tx: Transaction) -> int:
            return await idempotency.forget_old(tx, retention_ms)

        return await run(self._pool, use_case)


def _seen(
    locked: Mapping[str, rows.Locked], lease_id: str, order: ChangeOrder | JointOrder
) -> LeaseRecord:
    """Return a locked lease that the caller may see. Raises NotFound LEASE_NOT_FOUND."""
    found = locked.get(lease_id)
    if found is None or not may_change(order.viewer, found.record.lease.spec):
        raise lease_not_found(lease_id)
    return found.record


def _request_name(creation_: Creation) -> object:
    request = creation_.request
    return object() if request is None else (request.caller, request.request_id)
