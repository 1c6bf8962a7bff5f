"""What the slot table does: one function a call of the contract.

Decides the order of checks inside a transaction (epoch first, then capacity); the rules themselves
are in `tenure_core.slots`, the rows in the store.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace

from tenure_core.errors import NotFound, WrongState
from tenure_core.planning.snapshot import ReservationKind, ReservationView
from tenure_core.slots.free_slots import AvailabilityStep, free_slots
from tenure_core.slots.operations import GroupVerdict, Node, NodeState, RowGroup
from tenure_core.slots.query import Demand, Window
from tenure_core.timebase import Interval, Millis
from tenure_slottable.ports import (
    Change,
    EpochRow,
    Listing,
    MaintenanceWindow,
    Occupancy,
    PoolTransaction,
    PoolView,
    Repeat,
    RowFilter,
    Store,
)


@dataclass(frozen=True, slots=True)
class LeaderClaim:
    """What a leader shows with each write."""

    scope: str
    epoch: int


@dataclass(frozen=True, slots=True)
class PlanResult:
    """A verdict for each group, and how far the pool is then."""

    verdicts: tuple[GroupVerdict, ...]
    revision: int
    at: Millis


@dataclass(frozen=True, slots=True)
class NodesResult:
    """Nodes as they are now, and what was displaced by that."""

    nodes: tuple[Node, ...]
    displaced: tuple[ReservationView, ...]
    revision: int = 0


@dataclass(frozen=True, slots=True)
class EarliestStart:
    """When a demand fits and where; `start` is None when it never does."""

    start: Millis | None
    nodes: tuple[str, ...]
    at: Millis
    revision: int


@dataclass(frozen=True, slots=True)
class Availability:
    """How many slots are free, over time."""

    steps: tuple[AvailabilityStep, ...]
    at: Millis
    revision: int


@dataclass(frozen=True, slots=True)
class TableStatus:
    """How far a pool's table is."""

    revision: int
    at: Millis
    epoch: EpochRow
    nodes: int
    reservations: int


def pool_of_scope(scope: str) -> str:
    """Return the pool that a scope `pool/X` names, empty for another kind of scope."""
    kind, _, name = scope.partition("/")
    return name if kind == "pool" else ""


class SlotTableUseCases:
    """The use cases over one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def submit_plan(
        self, claim: LeaderClaim, groups: Sequence[RowGroup], repeat: Repeat[PlanResult] | None
    ) -> PlanResult:
        """Commit each group as a whole or not at all. Raises Stale STALE_EPOCH."""

        async def commit(tx: PoolTransaction) -> PlanResult:
            await tx.compare_epoch(claim.scope, claim.epoch)
            verdicts = tx.table.apply(groups)
            changed = any(verdict.error is None for verdict in verdicts)
            return PlanResult(verdicts, tx.revision + changed, tx.now)

        return await self._store.change(pool_of_scope(claim.scope), commit, repeat)

    async def set_capacity(
        self, claim: LeaderClaim, nodes: Sequence[Node], *, cordoned: bool, pool: str = ""
    ) -> NodesResult:
        """Create or replace nodes of the leader's pool, or of `pool` for a group's leader.

        A group's leader sets only nodes that no agent backs, or that are retired (docs/adr/0121).
        Raises Stale STALE_EPOCH, WrongState NODE_OF_OTHER_POOL.
        """
        of_group = not pool_of_scope(claim.scope)
        pool = pool_of_scope(claim.scope) or pool
        state = NodeState.CORDONED if cordoned else NodeState.OPEN

        async def write(tx: PoolTransaction) -> NodesResult:
            await tx.compare_epoch(claim.scope, claim.epoch)
            displaced: list[ReservationView] = []
            for node in nodes:
                known = tx.table.node(node.id)
                retired = known is not None and known.state is NodeState.RETIRED
                if of_group and known is not None and known.agent and not retired:
                    continue
                shown = replace(node, pool=pool, state=NodeState.RETIRED if retired else state)
                displaced += tx.table.set_node(shown)
            stored = tuple(n for node in nodes if (n := tx.table.node(node.id)) is not None)
            return NodesResult(stored, tuple(displaced), tx.revision + 1)

        for node in nodes:
            owner = await self._store.pool_of(node.id)
            if owner not in (None, pool):
                raise WrongState(
                    "NODE_OF_OTHER_POOL", f"node {node.id} belongs to pool {owner}", node=node.id
                )
        return await self._store.change(pool, write)

    async def retire_node(self, claim: LeaderClaim, node: str, *, if_unbooked: bool) -> NodesResult:
        """Close a node for good. Raises NotFound, Stale, WrongState NODE_BOOKED."""

        async def retire(tx: PoolTransaction) -> NodesResult:
            await tx.compare_epoch(claim.scope, claim.epoch)
            known = _existing(tx, node)
            if if_unbooked and tx.table.is_booked(node, tx.now):
                raise WrongState("NODE_BOOKED", f"node {node} is booked from now on", node=node)
            displaced = tx.table.set_node(replace(known, state=NodeState.RETIRED))
            return NodesResult((_existing(tx, node),), displaced)

        return await self._store.change(await self._pool_of(node), retire)

    async def unretire_node(self, claim: LeaderClaim, node: str) -> NodesResult:
        """Open a retired node again with the capacity it had. Raises NotFound, Stale."""

        async def unretire(tx: PoolTransaction) -> NodesResult:
            await tx.compare_epoch(claim.scope, claim.epoch)
            known = _existing(tx, node)
            if known.state is NodeState.RETIRED:
                tx.table.set_node(replace(known, state=NodeState.OPEN))
            return NodesResult((_existing(tx, node),), ())

        return await self._store.change(await self._pool_of(node), unretire)

    async def earliest_start(
        self, pool: str, demand: Demand, duration_ms: Millis, not_before: Millis | None
    ) -> EarliestStart:
        """Return the first instant from which the demand is free for the whole duration."""

        def search(view: PoolView) -> EarliestStart:
            window = Window(duration_ms, max(view.now, not_before or 0))
            fit = view.table.slots.earliest_start(demand, window)
            if fit is None:
                return EarliestStart(None, (), view.now, view.revision)
            return EarliestStart(fit.start, fit.nodes, view.now, view.revision)

        return await self._store.read(pool, search)

    async def availability(
        self, pool: str, demand: Demand, interval: Interval | None, default_ms: Millis
    ) -> Availability:
        """Return how many slots of the demand's shape are free at once, over the interval."""

        def count(view: PoolView) -> Availability:
            span = interval or Interval(view.now, view.now + default_ms)
            return Availability(free_slots(view.table.slots, demand, span), view.now, view.revision)

        return await self._store.read(pool, count)

    async def status(self, pool: str) -> TableStatus:
        """Return how far a pool's table is."""
        epoch = await self._store.epoch(f"pool/{pool}")

        def look(view: PoolView) -> TableStatus:
            nodes = sum(node.state is not NodeState.RETIRED for node in view.table.nodes())
            rows = len(view.table.slots)
            return TableStatus(view.revision, view.now, epoch, nodes, rows)

        return await self._store.read(pool, look)

    async def create_window(
        self,
        window: MaintenanceWindow,
        repeat: Repeat[tuple[ReservationView, ...]] | None,
        *,
        validate_only: bool,
    ) -> tuple[ReservationView, ...]:
        """Take the nodes out of use for the span; return what is, or would be, displaced."""
        overlapping = await self._store.read(window.pool, lambda view: _in_the_way(view, window))
        if validate_only:
            return overlapping

        async def write(tx: PoolTransaction) -> tuple[ReservationView, ...]:
            displaced = tuple(tx.table.displace(row.id) for row in _in_the_way(tx, window))
            for node in window.nodes:
                _existing(tx, node)
                tx.table.close(node, window.interval, f"maintenance-{window.id}")
            await tx.put_window(window)
            return displaced

        return await self._store.change(window.pool, write, repeat)

    async def delete_window(self, name: str) -> None:
        """End or forget a maintenance window. Raises NotFound MAINTENANCE_WINDOW_NOT_FOUND."""
        window = await self._store.window(name)
        if window is None:
            raise NotFound("MAINTENANCE_WINDOW_NOT_FOUND", f"there is no maintenance window {name}")

        async def drop(tx: PoolTransaction) -> None:
            tx.table.release_of(f"maintenance-{name}")
            await tx.drop_window(window)

        await self._store.change(window.pool, drop)

    async def windows(self, pool: str, after: str, limit: int) -> tuple[MaintenanceWindow, ...]:
        """Return maintenance windows by id."""
        return await self._store.windows(pool, after, limit)

    async def rows(self, wanted: RowFilter) -> Listing:
        """Return reservations by id, and the token from which to watch."""
        return await self._store.rows(wanted)

    async def nodes(
        self, pool: str, after: str, limit: int, *, include_retired: bool
    ) -> tuple[Node, ...]:
        """Return nodes by id."""
        return await self._store.nodes(pool, after, limit, retired=include_retired)

    async def occupancy(self, pool: str, limit: int) -> Occupancy:
        """Add up what is held from the stored rows alone; at most `limit` spans are named."""
        return await self._store.occupancy(pool, limit)

    async def acquire_epoch(self, scope: str, holder: str) -> int:
        """Return an epoch larger than any before for the scope."""
        return await self._store.acquire_epoch(scope, holder)

    def watch(self, pool: str, token: str) -> AsyncIterator[Change]:
        """Yield the changes after the token, and bookmarks when idle."""
        return self._store.watch(pool, token)

    async def _pool_of(self, node: str) -> str:
        pool = await self._store.pool_of(node)
        if pool is None:
            raise NotFound("NODE_NOT_FOUND", f"there is no node {node}", node=node)
        return pool


def _existing(tx: PoolTransaction, node: str) -> Node:
    known = tx.table.node(node)
    if known is None:
        raise NotFound("NODE_NOT_FOUND", f"there is no node {node}", node=node)
    return known


def _in_the_way(view: PoolView, window: MaintenanceWindow) -> tuple[ReservationView, ...]:
    return tuple(
        row
        for node in window.nodes
        for row in view.table.slots.reservations(node)
        if row.interval.overlaps(window.interval)
        and not row.displaced
        and row.kind is not ReservationKind.MAINTENANCE
    )
