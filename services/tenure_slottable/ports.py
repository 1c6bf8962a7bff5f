"""What the use cases need from outside: a store that changes one pool at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tenure_core.planning.snapshot import ReservationView
from tenure_core.slots.commit import PoolTable
from tenure_core.slots.operations import Node
from tenure_core.timebase import Interval, Millis

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class MaintenanceWindow:
    """A time in which nodes may not be used."""

    id: str
    pool: str
    nodes: tuple[str, ...]
    interval: Interval
    message: str = ""


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Which reservations to list; empty strings and None match all. `after` is an id."""

    pool: str = ""
    node: str = ""
    lease: str = ""
    interval: Interval | None = None
    after: str = ""
    limit: int = 100


@dataclass(frozen=True, slots=True)
class EpochRow:
    """Who leads a scope, as far as the slot table knows; epoch 0 when nobody ever did."""

    epoch: int
    holder: str


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A reservation with what only the store knows of it."""

    row: ReservationView
    pool: str
    created: Millis


@dataclass(frozen=True, slots=True)
class Change:
    """One change in a pool's feed: exactly one of row, released, node; none is a bookmark."""

    token: str
    pool: str = ""
    revision: int = 0
    at: Millis = 0
    row: StoredRow | None = None
    released: str = ""
    node: Node | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """A page of reservations, and where to watch from."""

    rows: tuple[StoredRow, ...]
    token: str
    revision: int
    at: Millis


@dataclass(frozen=True, slots=True)
class OverCommit:
    """A span in which more of a kind is held on a node than it has."""

    node: str
    resource: str
    interval: Interval
    held: int
    capacity: int


@dataclass(frozen=True, slots=True)
class Occupancy:
    """What adding up all rows gave: where too much is held, and how much was looked at."""

    over_commits: tuple[OverCommit, ...]
    nodes: int
    reservations: int
    at: Millis


class Repeat(Protocol, Generic[Result]):
    """A request that may come again: who asked, under which id, for what, and its answer."""

    @property
    def caller(self) -> str:
        """Who asks."""
        ...

    @property
    def request_id(self) -> str:
        """The id under which a repeat is known; empty for none."""
        ...

    @property
    def request(self) -> bytes:
        """What is asked."""
        ...

    def pack(self, result: Result) -> bytes:
        """Return the answer as bytes."""
        ...

    def unpack(self, stored: bytes) -> Result:
        """Return the answer that `pack` stored."""
        ...


class PoolView(Protocol):
    """One pool at one revision."""

    now: Millis
    revision: int
    table: PoolTable


class PoolTransaction(PoolView, Protocol):
    """One pool, locked; what changes in `table` is written when the transaction commits."""

    async def compare_epoch(self, scope: str, epoch: int) -> None:
        """Raise Stale STALE_EPOCH when `epoch` is older than the scope's, else remember it."""
        ...

    async def put_window(self, window: MaintenanceWindow) -> None:
        """Store a maintenance window."""
        ...

    async def drop_window(self, window: MaintenanceWindow) -> None:
        """Forget a maintenance window."""
        ...


class Store(Protocol):
    """Where pools, nodes, reservations, windows and epochs are kept."""

    async def change(
        self,
        pool: str,
        use: Callable[[PoolTransaction], Awaitable[Result]],
        repeat: Repeat[Result] | None = None,
    ) -> Result:
        """Run `use` with the pool locked and commit what it did, or nothing if it raises.

        With a `repeat` that was answered before, return that answer and do nothing.
        """
        ...

    async def read(self, pool: str, use: Callable[[PoolView], Result]) -> Result:
        """Run `use`, which must not wait, on the newest committed state of the pool."""
        ...

    async def rows(self, wanted: RowFilter) -> Listing:
        """Return reservations by id, and the token from which to watch."""
        ...

    async def nodes(self, pool: str, after: str, limit: int, *, retired: bool) -> tuple[Node, ...]:
        """Return nodes by id."""
        ...

    async def pool_of(self, node: str) -> str | None:
        """Return the pool of a node, None when there is no such node."""
        ...

    async def windows(self, pool: str, after: str, limit: int) -> tuple[MaintenanceWindow, ...]:
        """Return maintenance windows by id."""
        ...

    async def window(self, window: str) -> MaintenanceWindow | None:
        """Return one maintenance window, None when there is none."""
        ...

    async def ended_windows(
        self, retention_ms: Millis, limit: int
    ) -> tuple[MaintenanceWindow, ...]:
        """Return maintenance windows that ended longer ago than the retention, oldest first."""
        ...

    async def acquire_epoch(self, scope: str, holder: str) -> int:
        """Return an epoch larger than any before for the scope."""
        ...

    async def epoch(self, scope: str) -> EpochRow:
        """Return the present epoch of a scope."""
        ...

    async def occupancy(self, pool: str, limit: int) -> Occupancy:
        """Add up what is held, of a pool or of all, from the stored rows alone."""
        ...

    def watch(self, pool: str, token: str) -> AsyncIterator[Change]:
        """Yield the changes after the token (from now on when empty), and bookmarks when idle."""
        ...
