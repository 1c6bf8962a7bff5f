"""What the registry does for leaders, operators and readers.

What agents have it do is in `agent_stream` and `sessions`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import replace

from tenure_core.agents.agent import Agent, Load
from tenure_core.agents.states import WITH_SESSION, AgentState
from tenure_core.agents.work import Allocation, Report, Slot
from tenure_core.errors import Unavailable, WrongState
from tenure_core.identity.viewer import Viewer
from tenure_core.timebase import Clock, Millis
from tenure_registry.logs import LogRelay
from tenure_registry.ports import Store
from tenure_registry.refusals import allocation_not_found
from tenure_registry.sessions import LiveAgent, Sessions
from tenure_registry.values import (
    ApplicationOrder,
    Dispatch,
    LogRequest,
    ReportGroup,
    StoredApplication,
)


class RegistryUseCases:
    """One method a call. `clock` counts suspended time, `wall` is for people."""

    def __init__(
        self,
        store: Store,
        sessions: Sessions,
        logs: LogRelay,
        *,
        clock: Clock,
        wall: Clock,
        capacity_limits: Mapping[str, int],
    ) -> None:
        self.store = store
        self.sessions = sessions
        self.logs = logs
        self.capacity_limits = capacity_limits
        self._clock = clock
        self._wall = wall

    async def list_agents(
        self, pool: str, states: Collection[AgentState], after: str, limit: int
    ) -> tuple[list[tuple[Agent, Load | None]], str]:
        """Return a page of agents with what this replica knows of their load, and a token."""
        agents, token = await self.store.list_agents(pool, states, after, limit)
        return [self._with_contact(agent) for agent in agents], token

    async def get_agent(self, agent: str) -> tuple[Agent, Load | None, list[Allocation]]:
        """Return one agent with what it runs. Raises NotFound AGENT_NOT_FOUND."""
        stored, allocations = await self.store.get_agent(agent)
        return *self._with_contact(stored), allocations

    def _with_contact(self, agent: Agent) -> tuple[Agent, Load | None]:
        live = self.sessions.find(agent.agent)
        if live is None or live.session != agent.session:
            return agent, None
        since_ms = self._clock.now_ms() - live.contact_ms
        contact_ms = max(agent.contact_ms, self._wall.now_ms() - since_ms)
        return replace(agent, contact_ms=contact_ms), live.load

    async def set_flags(self, agent: str, *, cordoned: bool, draining: bool) -> Agent:
        """Cordon, drain or uncordon an agent. Raises NotFound AGENT_NOT_FOUND."""
        return await self.store.set_flags(agent, cordoned=cordoned, draining=draining)

    async def dispatch(self, dispatch: Dispatch) -> Sequence[str]:
        """Store a leader's commands and send them; return a reason for each, "" where stored.

        Raises Stale STALE_EPOCH.
        """
        dispatched = await self.store.dispatch(dispatch)
        self.sessions.deliver(dispatched.deliveries)
        self.sessions.pass_on(dict(dispatched.replicas))
        return dispatched.reasons

    async def fence(self, scope: str, epoch: int) -> int:
        """Raise a scope's epoch. Raises Stale STALE_EPOCH."""
        return await self.store.fence(scope, epoch)

    async def applications(self, agents: Collection[str]) -> list[StoredApplication]:
        """Return what is known of the applications on agents."""
        return await self.store.applications(agents)

    async def order_applications(
        self, scope: str, epoch: int, orders: Sequence[ApplicationOrder]
    ) -> None:
        """Store what applications shall be. Raises Stale STALE_EPOCH."""
        await self.store.order_applications(scope, epoch, orders)

    async def last_reports(
        self, pool: str, after: Slot | None, limit: int
    ) -> tuple[list[Report], str]:
        """Return the last report of each allocation of a pool, and a token to watch from."""
        return await self.store.last_reports(pool, after, limit)

    async def stream_logs(
        self, request: LogRequest, viewer: Viewer
    ) -> AsyncGenerator[tuple[int, bytes], None]:
        """Yield (offset, data) of a slot's output, from its agent's stream.

        Whoever may not read it learns nothing of it, nor of its agent.

        Raises NotFound ALLOCATION_NOT_FOUND, WrongState AGENT_LOST, Unavailable
        AGENT_DISCONNECTED, or AGENT_ELSEWHERE when its stream is open at another replica.
        """
        slot = request.slot
        allocation = await self.store.find_allocation(slot.lease, slot.attempt, slot.rank)
        if not viewer.sees(allocation.owner, allocation.project, allocation.pool):
            raise allocation_not_found(slot.lease, slot.attempt, slot.rank)
        agent, _ = await self.store.get_agent(allocation.agent)
        if agent.state not in WITH_SESSION:
            raise WrongState(
                "AGENT_LOST",
                f"Agent {agent.agent} is lost; its logs are on its node.",
                agent=agent.agent,
            )
        if agent.replica != self.sessions.replica:
            raise Unavailable(
                "AGENT_ELSEWHERE",
                f"Agent {agent.agent} is connected to another replica; ask that one.",
                retry_after_ms=100,
                agent=agent.agent,
                replica=agent.replica,
            )

        def ask(wanted: LogRequest) -> None:
            live = self.sessions.find(agent.agent)
            if live is None or live.link is None or live.early is not None:
                raise Unavailable(
                    "AGENT_DISCONNECTED",
                    f"Agent {agent.agent} is not connected right now.",
                    retry_after_ms=1_000,
                    agent=agent.agent,
                )
            live.link.request_log(wanted)

        async for part in self.logs.stream(
            agent.agent, replace(request, slot=allocation.slot), ask
        ):
            yield part

    # What agents' streams have done.

    async def record(self, live: LiveAgent, reports: Sequence[Report]) -> None:
        """Store an agent's reports, each once; returns once they are durable."""
        await self.store.record(ReportGroup(live.agent, tuple(reports)))
        self.sessions.answered(live, reports)

    async def application_reported(self, live: LiveAgent, report: bytes) -> bytes | None:
        """Store what an agent's application says; return its order, if there is one."""
        return await self.store.application_reported(live.agent, live.session, report)

    def closed(self, live: LiveAgent) -> None:
        """Note that an agent's stream ended."""
        self.sessions.closed(live)
        self.logs.agent_gone(live.agent)

    def redirect_all(self, spread_ms: Millis) -> None:
        """Tell all agents to connect anew, each after its own share of a span: no storm."""
        linked = [live for live in self.sessions if live.link is not None]
        for index, live in enumerate(linked):
            assert live.link is not None
            live.link.redirect(index * spread_ms // max(1, len(linked)))
