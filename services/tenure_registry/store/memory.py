"""The registry's store in memory: the same promises as PostgreSQL's, for tests and simulation.

Nothing here awaits between reading and writing, so each method is one transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import replace

from tenure_core.agents.agent import Agent
from tenure_core.agents.states import AgentState, may_change
from tenure_core.agents.work import Allocation, Slot, Verb
from tenure_core.leases.lease import OnLoss
from tenure_core.timebase import Clock, Millis
from tenure_registry.ports import MakeLost
from tenure_registry.refusals import agent_not_found
from tenure_registry.store.memory_feed import MemoryFeed, follow
from tenure_registry.store.memory_work import MemoryWork
from tenure_registry.values import AgentChange, Opened, Opening, StateChange


class MemoryStore(MemoryWork):
    """Keeps everything in dictionaries, by the clock given."""

    def __init__(self, clock: Clock, make_lost: MakeLost, loss_ms: Millis) -> None:
        super().__init__(clock)
        self._make_lost = make_lost
        self._loss_ms = loss_ms
        self._abandoned_ms: dict[Slot, Millis] = {}
        self._replicas: dict[str, Millis] = {}
        self._agent_feed = MemoryFeed()

    async def run(self) -> None:
        """Do nothing, for ever: there is nothing to follow."""
        await asyncio.Event().wait()

    def _put(self, agent: Agent) -> Agent:
        self._agents[agent.agent] = agent
        self._agent_feed.append(agent.pool, agent, self._clock.now_ms())
        return agent

    async def open_session(self, opening: Opening) -> Opened:
        """See `SessionStore`."""
        claim = opening.claim
        before = self._agents.get(claim.agent)
        agent = self._put(opening.agent_after(before, self._clock.now_ms()))
        for allocation in self._live({claim.agent}):
            if allocation.abandoned and allocation.slot in opening.present:
                self._allocations[allocation.slot] = replace(allocation, abandoned=False)
                del self._abandoned_ms[allocation.slot]
        if before and before.incarnation != claim.incarnation:
            self._abandon(opening)
        self._end_never_started(opening)
        scope = f"pool/{claim.pool}"
        return Opened(
            agent,
            tuple(a for a in self._live({claim.agent}) if a.wanted),
            tuple(await self.pending({claim.agent})),
            {scope: self._epochs[scope]} if scope in self._epochs else {},
            before.replica if before else "",
        )

    def _abandon(self, opening: Opening) -> None:
        for allocation in self._live({opening.claim.agent}):
            if allocation.slot in opening.present:
                continue
            for stored in self._of_slot(allocation.slot):
                if stored.outcome in ("", "VOID") and stored.command.verb is not Verb.STOP:
                    stored.outcome = "FORGOTTEN"
            if allocation.on_loss is OnLoss.STOP and not allocation.abandoned:
                self._allocations[allocation.slot] = replace(allocation, abandoned=True)
                self._abandoned_ms[allocation.slot] = self._clock.now_ms()

    def _end_never_started(self, opening: Opening) -> None:
        for allocation in self._live({opening.claim.agent}):
            never = any(
                stored.outcome == "VOID" and stored.command.verb is Verb.START
                for stored in self._of_slot(allocation.slot)
            )
            kept = allocation.on_loss is OnLoss.KEEP and allocation.last is None
            if kept and never and allocation.slot not in opening.present:
                self._record([self._make_lost(allocation, "")])

    async def superseded(self, given: Mapping[str, str]) -> list[Agent]:
        """See `SessionStore`."""
        return [
            self._agents[name]
            for name, session in given.items()
            if name in self._agents and self._agents[name].session != session
        ]

    async def change_states(self, changes: Sequence[StateChange]) -> None:
        """See `SessionStore`."""
        for change in sorted(changes, key=lambda change: change.agent):
            agent = self._agents.get(change.agent)
            if agent is None or agent.session != change.session:
                continue
            if may_change(agent.state, change.state):
                self._put(
                    replace(
                        agent,
                        state=change.state,
                        contact_ms=max(agent.contact_ms, change.contact_ms),
                        changed_ms=self._clock.now_ms(),
                    )
                )

    async def declare_lost(self, given: Mapping[str, str], replica: str) -> list[str]:
        """See `LossStore`."""
        lost = [
            agent
            for name, session in sorted(given.items())
            if (agent := self._agents.get(name))
            and agent.session == session
            and agent.replica == replica
        ]
        names = {agent.agent for agent in lost}
        for agent in lost:
            self._put(
                replace(agent, state=AgentState.LOST, session="", changed_ms=self._clock.now_ms())
            )
        for stored in self._commands.values():
            # A stop still holds: whatever outlives the loss is to end, whenever it is heard of.
            stops = stored.command.verb is Verb.STOP
            if not stored.outcome and stored.command.agent in names and not stops:
                stored.outcome = "VOID"
        for allocation in self._live(names):
            if allocation.on_loss is OnLoss.STOP:
                self._record([self._make_lost(allocation, given[allocation.agent])])
        return sorted(names)

    async def end_abandoned(self) -> int:
        """See `LossStore`."""
        due = [
            allocation
            for slot, since_ms in self._abandoned_ms.items()
            if (allocation := self._allocations[slot]).live
            and since_ms < self._clock.now_ms() - self._loss_ms
        ]
        for allocation in due:
            self._record([self._make_lost(allocation, "")])
        return len(due)

    async def renew_replica(self, replica: str, alive_ms: Millis) -> list[Agent]:
        """See `LossStore`."""
        now_ms = self._clock.now_ms()
        self._replicas[replica] = now_ms
        for name, renewed_ms in list(self._replicas.items()):
            if renewed_ms < now_ms - alive_ms:
                del self._replicas[name]
        adopted = [
            replace(agent, replica=replica)
            for agent in self._agents.values()
            if agent.session and agent.replica not in self._replicas
        ]
        self._agents.update({agent.agent: agent for agent in adopted})
        return adopted

    async def watched_by(self, replica: str) -> list[Agent]:
        """See `LossStore`."""
        return [a for a in self._agents.values() if a.session and a.replica == replica]

    async def leave_replica(self, replica: str) -> None:
        """See `LossStore`."""
        self._replicas.pop(replica, None)

    async def get_agent(self, agent: str) -> tuple[Agent, list[Allocation]]:
        """See `AgentStore`."""
        if agent not in self._agents:
            raise agent_not_found(agent)
        return self._agents[agent], self._live({agent})

    async def list_agents(
        self, pool: str, states: Collection[AgentState], after: str, limit: int
    ) -> tuple[list[Agent], str]:
        """See `AgentStore`."""
        found = [
            agent
            for name, agent in sorted(self._agents.items())
            if name > after
            and (not pool or agent.pool == pool)
            and (not states or agent.state in states)
        ]
        return found[:limit], self._agent_feed.token()

    async def set_flags(self, agent: str, *, cordoned: bool, draining: bool) -> Agent:
        """See `AgentStore`."""
        if agent not in self._agents:
            raise agent_not_found(agent)
        before = self._agents[agent]
        after = replace(before, cordoned=cordoned, draining=draining)
        return before if after == before else self._put(after)

    async def watch_agents(self, token: str, pool: str) -> AsyncGenerator[AgentChange, None]:
        """See `AgentStore`."""
        async for where, item, _ in follow(self._agent_feed, token, pool):
            assert isinstance(item, Agent)
            yield AgentChange(item, where)
