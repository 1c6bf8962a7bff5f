"""What the lease book holds of a lease beyond the core's `Lease`: charge, pending change, trace.

Decides nothing; `transitions`, `changes` and `charges` decide what becomes of a record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from tenure_core.audit.entry import ITSELF, Origin
from tenure_core.leases.lease import Lease
from tenure_core.leases.states import LeaseState
from tenure_core.recurrence.weekly import WeeklySpan
from tenure_core.secrets import Encrypted
from tenure_core.timebase import Interval, Millis


class ChangeVerdict(Enum):
    """What the leader said of a pending change."""

    UNDECIDED = "UNDECIDED"
    GRANTED = "GRANTED"
    REFUSED = "REFUSED"


@dataclass(frozen=True, slots=True)
class CounterOffer:
    """A change near to the one that was refused."""

    start: Millis | None = None
    duration_ms: Millis | None = None
    node_count: int = 0
    pool: str = ""


@dataclass(frozen=True, slots=True)
class PendingChange:
    """A change that an owner asked for; what is None (or 0 for `node_count`) is to stay."""

    change_id: str
    requested: Millis = 0
    duration_ms: Millis | None = None
    start: Millis | None = None
    node_count: int = 0
    priority: int | None = None
    verdict: ChangeVerdict = ChangeVerdict.UNDECIDED
    reason: str = ""
    message: str = ""
    counter_offers: tuple[CounterOffer, ...] = ()

    @property
    def undecided(self) -> bool:
        """Say whether the leader has not decided yet."""
        return self.verdict is ChangeVerdict.UNDECIDED


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """A lease with all that the book holds of it. `charge` is None while nothing is charged."""

    lease: Lease
    updated: Millis
    trace_parent: str = ""
    charge: Interval | None = None
    change: PendingChange | None = None

    @property
    def etag(self) -> str:
        """Return the tag that changes with every write."""
        return etag_of(self.lease.version)


def etag_of(version: int) -> str:
    """Return the tag of a lease's version; opaque to callers."""
    return f"v{version:x}"


@dataclass(frozen=True, slots=True)
class Forecast:
    """What the leader last expected of a waiting lease; kept beside it, without a version."""

    evaluated: Millis
    predicted_start: Millis | None = None
    queue_position: int = 0
    reason: str = ""
    message: str = ""


Checks = Mapping[str, tuple[Millis, ...]]
"""By reason, since when it stands in a lease's way; with a second instant, until when it did."""


def with_check(checks: Checks, before: Forecast | None, now: Forecast) -> Checks:
    """Return the checks once a leader found what `now` says; one entry a reason, the last."""
    if before is not None and before.reason == now.reason:
        return checks
    after = dict(checks)
    if before is not None:
        after[before.reason] = (checks[before.reason][0], now.evaluated)
    after[now.reason] = (now.evaluated,)
    return after


@dataclass(frozen=True, slots=True)
class StoredLease:
    """A lease as a store returns it for reading: still encoded, with its forecast while it waits.

    Most reads only pass a lease on, and decoding costs more than the rest of such a call.
    """

    id: str
    owner: str
    project: str
    pool: str
    state: LeaseState
    body: bytes
    forecast: Forecast | None = None


@dataclass(frozen=True, slots=True)
class Draft:
    """A lease about to be created: what the store filters by and checks, and the rest encoded.

    `id_chosen` says that the caller chose the id, so that it may be taken; `sees_all` that the
    caller may depend on everybody's leases. `hidden_body` is what the audit trail is told instead
    of the body where there are secrets in it; `secrets` are those that the lease names, encrypted.
    """

    id: str
    owner: str
    project: str
    pool: str
    node_count: int
    amounts: Mapping[str, int]
    created: Millis
    body: bytes
    dependencies: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    sees_all: bool = False
    id_chosen: bool = False
    hidden_body: bytes | None = None
    secrets: Encrypted | None = None


@dataclass(frozen=True, slots=True)
class RequestKey:
    """A request as its caller names it; `content` is what a repeat must equal."""

    caller: str
    request_id: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Creation:
    """One draft to store; a `dry` one is checked only. `request` is None without a request id."""

    draft: Draft
    request: RequestKey | None = None
    dry: bool = False
    origin: Origin = ITSELF


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `amount` of `resource` at any instant for one owner or project, as a quota says.

    `dimension` is `owner` or `project`. The resource `open_leases` counts leases that have not
    ended, `waiting_leases` those that wait, `held_leases` those that hold capacity; any other is a
    kind of resource. `valid` is None for a limit that counts wherever no other one does. With a
    `period` it is a budget instead: at most `amount` x hours in each day, week or month. With a
    `weekly` it counts in these spans of every week only, by the clocks of `zone`.
    """

    dimension: str
    name: str
    resource: str
    amount: int
    quota: str = ""
    valid: Interval | None = None
    period: str = ""
    weekly: tuple[WeeklySpan, ...] = ()
    zone: str = "UTC"


OPEN_LEASES = "open_leases"
WAITING_LEASES = "waiting_leases"
HELD_LEASES = "held_leases"
