"""The neighbours: what slottable and the scheduler say of nodes and pools, looked at now and then.

Decides what is known when a neighbour is away: what it last said. Before its first answer nothing
is known, and neither is it while a pool grows (its last look found a new node: a suite that starts
has its agents join one by one); the checks that need it are then left to the leaders.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from tenure.scheduler.v1 import scheduler_pb2 as scheduler
from tenure.scheduler.v1.scheduler_pb2_grpc import SchedulerServiceStub
from tenure.slottable.v1 import reservation_pb2, slottable_pb2
from tenure.slottable.v1.slottable_pb2_grpc import SlotTableServiceStub
from tenure_admission.pool_view import NodeView, PoolView, merged
from tenure_core.errors import DomainError
from tenure_core.resources import ResourceVector
from tenure_runtime.rpc.client import Client
from tenure_runtime.rpc.wire import bare
from tenure_runtime.telemetry.logging import get_logger

PAGE_SIZE = 1_000
LOOK_TIMEOUT_S = 5.0


class PolledPools:
    """A `PoolDirectory` and `PoolGates`, kept up to date by `run_once`, a loop's body.

    Either client may be None.
    """

    def __init__(self, slottable: Client | None, scheduler_: Client | None) -> None:
        self._slottable = slottable
        self._scheduler = scheduler_
        self._views: dict[str, PoolView] = {}
        self._names: frozenset[str] | None = None
        self._cordoned: frozenset[str] = frozenset()
        self._growing: frozenset[str] = frozenset()

    def exists(self, pool: str) -> bool | None:
        """Say whether the pool exists: it is listed by the scheduler, or has nodes."""
        if pool in self._views:
            return True
        return None if self._names is None else pool in self._names

    def view(self, pool: str) -> PoolView | None:
        """Return what is known of the pool's nodes, None for nothing or while the pool grows."""
        return None if pool in self._growing else self._views.get(pool)

    def views(self) -> Mapping[str, PoolView]:
        """Return what is known of the nodes of pools that do not grow."""
        return {pool: view for pool, view in self._views.items() if pool not in self._growing}

    def cordoned(self, pool: str) -> bool:
        """Say whether the scheduler last said that the pool takes nothing new."""
        return pool in self._cordoned

    async def run_once(self) -> None:
        """Look once; a neighbour that is away is logged and what it last said is kept."""
        for look in (self._look_at_nodes, self._look_at_pools):
            try:
                await look()
            except DomainError as error:
                get_logger().debug("pools.unseen", reason=error.reason, error=error.message)

    async def _look_at_nodes(self) -> None:
        if self._slottable is None:
            return
        stub = SlotTableServiceStub(self._slottable.channel)
        nodes: dict[str, list[NodeView]] = defaultdict(list)
        request = slottable_pb2.ListNodesRequest(page_size=PAGE_SIZE)
        while True:
            answer = await self._slottable.call(
                stub.ListNodes, request, timeout_s=LOOK_TIMEOUT_S, retry=False
            )
            for node in answer.nodes:
                nodes[bare(node.pool)].append(_node_view(node))
            if not answer.next_page_token:
                break
            request.page_token = answer.next_page_token
        before = self._views
        self._views = {pool: merged(before.get(pool), seen) for pool, seen in nodes.items()}
        self._growing = frozenset(
            pool for pool, view in self._views.items() if not view.ids <= _ids_of(before.get(pool))
        )

    async def _look_at_pools(self) -> None:
        if self._scheduler is None:
            return
        stub = SchedulerServiceStub(self._scheduler.channel)
        names: set[str] = set()
        cordoned: set[str] = set()
        request = scheduler.ListPoolsRequest(page_size=PAGE_SIZE)
        while True:
            answer = await self._scheduler.call(
                stub.ListPools, request, timeout_s=LOOK_TIMEOUT_S, retry=False
            )
            names |= {bare(pool.name) for pool in answer.pools}
            cordoned |= {bare(pool.name) for pool in answer.pools if pool.cordoned}
            if not answer.next_page_token:
                break
            request.page_token = answer.next_page_token
        self._names, self._cordoned = frozenset(names), frozenset(cordoned)


def _ids_of(view: PoolView | None) -> frozenset[str]:
    return view.ids if view else frozenset()


def _node_view(node: reservation_pb2.Node) -> NodeView:
    """Return a node as admission sees it; spells without capacity (agent away) tell nothing."""
    vectors = (ResourceVector(change.amounts) for change in node.capacity)
    return NodeView(
        bare(node.name), dict(node.attributes), tuple(vector for vector in vectors if vector)
    )
