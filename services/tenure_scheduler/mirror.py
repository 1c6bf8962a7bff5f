"""A pool as its leader knows it: fed by the change feeds and by the answers to its own writes.

Holds facts only. Events may arrive after the leader's own newer knowledge (its answers come first,
the echo in the feed later): leases and nodes go by version, released rows by revision.
"""

from __future__ import annotations

import heapq
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from tenure_core.agents.states import AgentState
from tenure_core.agents.work import ReportKind
from tenure_core.enactment.facts import Facts
from tenure_core.enactment.ranks import Rank, RankState, Report, fold
from tenure_core.leases.lease import OnLoss
from tenure_core.leases.states import ENDED, PLACED, LeaseState
from tenure_core.planning.snapshot import ReservationKind, ReservationView
from tenure_core.resources import ResourceVector
from tenure_core.slots.operations import Node
from tenure_core.timebase import FOREVER, Millis
from tenure_scheduler.entries import (
    AgentEntry,
    LeaseEntry,
    RowChange,
    TableState,
)
from tenure_scheduler.occupancy import Occupancy, Slot
from tenure_scheduler.unplanned import Unplanned

ENDED_KEPT: Final = 50_000
"""How many ended leases are remembered for those that depend on them."""


class PoolMirror:
    """Leases, rows, nodes, agents and slots of one pool."""

    def __init__(self) -> None:
        self.leases: dict[str, LeaseEntry] = {}
        self.rows: dict[str, ReservationView] = {}
        self.nodes: dict[str, Node] = {}
        self.agents: dict[str, AgentEntry] = {}
        self.revision = 0
        self.seen_revision = 0
        """The greatest of any answer or event."""
        self.generation = 0
        """Grows with everything that may change a plan."""
        self._own = 0
        self.ended: OrderedDict[str, LeaseState] = OrderedDict()
        self.arrival: dict[str, int] = {}
        self._in_state: Counter[LeaseState] = Counter()
        self._arrivals = 0
        self._rows_of: dict[str, dict[str, ReservationView]] = {}
        self._ranks: dict[tuple[str, int], dict[int, Rank]] = {}
        self._rows_on: dict[str, dict[str, str]] = {}
        """Which rows, of which lease, are on a node."""
        self._occupancy = Occupancy()
        self._tombstones: dict[str, int] = {}
        self._dirty: set[str] = set()
        self._moved: set[str] = set()
        self._timers: list[tuple[Millis, str]] = []
        self._refused: list[Report] = []
        self.unplanned = Unplanned()
        self._orphans: set[str] = set()

    # Taking in

    @property
    def news(self) -> int:
        """Return a number that grows with what may change a plan and others did."""
        return self.generation - self._own

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Count what is taken in meanwhile, at once, as the leader's own doing."""
        before = self.generation
        yield
        self._own += self.generation - before

    def load(self, table: TableState, leases: Iterable[LeaseEntry]) -> None:
        """Take over everything as listed, forgetting rows, nodes and leases known before."""
        self.rows, self.nodes, self._rows_of, self._tombstones = {}, {}, {}, {}
        self._rows_on, self._orphans = {}, set()
        self.leases, self._timers, self._in_state = {}, [], Counter()
        self.unplanned = Unplanned()
        self.revision = self.seen_revision = table.revision
        for node in table.nodes:
            self.nodes[node.id] = node
        for row in table.rows:
            self.put_row(row)
        for entry in sorted(leases, key=lambda e: (e.lease.created, e.lease.id)):
            self.put_lease(entry)
        self._dirty.update(self.leases, self._rows_of)

    def put_lease(self, entry: LeaseEntry) -> bool:
        """Take over a lease unless a newer version is known; say whether it was taken over."""
        lease = entry.lease
        known = self.leases.get(lease.id)
        if known is not None and known.lease.version >= lease.version:
            return False
        if known is None and lease.id in self.ended:
            return False
        self._dirty.add(lease.id)
        self._moved.add(lease.id)
        self.generation += 1
        if known is not None:
            self._in_state[known.lease.state] -= 1
        if lease.state not in PLACED:
            # Agents that never answered, and are lost, will not say that nothing runs there.
            for node in self._occupancy.leave_all(lease.id):
                self._wake_waiting(node)
        if lease.state in ENDED:
            self._end(lease.id, lease.state, lease.attempt)
            return True
        self.leases[lease.id] = entry
        self.unplanned.note_lease(entry)
        self._orphans.discard(lease.id)
        self._in_state[lease.state] += 1
        if lease.hold_expires is not None:
            self.remind(lease.hold_expires, lease.id)
        if lease.id not in self.arrival:
            self._arrivals += 1
            self.arrival[lease.id] = self._arrivals
        if known is not None and known.lease.attempt != lease.attempt:
            self._ranks.pop((lease.id, known.lease.attempt), None)
        return True

    def _end(self, lease: str, state: LeaseState, attempt: int) -> None:
        self.leases.pop(lease, None)
        self.unplanned.note_end(lease)
        if lease in self._rows_of:
            self._orphans.add(lease)
        self.arrival.pop(lease, None)
        self._ranks.pop((lease, attempt), None)
        self.ended[lease] = state
        while len(self.ended) > ENDED_KEPT:
            self.ended.popitem(last=False)

    def put_row(self, row: ReservationView) -> None:
        """Take over a reservation unless a newer version is known."""
        known = self.rows.get(row.id)
        if known is not None and known.version >= row.version:
            return
        self.rows[row.id] = row
        self.unplanned.note_row(row)
        self.generation += 1
        self._rows_of.setdefault(row.lease, {})[row.id] = row
        if row.lease and row.lease not in self.leases:
            self._orphans.add(row.lease)
        if known is not None:
            self._rows_on[known.node].pop(row.id, None)
        self._rows_on.setdefault(row.node, {})[row.id] = row.lease
        self._dirty.add(row.lease)
        for instant in (row.interval.start, row.interval.end):
            if instant < FOREVER:
                heapq.heappush(self._timers, (instant, row.lease))

    def drop_row(self, reservation: str, revision: int) -> None:
        """Forget a reservation that was released at a revision."""
        self._tombstones[reservation] = revision
        row = self.rows.pop(reservation, None)
        if row is not None:
            self.unplanned.note_drop(row)
            self.generation += 1
            self._dirty.add(row.lease)
            held = self._rows_of[row.lease]
            del held[reservation]
            del self._rows_on[row.node][reservation]
            if not held:
                del self._rows_of[row.lease]
                self._orphans.discard(row.lease)

    def apply(self, change: RowChange) -> None:
        """Take over an event of slottable's feed."""
        self.seen_revision = max(self.seen_revision, change.revision)
        if change.row is not None:
            if self._tombstones.get(change.row.id, -1) < change.revision:
                self.put_row(change.row)
        elif change.released:
            self.drop_row(change.released, change.revision)
        elif change.node is not None:
            self.put_node(change.node)
        for reservation in [r for r, at in self._tombstones.items() if at < change.revision]:
            del self._tombstones[reservation]

    def put_node(self, node: Node) -> None:
        """Take over a node unless a newer version is known."""
        known = self.nodes.get(node.id)
        if known is None or known.version < node.version:
            self.nodes[node.id] = node
            self.generation += 1

    def put_agent(self, agent: AgentEntry) -> None:
        """Take over an agent; the leases on its node are looked at again."""
        known = self.agents.get(agent.id)
        self.agents[agent.id] = agent
        if agent != known:
            self.generation += 1
        if known is None or known.state is not agent.state:
            self._dirty.update(self._occupancy.leases_on(agent.id))

    def put_report(self, report: Report) -> None:
        """Fold a report into what is known of its slot."""
        entry = self.leases.get(report.lease)
        if entry is None or entry.lease.attempt > report.attempt:
            self._leave(report.lease, report.attempt, report.rank)
            return
        ranks = self._ranks.setdefault((report.lease, report.attempt), {})
        before = ranks.get(report.rank)
        after = fold(before, report)
        if report.kind is ReportKind.REFUSED and after is before:
            self._refused.append(report)
        if after is None or after is before:
            return
        ranks[report.rank] = after
        self._dirty.add(report.lease)
        if after.ended:
            self._leave(report.lease, report.attempt, report.rank)
        elif after.state is RankState.SUSPENDED:
            self._keep(entry, report.rank)

    # What is on the nodes

    def enter(self, lease: str, attempt: int, rank: int, node: str) -> None:
        """Note that a slot may run on a node from now on: its START was sent."""
        entry = self.leases.get(lease)
        if entry is not None:
            self._occupancy.enter(Slot(lease, attempt, rank), node, entry.lease.spec.amounts)

    def occupy_nodes(self) -> None:
        """Note what may run on the nodes, from the states of the leases and what was reported."""
        self._occupancy = Occupancy()
        for entry in self.leases.values():
            lease = entry.lease
            if lease.state not in PLACED:
                continue
            ranks = self.ranks_of(lease.id, lease.attempt)
            for placement in lease.placements:
                rank = ranks.get(placement.rank)
                if rank is not None and rank.ended:
                    continue
                self.enter(lease.id, lease.attempt, placement.rank, placement.node)
                if rank is not None and rank.state is RankState.SUSPENDED:
                    self._keep(entry, placement.rank)

    def _leave(self, lease: str, attempt: int, rank: int) -> None:
        node = self._occupancy.leave(Slot(lease, attempt, rank))
        if node is not None:
            self._wake_waiting(node)

    def _keep(self, entry: LeaseEntry, rank: int) -> None:
        """Note that a slot is suspended and occupies only what is kept."""
        slot = Slot(entry.lease.id, entry.lease.attempt, rank)
        node = self._occupancy.node_of(slot)
        if node is not None:
            self._occupancy.enter(slot, node, self.kept(entry, node))
            self._wake_waiting(node)

    def _wake_waiting(self, node: str) -> None:
        """Have the leases that are booked on a node looked at: room may have come."""
        booked = self._rows_on.get(node, {})
        self._dirty.update(lease for lease in booked.values() if lease in self.leases)

    def kept(self, entry: LeaseEntry, node: str) -> ResourceVector:
        """Return what one slot goes on occupying on a node while suspended."""
        amounts = entry.lease.spec.amounts
        keeps = self.nodes[node].suspended_keeps if node in self.nodes else ()
        return ResourceVector({kind: n for kind, n in amounts.items() if kind in keeps})

    def has_room(self, entry: LeaseEntry, rows: Iterable[ReservationView]) -> bool:
        """Say whether the agents of the rows are there and what they still run leaves room."""
        lease = entry.lease
        wanted: dict[str, ResourceVector] = {}
        for row in rows:
            wanted[row.node] = wanted.get(row.node, ResourceVector()) + row.amounts
        for node, amounts in wanted.items():
            agent = self.agents.get(node)
            if agent is None or agent.state not in (AgentState.ALIVE, AgentState.SUSPECT):
                return False
            beside = self._occupancy.beside(node, lease.id, lease.attempt)
            if not (amounts + beside).fits_in(agent.capacity):
                return False
        return True

    # Giving out

    def count_in(self, state: LeaseState) -> int:
        """Return how many leases are in a state that is no end."""
        return self._in_state[state]

    def rows_of(self, lease: str) -> tuple[ReservationView, ...]:
        """Return the reservations of a lease, by id."""
        held = self._rows_of.get(lease, {})
        return tuple(held[row] for row in sorted(held))

    def ranks_of(self, lease: str, attempt: int) -> dict[int, Rank]:
        """Return what is known of the slots of an attempt."""
        return self._ranks.get((lease, attempt), {})

    def facts(self, entry: LeaseEntry, now: Millis) -> Facts:
        """Return everything that decides the next step of a lease."""
        lease = entry.lease
        rows = self.rows_of(lease.id)
        room = True
        if lease.state in (LeaseState.SCHEDULED, LeaseState.SUSPENDED):
            due = [
                row
                for row in rows
                if row.kind is ReservationKind.RUN and row.interval.start <= now < row.interval.end
            ]
            room = self.has_room(entry, due)
        gone: frozenset[str] = frozenset()
        if lease.spec.on_loss is OnLoss.STOP:
            gone = frozenset(p.node for p in lease.placements if self._is_gone(p.node))
        ranks = self.ranks_of(lease.id, lease.attempt)
        asked = entry.change.node_count if entry.change is not None else 0
        return Facts(lease, rows, ranks, gone, room, entry.present_run(), asked)

    def _is_gone(self, node: str) -> bool:
        agent = self.agents.get(node)
        return agent is not None and agent.state in (AgentState.LOST, AgentState.RETIRED)

    def mark(self, lease: str) -> None:
        """Have a lease looked at again."""
        self._dirty.add(lease)

    def remind(self, at: Millis, lease: str) -> None:
        """Have a lease looked at when `at` has come."""
        heapq.heappush(self._timers, (at, lease))

    def take_due(self, now: Millis) -> list[str]:
        """Return the leases that changed or whose time has come since this was last called."""
        while self._timers and self._timers[0][0] <= now:
            self._dirty.add(heapq.heappop(self._timers)[1])
        dirty, self._dirty = self._dirty, set()
        return sorted(dirty)

    def take_moved(self) -> set[str]:
        """Return the leases that changed, or are gone, since this was last called."""
        moved, self._moved = self._moved, set()
        return moved

    def take_refused(self) -> list[Report]:
        """Return the refusals that changed nothing since this was last called."""
        refused, self._refused = self._refused, []
        return refused

    def next_timer(self) -> Millis | None:
        """Return when the next lease is to be looked at, None when no time is known."""
        return self._timers[0][0] if self._timers else None

    def orphans(self) -> Iterator[str]:
        """Return the leases that have rows although they ended or are unknown."""
        return iter(sorted(self._orphans))
