"""The slot table in memory: the same contract as PostgreSQL's, for tests and simulation.

Time comes from the clock given; nothing here waits except a watch.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeVar

from tenure_core.errors import Invalid, Stale, Violation
from tenure_core.planning.snapshot import ReservationView
from tenure_core.slots.commit import PoolTable
from tenure_core.slots.operations import Node, NodeState
from tenure_core.timebase import Clock, Interval, Millis
from tenure_slottable.ports import (
    Change,
    EpochRow,
    Listing,
    MaintenanceWindow,
    Occupancy,
    OverCommit,
    PoolTransaction,
    PoolView,
    Repeat,
    RowFilter,
    StoredRow,
)

Result = TypeVar("Result")


@dataclass
class _Pool:
    nodes: dict[str, Node] = field(default_factory=dict)
    rows: dict[str, ReservationView] = field(default_factory=dict)
    created: dict[str, Millis] = field(default_factory=dict)
    revision: int = 0
    last: Millis = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass
class _OpenPool:
    now: Millis
    revision: int
    table: PoolTable
    store: MemoryStore

    async def compare_epoch(self, scope: str, epoch: int) -> None:
        known = self.store.epochs.get(scope, EpochRow(0, ""))
        if epoch < known.epoch:
            raise Stale(
                "STALE_EPOCH",
                f"epoch {epoch} of {scope} has been superseded",
                scope=scope,
                epoch=epoch,
            )
        self.store.epochs[scope] = EpochRow(epoch, known.holder)

    async def put_window(self, window: MaintenanceWindow) -> None:
        self.store.kept_windows[window.id] = window

    async def drop_window(self, window: MaintenanceWindow) -> None:
        self.store.kept_windows.pop(window.id, None)


class MemoryStore:
    """The store of `tenure_slottable.ports` in memory."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pools: dict[str, _Pool] = {}
        self._answers: dict[tuple[str, str], tuple[bytes, bytes]] = {}
        self._feed: list[Change] = []
        self._grown = asyncio.Condition()
        self.epochs: dict[str, EpochRow] = {}
        self.kept_windows: dict[str, MaintenanceWindow] = {}

    async def change(
        self,
        pool: str,
        use: Callable[[PoolTransaction], Awaitable[Result]],
        repeat: Repeat[Result] | None = None,
    ) -> Result:
        """Run `use` with the pool locked and keep what it did, or nothing if it raises."""
        state = self._pools.setdefault(pool, _Pool())
        async with state.lock:
            key = (repeat.caller, repeat.request_id) if repeat and repeat.request_id else None
            if repeat and key in self._answers:
                request, answer = self._answers[key]
                if request != repeat.request:
                    raise _reused()
                return repeat.unpack(answer)
            opened = self._open(state)
            result = await use(opened)
            await self._keep(pool, state, opened)
            if repeat and key:
                self._answers[key] = (repeat.request, repeat.pack(result))
            return result

    def _open(self, state: _Pool) -> _OpenPool:
        now = max(state.last, self._clock.now_ms())
        table = PoolTable(state.nodes.values(), state.rows.values())
        return _OpenPool(now, state.revision, table, self)

    async def _keep(self, pool: str, state: _Pool, opened: _OpenPool) -> None:
        changes = opened.table.take_changes()
        if not changes:
            return
        state.revision += 1
        state.last = opened.now
        facts = (pool, state.revision, opened.now)
        for reservation in sorted(changes.released):
            state.rows.pop(reservation, None)
            state.created.pop(reservation, None)
            self._feed.append(Change(self._next(), *facts, released=reservation))
        for node in sorted(changes.nodes):
            state.nodes[node] = changes.nodes[node]
            self._feed.append(Change(self._next(), *facts, node=changes.nodes[node]))
        for reservation, row in sorted(changes.written.items()):
            state.rows[reservation] = row
            created = state.created.setdefault(reservation, opened.now)
            stored = StoredRow(row, pool, created)
            self._feed.append(Change(self._next(), *facts, row=stored))
        async with self._grown:
            self._grown.notify_all()

    def _next(self) -> str:
        return str(len(self._feed) + 1)

    async def read(self, pool: str, use: Callable[[PoolView], Result]) -> Result:
        """Run `use` on the newest state of the pool."""
        return use(self._open(self._pools.get(pool, _Pool())))

    async def rows(self, wanted: RowFilter) -> Listing:
        """Return reservations by id, and the token from which to watch."""
        found = [
            StoredRow(row, pool, state.created[row.id])
            for pool, state in self._pools.items()
            for row in state.rows.values()
            if wanted.pool in ("", pool)
            and wanted.node in ("", row.node)
            and wanted.lease in ("", row.lease)
            and (wanted.interval is None or wanted.interval.overlaps(row.interval))
            and row.id > wanted.after
        ]
        found.sort(key=lambda stored: stored.row.id)
        token = str(len(self._feed))
        state = self._pools.get(wanted.pool)
        if state is None:
            return Listing(tuple(found[: wanted.limit]), token, 0, 0)
        return Listing(
            tuple(found[: wanted.limit]),
            token,
            state.revision,
            max(state.last, self._clock.now_ms()),
        )

    async def nodes(self, pool: str, after: str, limit: int, *, retired: bool) -> tuple[Node, ...]:
        """Return nodes by id."""
        found = (
            node
            for name, state in self._pools.items()
            for node in state.nodes.values()
            if pool in ("", name)
            and node.id > after
            and (retired or node.state is not NodeState.RETIRED)
        )
        return tuple(sorted(found, key=lambda node: node.id)[:limit])

    async def pool_of(self, node: str) -> str | None:
        """Return the pool of a node, None when there is no such node."""
        return next((name for name, state in self._pools.items() if node in state.nodes), None)

    async def windows(self, pool: str, after: str, limit: int) -> tuple[MaintenanceWindow, ...]:
        """Return maintenance windows by id."""
        found = (w for w in self.kept_windows.values() if pool in ("", w.pool) and w.id > after)
        return tuple(sorted(found, key=lambda window: window.id)[:limit])

    async def window(self, window: str) -> MaintenanceWindow | None:
        """Return one maintenance window."""
        return self.kept_windows.get(window)

    async def ended_windows(
        self, retention_ms: Millis, limit: int
    ) -> tuple[MaintenanceWindow, ...]:
        """Return maintenance windows that ended longer ago, oldest first."""
        before = self._clock.now_ms() - retention_ms
        ended = [w for w in self.kept_windows.values() if w.interval.end <= before]
        return tuple(sorted(ended, key=lambda w: (w.interval.end, w.id))[:limit])

    async def occupancy(self, pool: str, limit: int) -> Occupancy:
        """Add up what is held from the rows."""
        states = [state for name, state in self._pools.items() if pool in ("", name)]
        found = [over for state in states for over in _over_commits(state)]
        return Occupancy(
            tuple(sorted(found, key=lambda o: (o.node, o.resource, o.interval.start))[:limit]),
            sum(len(state.nodes) for state in states),
            sum(len(state.rows) for state in states),
            self._clock.now_ms(),
        )

    async def acquire_epoch(self, scope: str, holder: str) -> int:
        """Return an epoch larger than any before for the scope."""
        epoch = self.epochs.get(scope, EpochRow(0, "")).epoch + 1
        self.epochs[scope] = EpochRow(epoch, holder)
        return epoch

    async def epoch(self, scope: str) -> EpochRow:
        """Return the present epoch of a scope."""
        return self.epochs.get(scope, EpochRow(0, ""))

    async def watch(self, pool: str, token: str) -> AsyncIterator[Change]:
        """Yield the changes after the token."""
        position = int(token) if token else len(self._feed)
        while True:
            while position < len(self._feed):
                change = self._feed[position]
                position += 1
                if pool in ("", change.pool):
                    yield change
            async with self._grown:
                while position >= len(self._feed):
                    await self._grown.wait()


def _over_commits(state: _Pool) -> Iterator[OverCommit]:
    """Yield the spans between edges in which a node holds more of a kind than it has."""
    for node in state.nodes.values():
        rows = [row for row in state.rows.values() if row.node == node.id and not row.displaced]
        for resource in sorted({kind for row in rows for kind in row.amounts}):
            holding = [row for row in rows if resource in row.amounts]
            edges = {at for row in holding for at in (row.interval.start, row.interval.end)}
            for at, until in pairwise(sorted(edges | {since for since, _ in node.capacity})):
                spans = [row for row in holding if row.interval.start <= at < row.interval.end]
                held = sum(row.amounts[resource] for row in spans)
                steps = [
                    amounts.get(resource, 0) for since, amounts in node.capacity if since <= at
                ]
                capacity = steps[-1] if steps else 0
                if held > capacity:
                    yield OverCommit(node.id, resource, Interval(at, until), held, capacity)


def _reused() -> Invalid:
    violation = Violation(
        "request_id", "REQUEST_ID_REUSED", "was used for a request with other content"
    )
    return Invalid([violation], "REQUEST_ID_REUSED")
