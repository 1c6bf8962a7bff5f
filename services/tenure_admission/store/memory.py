"""The lease book in memory, for simulations and tests: the same promises, kept by one event loop.

Nothing awaits between reading and writing, so each call is a transaction of its own.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass

from tenure_admission import convert
from tenure_admission.batches import Known, accounts_of, settle, settle_batch
from tenure_admission.budgets import SpentCharge, given_back, summed
from tenure_admission.charges import (
    Account,
    Charge,
    Drift,
    charge_of,
    usage_deltas,
)
from tenure_admission.pages import page_of
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
from tenure_admission.quotas import Holdings, Quota, Subject
from tenure_admission.records import (
    OPEN_LEASES,
    WAITING_LEASES,
    Checks,
    Creation,
    Draft,
    Forecast,
    LeaseRecord,
    RequestKey,
    StoredLease,
    with_check,
)
from tenure_admission.store import answers
from tenure_admission.store.memory_feed import MemoryFeed
from tenure_admission.store.memory_keys import MemoryKeys
from tenure_admission.store.memory_quotas import MemoryQuotas, holdings_of
from tenure_admission.store.recording import stale_epoch
from tenure_admission.transitions import Book, record_all
from tenure_admission.usecases.viewer import lease_not_found, may_change
from tenure_core.errors import Invalid, Violation
from tenure_core.leases.states import ENDED, WAITING
from tenure_core.secrets import Encrypted
from tenure_core.timebase import Millis
from tenure_runtime.postgres.position import Position
from tenure_runtime.rpc.draining import Draining


@dataclass(frozen=True, slots=True)
class _Row:
    record: LeaseRecord
    body: bytes


class MemoryStore:
    """The lease book of one process; gone with it."""

    def __init__(self, draining: Draining, *, incarnation: str = "memory") -> None:
        self._feed = MemoryFeed(draining, incarnation)
        self._rows: dict[str, _Row] = {}
        self._forecasts: dict[str, Forecast] = {}
        self._checks: dict[str, Checks] = {}
        self._secrets: dict[str, Encrypted] = {}
        self._requests: dict[tuple[str, str], tuple[bytes, bytes]] = {}
        self._epochs: dict[str, int] = {}
        self._usage: dict[Account, int] = {}
        self._spent: list[SpentCharge] = []
        self.quotas = MemoryQuotas(self._repeated, self._remember, self._holdings, self._drifts)
        self.keys = MemoryKeys(self._repeated, self._remember)

    async def run(self) -> None:
        """Tell watchers when the process stops."""
        await self._feed.run()

    async def create(self, creation: Creation) -> bytes:
        """Store one lease."""
        repeated = self._repeated(creation.request)
        if repeated is not None:
            return repeated
        refusal = settle(creation.draft, self._known([creation.draft]))
        if refusal is not None:
            raise refusal
        if not creation.dry:
            self._insert(creation.draft)
            self._remember(creation.request, creation.draft.body)
        return creation.draft.body

    async def create_batch(self, batch: BatchCreation) -> list[BatchOutcome]:
        """Store one caller's batch."""
        repeated = self._repeated(batch.request)
        if repeated is not None:
            return answers.outcomes_of(repeated)
        drafts = [item for item in batch.items if isinstance(item, Draft)]
        settled = iter(settle_batch(drafts, self._known(drafts)))
        outcomes, stored = answers.verdicts(batch, settled)
        for draft in stored:
            self._insert(draft)
        self._remember(batch.request, answers.bytes_of(outcomes))
        return outcomes

    async def answered(self, request: RequestKey) -> bytes | None:
        """Return the first answer to a request."""
        return self._repeated(request)

    def _repeated(self, key: RequestKey | None) -> bytes | None:
        known = None if key is None else self._requests.get((key.caller, key.request_id))
        if key is None or known is None:
            return None
        content, answer = known
        if content != key.content:
            text = f"{key.request_id} was used for a request with other content"
            raise Invalid([Violation("request_id", "REQUEST_ID_REUSED", text)], "REQUEST_ID_REUSED")
        return answer

    def _remember(self, key: RequestKey | None, answer: bytes) -> None:
        if key is not None:
            self._requests[key.caller, key.request_id] = (key.content, answer)

    def _known(self, drafts: Sequence[Draft]) -> Known:
        subjects = {account for draft in drafts for account in accounts_of(draft)}
        limits = [
            limit for limit in self.quotas.limits() if (limit.dimension, limit.name) in subjects
        ]
        counts: dict[Account, int] = {}
        for subject in {(limit.dimension, limit.name) for limit in limits}:
            mine = self._open(subject)
            counts[*subject, OPEN_LEASES] = len(mine)
            counts[*subject, WAITING_LEASES] = sum(r.lease.state in WAITING for r in mine)
        owners = {each: row.record.lease.spec.owner for each, row in self._rows.items()}
        return Known(owners, limits, counts)

    def _open(self, subject: Subject) -> list[LeaseRecord]:
        """Return the leases of an owner or project that have not ended, the oldest first."""
        dimension, name = subject
        found = (
            row.record
            for row in self._rows.values()
            if row.record.lease.state not in ENDED
            and name == getattr(row.record.lease.spec, dimension)
        )
        return sorted(found, key=lambda record: (record.lease.created, record.lease.id))

    def _holdings(self, subject: Subject, quotas: list[Quota]) -> Holdings:
        spent = summed(self._spent)
        return holdings_of(subject, quotas, self._open(subject), self._usage, spent)

    def _insert(self, draft: Draft) -> None:
        self._rows[draft.id] = _Row(convert.decode(draft.body), draft.body)
        self._feed.append(draft.id, draft.body)
        if draft.secrets is not None:
            self._secrets[draft.id] = draft.secrets

    async def secrets_of(self, lease_id: str) -> Encrypted | None:
        """Return a lease's secrets, None when none are kept."""
        return self._secrets.get(lease_id)

    async def get(self, lease_ids: Sequence[str]) -> list[StoredLease]:
        """Return those of the leases that exist."""
        return [self._stored(each) for each in lease_ids if each in self._rows]

    def _stored(self, lease_id: str) -> StoredLease:
        row = self._rows[lease_id]
        lease = row.record.lease
        forecast = self._forecasts.get(lease_id) if lease.state in WAITING else None
        spec = lease.spec
        return StoredLease(
            lease_id, spec.owner, spec.project, spec.pool, lease.state, row.body, forecast
        )

    async def page(self, listing: Listing) -> LeasePage:
        """Return a page, newest first."""
        found = sorted(
            (
                (row.record.lease.created, lease_id)
                for lease_id, row in self._rows.items()
                if _matches(row.record, listing)
            ),
            reverse=True,
        )
        if listing.cursor is not None:
            found = [key for key in found if key < listing.cursor]
        leases = [(created, self._stored(each)) for created, each in found[: listing.limit + 1]]
        return page_of(leases, listing.limit, self._feed.now().token())

    async def checks(self, lease_id: str) -> Checks:
        """Return what leaders found to stand in a waiting lease's way."""
        return self._checks.get(lease_id, {})

    async def projects_of(self, owner: str, limit: int) -> list[str]:
        """Return projects that an owner charged leases to."""
        specs = (row.record.lease.spec for row in self._rows.values())
        return sorted({spec.project for spec in specs if spec.owner == owner})[:limit]

    async def change(self, order: ChangeOrder) -> bytes:
        """Change one lease."""
        repeated = None if order.dry else self._repeated(order.request)
        if repeated is not None:
            return repeated
        before = self._seen(order.lease_id, order)
        after = order.decide(before)
        if order.dry:
            return convert.encode(after)
        if after is not before:
            self._update({order.lease_id: after})
        body = self._rows[order.lease_id].body
        self._remember(order.request, body)
        return body

    async def change_together(self, order: JointOrder) -> list[bytes]:
        """Change several leases."""
        repeated = self._repeated(order.request)
        if repeated is not None:
            return answers.leases_of(repeated)
        before = {each: self._seen(each, order) for each in order.lease_ids}
        after = {each: order.decide(record) for each, record in before.items()}
        self._update({each: new for each, new in after.items() if new is not before[each]})
        bodies = [self._rows[each].body for each in order.lease_ids]
        self._remember(order.request, answers.bytes_of_leases(bodies))
        return bodies

    def _seen(self, lease_id: str, order: ChangeOrder | JointOrder) -> LeaseRecord:
        row = self._rows.get(lease_id)
        if row is None or not may_change(order.viewer, row.record.lease.spec):
            raise lease_not_found(lease_id)
        return row.record

    def _update(self, changed: Mapping[str, LeaseRecord]) -> None:
        for lease_id, after in sorted(changed.items()):
            before = self._rows[lease_id].record
            body = convert.encode_after(self._rows[lease_id].body, before, after)
            row = self._rows[lease_id] = _Row(after, body)
            if after.lease.state in ENDED:
                self._secrets.pop(lease_id, None)
            self._feed.append(lease_id, row.body)
            self._spent += given_back(before, after)
            for account, delta in usage_deltas([(charge_of(before), charge_of(after))]).items():
                self._usage[account] = self._usage.get(account, 0) + delta
            if after.lease.state not in WAITING:
                self._forecasts.pop(lease_id, None)
                self._checks.pop(lease_id, None)

    async def record(self, asked: LeaderRecord) -> list[TransitionOutcome]:
        """Record what a leader decided."""
        self._raise_epoch(asked.scope, asked.epoch)
        records = {
            transition.lease: self._rows[transition.lease].record
            for transition in asked.transitions
            if transition.lease in self._rows
            and self._rows[transition.lease].record.lease.spec.pool == asked.pool
        }
        book = Book(records, self.quotas.limits(), self._charges(), summed(self._spent))
        recorded = record_all(book, asked.transitions, asked.now)
        self._update(recorded.changed)
        self._foresee(asked)
        return [
            TransitionOutcome(
                refusal, self._rows[each.lease].body if each.lease in records else None
            )
            for each, refusal in zip(asked.transitions, recorded.refusals, strict=True)
        ]

    def _foresee(self, asked: LeaderRecord) -> None:
        for lease_id, forecast in asked.forecasts.items():
            row = self._rows.get(lease_id)
            if row is None or row.record.lease.spec.pool != asked.pool:
                continue
            if row.record.lease.state in WAITING:
                before = self._forecasts.get(lease_id)
                checks = with_check(self._checks.get(lease_id, {}), before, forecast)
                self._checks[lease_id] = checks
                self._forecasts[lease_id] = forecast

    def _charges(self) -> dict[str, Charge]:
        charges = ((each, charge_of(row.record)) for each, row in self._rows.items())
        return {lease_id: charge for lease_id, charge in charges if charge is not None}

    async def fence(self, scope: str, epoch: int) -> int:
        """Raise a scope's epoch."""
        return self._raise_epoch(scope, epoch)

    def _raise_epoch(self, scope: str, epoch: int) -> int:
        stored = self._epochs.get(scope, 0)
        if epoch < stored:
            raise stale_epoch(scope, epoch, stored)
        self._epochs[scope] = epoch
        return epoch

    async def now(self) -> Position:
        """Return the feed's present position."""
        return self._feed.now()

    def watch(
        self, token: str, wants: Callable[[str, bytes], bool]
    ) -> AsyncGenerator[LeaseEvent | FeedBookmark, None]:
        """Yield each wanted change after the token, and bookmarks when idle."""
        return self._feed.watch(token, wants)

    def _drifts(self) -> list[Drift]:
        right = usage_deltas((None, charge) for charge in self._charges().values())
        accounts = sorted(right.keys() | self._usage.keys())
        return [
            Drift(account, right.get(account, 0), self._usage.get(account, 0))
            for account in accounts
            if right.get(account, 0) != self._usage.get(account, 0)
        ]

    async def trim_feed(self, retention_ms: Millis) -> int:
        """Forget all changes so far; time does not matter here."""
        del retention_ms
        return self._feed.trim()

    async def forget_spent(self, before_day: int) -> int:
        """Forget what was spent before a day."""
        count = len(self._spent)
        self._spent = [row for row in self._spent if row.day >= before_day]
        return count - len(self._spent)

    async def forget_requests(self, retention_ms: Millis) -> int:
        """Forget all request ids so far; time does not matter here."""
        del retention_ms
        count = len(self._requests)
        self._requests.clear()
        return count


def _matches(record: LeaseRecord, listing: Listing) -> bool:
    spec, lease = record.lease.spec, record.lease
    return (
        (listing.owners is None or spec.owner in listing.owners)
        and (
            listing.administers is None
            or spec.owner == listing.administers.owner
            or spec.project in listing.administers.projects
        )
        and listing.scope.covers(spec.project, spec.pool)
        and listing.project in ("", spec.project)
        and listing.pool in ("", spec.pool)
        and (not listing.states or lease.state in listing.states)
        and (listing.created is None or listing.created.contains(lease.created))
        and all(spec.labels.get(key) == value for key, value in listing.labels.items())
    )
