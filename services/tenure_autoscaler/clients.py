"""The neighbours over gRPC: the registry's agents kept current, and the demand of pools.

Decides what a neighbour that is away means: the fleet stays as last seen, demand is unknown, and
nothing that is unknown is ever taken for nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Final

from tenure.registry.v1 import agent_pb2
from tenure.registry.v1 import registry_pb2 as rpb
from tenure.registry.v1.registry_pb2_grpc import RegistryServiceStub
from tenure.scheduler.v1 import scheduler_pb2 as cpb
from tenure.scheduler.v1.scheduler_pb2_grpc import SchedulerServiceStub
from tenure.slottable.v1 import slottable_pb2 as spb
from tenure.slottable.v1.slottable_pb2_grpc import SlotTableServiceStub
from tenure_autoscaler.values import (
    GROUP_ATTRIBUTE,
    Booking,
    MachineState,
    PoolView,
    SeenAgent,
)
from tenure_core.autoscaling.queue_packing import WaitingLease
from tenure_core.errors import DomainError, Stale
from tenure_core.resources import ResourceVector
from tenure_core.timebase import HOUR_MS, Interval, Millis
from tenure_runtime.rpc.client import Client
from tenure_runtime.rpc.wire import (
    bare,
    from_interval,
    span_to_millis,
    to_interval,
    to_millis,
)
from tenure_runtime.telemetry.logging import get_logger

BOOKINGS_AHEAD_MS: Final = 6 * HOUR_MS
"""How far ahead bookings are read: longer than any machine needs to start."""

_RETRY_S: Final = 1.0
_ENDED: Final = frozenset({agent_pb2.Allocation.STATE_ENDED})
_STATES: Final = {
    agent_pb2.Agent.STATE_JOINING: MachineState.BOOTING,
    agent_pb2.Agent.STATE_ALIVE: MachineState.RUNNING,
    agent_pb2.Agent.STATE_SUSPECT: MachineState.RUNNING,
    agent_pb2.Agent.STATE_LOST: MachineState.LOST,
    agent_pb2.Agent.STATE_RETIRED: MachineState.REMOVED,
}


class WatchedFleet:
    """All agents of the registry; `run()` belongs in a TaskGroup. Calls `changed` at changes."""

    def __init__(self, client: Client, changed: Callable[[], None]) -> None:
        self._client = client
        self._stub = RegistryServiceStub(client.channel)
        self._changed = changed
        self._agents: dict[str, SeenAgent] | None = None

    def agents(self) -> Sequence[SeenAgent] | None:
        """Return all agents as last seen; None while none were."""
        return None if self._agents is None else list(self._agents.values())

    async def run(self) -> None:
        """List, then watch, for ever; a registry that is away is waited for."""
        token = ""
        while True:
            try:
                token = token or await self._list()
                async with aclosing(self._watch(token)) as followed:
                    async for after in followed:
                        token = after
            except Stale:
                token = ""
            except DomainError as error:
                get_logger().warning("registry.unheard", reason=error.reason)
                await asyncio.sleep(_RETRY_S)

    async def _list(self) -> str:
        request = rpb.ListAgentsRequest(page_size=1_000)
        agents: dict[str, SeenAgent] = {}
        token = ""
        while True:
            page = await self._client.call(self._stub.ListAgents, request)
            agents |= {(seen := seen_agent(each)).agent: seen for each in page.agents}
            token = token or page.resume_token
            if not page.next_page_token:
                break
            request.page_token = page.next_page_token
        self._agents = agents
        self._changed()
        return token

    async def _watch(self, token: str) -> AsyncGenerator[str, None]:
        """Yield the token of each change once it is taken up."""
        request = rpb.WatchAgentsRequest(resume_token=token)
        async with self._client.stream(self._stub.WatchAgents, request) as changes:
            async for change in changes:
                if change.HasField("agent") and self._agents is not None:
                    seen = seen_agent(change.agent)
                    self._agents[seen.agent] = seen
                    self._changed()
                yield change.resume_token


def seen_agent(agent: agent_pb2.Agent) -> SeenAgent:
    """Return what an agent tells of its machine."""
    state = _STATES.get(agent.state, MachineState.BOOTING)
    if state is MachineState.RUNNING and agent.draining:
        state = MachineState.DRAINING
    return SeenAgent(
        bare(agent.name),
        agent.pool,
        state,
        ResourceVector(agent.capacity),
        agent.attributes.get(GROUP_ATTRIBUTE, ""),
        to_millis(agent.change_time),
        agent.incarnation,
        sum(each.state not in _ENDED for each in agent.allocations),
    )


class NeighbourDemand:
    """Asks the scheduler what waits, and slottable what is booked; either may be absent."""

    def __init__(self, scheduler: Client | None, slottable: Client | None) -> None:
        self._scheduler = scheduler
        self._slottable = slottable

    async def view(self, pool: str, now_ms: Millis) -> PoolView:
        """Return what is known of a pool's demand."""
        return PoolView(await self._waiting(pool), await self.booked(pool, now_ms))

    async def _waiting(self, pool: str) -> tuple[WaitingLease, ...] | None:
        if self._scheduler is None:
            return None
        stub = SchedulerServiceStub(self._scheduler.channel)
        request = cpb.WatchDemandRequest(pool=f"pools/{pool}")
        try:
            # The first message is the demand as it is; the next looks at it anew.
            async with self._scheduler.stream(stub.WatchDemand, request, timeout_s=5) as stream:
                demand = await stream.read()
        except DomainError as error:
            get_logger().info("demand.unknown", pool=pool, reason=error.reason)
            return None
        if demand is None:
            return None
        return tuple(
            WaitingLease(
                bare(entry.lease),
                entry.node_count,
                ResourceVector(entry.amounts),
                distinct=entry.spread,
                duration_ms=span_to_millis(entry.duration),
            )
            for entry in demand.entries
        )

    async def booked(self, pool: str, now_ms: Millis) -> tuple[Booking, ...] | None:
        """Return what is booked in a pool from now on, None when nobody could be asked."""
        if self._slottable is None:
            return None
        stub = SlotTableServiceStub(self._slottable.channel)
        window = from_interval(Interval(now_ms, now_ms + BOOKINGS_AHEAD_MS))
        request = spb.ListReservationsRequest(page_size=5_000, pool=pool, interval=window)
        found: list[Booking] = []
        try:
            while True:
                page = await self._slottable.call(stub.ListReservations, request, retry=False)
                found += [
                    Booking(bare(row.node), to_interval(row.interval), ResourceVector(row.amounts))
                    for row in page.reservations
                    if not row.displaced
                ]
                if not page.next_page_token:
                    return tuple(found)
                request.page_token = page.next_page_token
        except DomainError as error:
            get_logger().info("bookings.unknown", pool=pool, reason=error.reason)
            return None
