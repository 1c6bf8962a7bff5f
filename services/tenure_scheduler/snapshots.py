"""A pool as its planner sees it, made from what the leader knows.

Decides what may be planned at all: which nodes take work, and which leases are held back by a
dependency, a refused charge or the pool's cordon.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from tenure_core.agents.states import AgentState
from tenure_core.leases.lease import OnLoss
from tenure_core.leases.states import PLACED, WAITING
from tenure_core.planning.snapshot import Blocked, LeaseView, ReservationView, Snapshot
from tenure_core.slots import operations
from tenure_core.timebase import Millis
from tenure_scheduler.dependencies import Dependencies
from tenure_scheduler.entries import LeaseEntry
from tenure_scheduler.metering import Factors
from tenure_scheduler.mirror import PoolMirror

CORDONED: Final = Blocked("POOL_CORDONED", "The pool takes no new leases at present.")


class Snapshots:
    """Takes snapshots of one pool; views of leases that did not change are made once."""

    def __init__(
        self,
        mirror: PoolMirror,
        dependencies: Dependencies,
        cordoned: Callable[[], bool],
        factors: Callable[[], Factors],
    ) -> None:
        """`cordoned` says whether the pool takes no new leases, `factors` who used how much."""
        self._mirror = mirror
        self._dependencies = dependencies
        self._cordoned = cordoned
        self.factors = factors
        self._held_back: dict[str, tuple[Blocked, Millis]] = {}
        self._views: dict[str, tuple[LeaseEntry, Blocked | None, LeaseView]] = {}

    def hold_back(self, lease: str, why: Blocked, until: Millis) -> None:
        """Leave a lease out of the plan until an instant."""
        self._held_back[lease] = (why, until)

    def take(self, now: Millis) -> Snapshot:
        """Return the pool as the planner sees it."""
        return Snapshot(
            now,
            tuple(
                replace(node.view(), schedulable=self.takes_work(node))
                for node in self._mirror.nodes.values()
            ),
            tuple(self._shown(row) for row in self._mirror.rows.values()),
            tuple(self.view(entry, now) for entry in self._mirror.leases.values()),
            self._mirror.revision,
            self.factors(),
        )

    def takes_work(self, node: operations.Node) -> bool:
        """Say whether new work may be placed on a node."""
        agent = self._mirror.agents.get(node.agent) if node.agent else None
        is_well = not node.agent or (agent is not None and agent.state is AgentState.ALIVE)
        return node.state is operations.NodeState.OPEN and is_well

    def _shown(self, row: ReservationView) -> ReservationView:
        """Return a row as planned with.

        Work that has begun stays where it is, although its node has nothing for it any more, when
        it is to be kept on a lost node, or when its node drains and it may not be preempted.
        """
        entry = self._mirror.leases.get(row.lease)
        if not row.displaced or entry is None or entry.lease.state not in PLACED:
            return row
        spec = entry.lease.spec
        agent = self._mirror.agents.get(row.node)
        waits_for_end = agent is not None and agent.draining and not spec.preemptible
        stays = spec.on_loss is OnLoss.KEEP or waits_for_end
        return replace(row, displaced=False) if stays else row

    def view(self, entry: LeaseEntry, now: Millis) -> LeaseView:
        """Return a lease as the planner sees it."""
        lease = entry.lease
        blocked = CORDONED if self._cordoned() and lease.state in WAITING else None
        if blocked is None and lease.spec.dependencies:
            blocked = self._dependencies.blocked(lease)
        held_back = self._held_back.get(lease.id)
        if held_back is not None:
            if held_back[1] > now:
                blocked = blocked or held_back[0]
            else:
                del self._held_back[lease.id]
        known = self._views.get(lease.id)
        if known is not None and known[0] is entry and known[1] == blocked:
            return known[2]
        view = LeaseView.of(
            lease,
            arrival=self._mirror.arrival[lease.id],
            blocked=blocked,
            run_started=entry.present_run() if lease.state in PLACED else None,
        )
        self._views[lease.id] = (entry, blocked, view)
        if len(self._views) > 2 * len(self._mirror.leases) + 1_000:
            live = self._mirror.leases
            self._views = {name: kept for name, kept in self._views.items() if name in live}
        return view
