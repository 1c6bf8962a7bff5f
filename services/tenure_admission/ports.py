"""What the use cases need of the outside: stores, the change feed, ids, and the pools known."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tenure_admission.charges import Drift
from tenure_admission.pool_view import PoolView
from tenure_admission.quotas import Holdings, Quota, Subject, WantedQuota
from tenure_admission.records import (
    Checks,
    Creation,
    Draft,
    Forecast,
    LeaseRecord,
    RequestKey,
    StoredLease,
)
from tenure_admission.transitions import Refusal, Transition
from tenure_core.admission.remedies import Suggestion, Terms
from tenure_core.errors import DomainError
from tenure_core.identity.grants import WHOLE, Scope
from tenure_core.identity.viewer import Viewer
from tenure_core.leases.lease import Lease, LeaseSpec
from tenure_core.leases.states import LeaseState
from tenure_core.secrets import Encrypted
from tenure_core.timebase import Interval, Millis


@dataclass(frozen=True, slots=True)
class BatchCreation:
    """Drafts to store in one transaction; a refusal in place of one that is malformed."""

    items: Sequence[Draft | DomainError]
    request: RequestKey | None = None
    all_or_none: bool = False
    dry: Sequence[bool] = ()


@dataclass(frozen=True, slots=True)
class ItemRefusal:
    """Why one item of a batch was not stored."""

    reason: str
    message: str


BatchOutcome = bytes | ItemRefusal
"""The stored lease's bytes, or why there is none."""


class SecretStore(Protocol):
    """Keeps the secrets of leases until they end."""

    async def secrets_of(self, lease_id: str) -> Encrypted | None:
        """Return a lease's secrets, None when none are kept."""
        ...


class SecretSealer(Protocol):
    """Knows the keys under which secrets are kept."""

    def seal(self, kept: Encrypted | None, lease_id: str, sealing_keys: list[bytes]) -> list[bytes]:
        """Return kept secrets, sealed for each key. Raises Invalid, WrongState."""
        ...


class RequestLog(Protocol):
    """Remembers what was answered to requests with an id."""

    async def answered(self, request: RequestKey) -> bytes | None:
        """Return the first answer to a request, None to one that was never answered.

        Raises Invalid REQUEST_ID_REUSED.
        """
        ...


class LeaseCreator(Protocol):
    """Stores new leases: request id, lease and change-feed row in one durable commit."""

    async def create(self, creation: Creation) -> bytes:
        """Return the stored lease (the first answer, for a repeat).

        Raises Invalid REQUEST_ID_REUSED, AlreadyExists LEASE_EXISTS, NotFound
        DEPENDENCY_NOT_FOUND, Exhausted LEASE_LIMIT_REACHED.
        """
        ...

    async def create_batch(self, batch: BatchCreation) -> list[BatchOutcome]:
        """Return an outcome for each item. Raises Invalid REQUEST_ID_REUSED."""
        ...


@dataclass(frozen=True, slots=True)
class Reach:
    """One owner's leases, and those of the projects that it administers."""

    owner: str
    projects: frozenset[str]


@dataclass(frozen=True, slots=True)
class Listing:
    """Which leases to list: those that match everything given, after `cursor` (newest first).

    A cursor is the creation instant and id of the last lease of the page before. `owners` are
    those of all whose leases the caller may see and asked for; None means everybody's. A caller
    that administers projects sees these leases as far as they are in its reach.
    """

    limit: int
    cursor: tuple[Millis, str] | None = None
    owners: frozenset[str] | None = None
    project: str = ""
    pool: str = ""
    states: frozenset[LeaseState] = frozenset()
    created: Interval | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    administers: Reach | None = None
    scope: Scope = WHOLE


@dataclass(frozen=True, slots=True)
class LeasePage:
    """A page of leases, the cursor for the next one, and the feed's position when it was read."""

    leases: tuple[StoredLease, ...]
    next_cursor: tuple[Millis, str] | None
    resume_token: str


class LeaseReader(Protocol):
    """Reads the lease book."""

    async def get(self, lease_ids: Sequence[str]) -> list[StoredLease]:
        """Return those of the leases that exist, in no order."""
        ...

    async def page(self, listing: Listing) -> LeasePage:
        """Return a page and a resume token that are one consistent view."""
        ...

    async def checks(self, lease_id: str) -> Checks:
        """Return what leaders found to stand in a waiting lease's way, and when."""
        ...

    async def projects_of(self, owner: str, limit: int) -> Sequence[str]:
        """Return projects that an owner charged leases to of late, at most `limit`."""
        ...


@dataclass(frozen=True, slots=True)
class ChangeOrder:
    """A change of one lease by its owner. `decide` is pure and may run more than once.

    `viewer` is who asks, None for whatever may change all. A `dry` order changes nothing.
    """

    lease_id: str
    decide: Callable[[LeaseRecord], LeaseRecord]
    viewer: Viewer | None = None
    request: RequestKey | None = None
    dry: bool = False


@dataclass(frozen=True, slots=True)
class JointOrder:
    """A change of several leases in one transaction: all of them, or none when `decide` raises."""

    lease_ids: tuple[str, ...]
    decide: Callable[[LeaseRecord], LeaseRecord]
    viewer: Viewer | None = None
    request: RequestKey | None = None


class LeaseChanger(Protocol):
    """Changes leases on their owner's behalf."""

    async def change(self, order: ChangeOrder) -> bytes:
        """Return the lease after `decide`, stored unless it is the same one.

        Raises NotFound LEASE_NOT_FOUND, Invalid REQUEST_ID_REUSED, and what `decide` raises.
        """
        ...

    async def change_together(self, order: JointOrder) -> list[bytes]:
        """Return the leases after `decide`, in the order asked for. Raises as `change`."""
        ...


@dataclass(frozen=True, slots=True)
class LeaderRecord:
    """What a leader records: transitions, and forecasts by lease id."""

    scope: str
    pool: str
    epoch: int
    now: Millis
    transitions: Sequence[Transition] = ()
    forecasts: Mapping[str, Forecast] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TransitionOutcome:
    """What became of one transition, and the lease as it is now (None when there is none)."""

    refusal: Refusal | None
    lease: bytes | None


class TransitionRecorder(Protocol):
    """Records what leaders decide; the epoch is compared in the transaction that writes."""

    async def record(self, record: LeaderRecord) -> list[TransitionOutcome]:
        """Return an outcome for each transition. Raises Stale STALE_EPOCH."""
        ...

    async def fence(self, scope: str, epoch: int) -> int:
        """Raise the scope's epoch and return it. Raises Stale STALE_EPOCH."""
        ...


class QuotaBook(Protocol):
    """Quotas, and what is used under them. Changes wait for whoever is deciding by quotas."""

    async def put(self, wanted: WantedQuota, now: Millis, request: RequestKey | None) -> Quota:
        """Store a quota, replacing the one of its id; return it (the first answer, for a repeat).

        Raises Conflict ETAG_MISMATCH, Invalid REQUEST_ID_REUSED.
        """
        ...

    async def delete(self, quota_id: str, etag: str, request: RequestKey | None) -> Quota:
        """Forget a quota and return it. Raises NotFound QUOTA_NOT_FOUND, and as `put`."""
        ...

    async def page(self, subject: Subject | None, after: str, limit: int) -> list[Quota]:
        """Return quotas (None: of everybody) by id after one, at most `limit`."""
        ...

    async def holdings(self, subject: Subject, now: Millis) -> Holdings:
        """Return what one moment shows of an owner or project; spent in the periods of `now`."""
        ...

    async def drifts(self) -> Sequence[Drift]:
        """Return the accounts that are not the sum over the leases; none is right."""
        ...


class FeedPosition(Protocol):
    """A place in the feed; its token is made only where it is sent."""

    def token(self) -> str:
        """Return the opaque token that resumes here."""
        ...


@dataclass(frozen=True, slots=True)
class LeaseEvent:
    """A lease after a change; a watch resumes right after `position`."""

    lease_id: str
    body: bytes
    position: FeedPosition


@dataclass(frozen=True, slots=True)
class FeedBookmark:
    """Nothing changed for a while; `position` is where the watch is now."""

    position: FeedPosition


class LeaseFeed(Protocol):
    """The changes of all leases, in order."""

    async def now(self) -> FeedPosition:
        """Return the present position."""
        ...

    def watch(
        self, token: str, wants: Callable[[str, bytes], bool]
    ) -> AsyncGenerator[LeaseEvent | FeedBookmark, None]:
        """Yield each change after `token` for which `wants(lease id, body)`, and bookmarks.

        Raises Stale RESUME_TOKEN_EXPIRED, Invalid RESUME_TOKEN_INVALID, Exhausted
        WATCHER_TOO_SLOW, Unavailable SERVER_DRAINING. Close it when done.
        """
        ...


class PoolDirectory(Protocol):
    """What is known of the pools, never waiting."""

    def exists(self, pool: str) -> bool | None:
        """Say whether the pool exists, None when that is not known."""
        ...

    def view(self, pool: str) -> PoolView | None:
        """Return what is known of the pool's nodes, None for nothing."""
        ...

    def views(self) -> Mapping[str, PoolView]:
        """Return what is known of each pool's nodes, without those of which nothing is."""
        ...


class PoolGates(Protocol):
    """Which pools take nothing new, never waiting."""

    def cordoned(self, pool: str) -> bool:
        """Say whether the pool is known to take no new leases at present."""
        ...


@dataclass(frozen=True, slots=True)
class Outlook:
    """Where a waiting lease stands in its pool, by its leader; see the scheduler's contract."""

    position: int
    total: int
    place: str
    start: Millis | None
    suggestions: Sequence[Suggestion]


class LeaderDesk(Protocol):
    """The leaders of the pools, asked; they may be away."""

    async def outlook(self, lease: Lease, most: Terms | None) -> Outlook | None:
        """Return where a lease stands when it may have at most `most`; None when nobody says."""
        ...

    async def starts_elsewhere(self, spec: LeaseSpec) -> Mapping[str, Millis | None]:
        """Return when a lease would start in other pools that take leases, where that is known."""
        ...


class Ids(Protocol):
    """Names that no one else has made."""

    def lease_id(self) -> str:
        """Return the id of a new lease."""
        ...

    def short(self, length: int = 12) -> str:
        """Return a short id."""
        ...
