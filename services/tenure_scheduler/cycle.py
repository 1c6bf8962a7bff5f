"""One cycle of a pool's leader.

Equivalent to: look at everything, do the next step of each lease, plan all that waits, book it,
start what is due. It differs in that only leases that changed, or whose time has come, are looked
at (`mirror.take_due`), and that planning is left out when nothing changed since the last plan that
took effect as a whole; each second it is done anyway while leases wait, for what time alone brings.

    1. the token: leadership still holds by the local deadline
    2. nodes follow agents
    3. next steps: give back → record (then START) ∥ other commands; usage metered for fair share
    4. snapshot → plan → charge → commit
    5. changes that owners asked for
    6. next steps again: what was just booked may be due now
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from tenure_core.agents.states import AgentState
from tenure_core.leases.states import WAITING, LeaseState
from tenure_core.resources import ResourceVector
from tenure_core.slots.operations import Node, NodeState
from tenure_core.timebase import Millis
from tenure_runtime.telemetry.tracing import span
from tenure_scheduler.changes import ChangeDesk
from tenure_scheduler.enacting import Enactor
from tenure_scheduler.entries import AgentEntry
from tenure_scheduler.metering import Metering
from tenure_scheduler.metrics import step
from tenure_scheduler.mirror import PoolMirror
from tenure_scheduler.outcome import PlanOutcome
from tenure_scheduler.planning import Booker, PoolRules
from tenure_scheduler.poolclock import PoolClock
from tenure_scheduler.ports import Claim, Neighbours

REPLAN_MS: Millis = 1_000


class LeadershipOverError(Exception):
    """The leader's local deadline has passed: it must do nothing more."""


@dataclass(frozen=True, slots=True)
class CycleResult:
    """What a cycle did."""

    number: int
    scheduled: int
    queued: int


class Cycle:
    """The cycle of one leader of one pool."""

    def __init__(
        self,
        claim: Claim,
        mirror: PoolMirror,
        clock: PoolClock,
        neighbours: Neighbours,
        *,
        metering: Metering,
        rules: PoolRules,
        leads: Callable[[], bool],
    ) -> None:
        self._claim = claim
        self._mirror = mirror
        self._clock = clock
        self._neighbours = neighbours
        self._leads = leads
        self._metering = metering
        self._enactor = Enactor(claim, mirror, clock, neighbours)
        factors = metering.factors
        self.booker = Booker(claim, mirror, clock, neighbours, self._enactor, rules, factors)
        self._changes = ChangeDesk(mirror, clock, self._enactor)
        self._one_at_a_time = asyncio.Lock()
        self._number = 0
        self._planned_generation = -1
        self._planned_at: Millis = 0
        self.outcome: PlanOutcome | None = None

    async def run_once(self, *, plan_anyway: bool = False) -> CycleResult:
        """Do everything that is to be done now. Raises LeadershipOverError, Stale, Unavailable."""
        async with self._one_at_a_time:
            self._number += 1
            pool, epoch = self._claim.pool, self._claim.epoch
            with (
                step(pool, "whole"),
                span("scheduler.cycle", pool=pool, number=self._number, epoch=epoch),
            ):
                self._check()
                with step(pool, "follow_agents"):
                    await self._follow_agents()
                with step(pool, "enact"):
                    await self._enactor.run_once()
                await self._metering.run_once(self._clock.now_ms())
                self._check()
                scheduled = 0
                if plan_anyway or self._is_plan_due():
                    scheduled = await self._plan()
                    self._check()
                with step(pool, "change"):
                    await self._changes.run_once()
                with step(pool, "enact_again"):
                    await self._enactor.run_once()
            waiting = sum(self._mirror.count_in(state) for state in WAITING)
            return CycleResult(self._number, scheduled, waiting)

    def _check(self) -> None:
        if not self._leads():
            raise LeadershipOverError

    def _is_plan_due(self) -> bool:
        if self._mirror.generation != self._planned_generation:
            return True
        waits = any(self._mirror.count_in(state) for state in (*WAITING, LeaseState.SUSPENDED))
        return waits and self._clock.now_ms() - self._planned_at >= REPLAN_MS

    async def _plan(self) -> int:
        self._planned_at = self._clock.now_ms()
        news = self._mirror.news
        self.outcome = await self.booker.run_once()
        # What others changed while it was charged and committed is not in it.
        if self.outcome.is_final and self._mirror.news == news:
            self._planned_generation = self._mirror.generation
        return self.outcome.scheduled

    async def _follow_agents(self) -> None:
        """Give each agent's node the capacity that the agent has; none when lost or draining."""
        wanted: dict[bool, list[Node]] = {False: [], True: []}
        for agent in self._mirror.agents.values():
            node = _node_of(agent, self._claim.pool)
            if node is None or self._awaits_machine(agent):
                continue
            cordoned = agent.cordoned or agent.state is AgentState.LOST
            if _differs(node, self._mirror.nodes.get(agent.id), cordoned=cordoned):
                wanted[cordoned].append(node)
        for cordoned, nodes in wanted.items():
            for start in range(0, len(nodes), 1_000):
                result = await self._neighbours.slots.set_capacity(
                    self._claim, nodes[start : start + 1_000], cordoned=cordoned
                )
                for node in result.nodes:
                    self._mirror.put_node(node)
                for row in result.displaced:
                    self._mirror.put_row(row)

    def _awaits_machine(self, agent: AgentEntry) -> bool:
        """Say whether the node of a lost agent is offered anew, for a machine yet to come."""
        known = self._mirror.nodes.get(agent.id)
        return agent.state is AgentState.LOST and known is not None and not known.agent


def _node_of(agent: AgentEntry, pool: str) -> Node | None:
    if agent.state in (AgentState.JOINING, AgentState.RETIRED):
        return None
    # What is booked on a node without capacity is displaced, and so placed elsewhere.
    emptied = agent.draining or agent.state is AgentState.LOST
    capacity = () if emptied else ((0, ResourceVector(agent.capacity)),)
    return Node(
        agent.id,
        pool,
        capacity,
        attributes=agent.attributes,
        agent=agent.id,
        agent_incarnation=agent.incarnation,
        suspended_keeps=agent.suspended_keeps,
    )


def _differs(node: Node, known: Node | None, *, cordoned: bool) -> bool:
    if known is None:
        return True
    if known.state is NodeState.RETIRED:
        return False
    return (
        node.capacity != known.capacity
        or dict(node.attributes) != dict(known.attributes)
        or node.agent_incarnation != known.agent_incarnation
        or node.suspended_keeps != known.suspended_keeps
        or cordoned is not (known.state is NodeState.CORDONED)
    )
