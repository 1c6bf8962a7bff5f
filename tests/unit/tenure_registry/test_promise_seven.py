"""Promise 7 under random schedules: no agent is declared lost while its work may still run.

Replicas pause, die, lose their database and come back; agents fall silent, reconnect anywhere, and
their beats take time. A model of each agent's fence is held against every loss. Each case prints
its seed when it fails.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from tests.unit.tenure_registry.test_vigil import Link, Notices, SimulatedClock

from tenure_core.agents.agent import Agent as StoredAgent
from tenure_core.agents.agent import Claim
from tenure_core.agents.loss import LossTiming
from tenure_core.agents.states import AgentState
from tenure_core.errors import DomainError, Unavailable
from tenure_core.resources import ResourceVector
from tenure_registry.convert import lost_report
from tenure_registry.sessions import LiveAgent, Sessions
from tenure_registry.store.memory import MemoryStore
from tenure_registry.values import Opened, Opening
from tenure_registry.vigil import Vigil
from tenure_runtime.ids import RandomIds

TIMING = LossTiming(heartbeat_ms=1_000, fence_ms=6_000, loss_ms=10_000)
REPLICA_MS = 20_000
STEP_MS = 250


class FlakyStore(MemoryStore):
    """The memory store; it is away while `away` is set."""

    away = False

    async def declare_lost(self, given: Mapping[str, str], replica: str) -> list[str]:
        self._check()
        return await super().declare_lost(given, replica)

    async def open_session(self, opening: Opening) -> Opened:
        self._check()
        return await super().open_session(opening)

    async def renew_replica(self, replica: str, alive_ms: int) -> list[StoredAgent]:
        self._check()
        return await super().renew_replica(replica, alive_ms)

    def _check(self) -> None:
        if self.away:
            raise Unavailable("DATABASE_UNAVAILABLE", "The database is away.")


@dataclass
class Replica:
    sessions: Sessions
    vigil: Vigil
    notices: Notices
    paused_until_ms: int = 0
    dead: bool = False


@dataclass
class Agent:
    """One agent and its guardian: work ends `fence_ms` after the sending of an answered beat."""

    name: str
    answered_ms: int
    replica: Replica | None = None
    live: LiveAgent | None = None
    link: Link = field(default_factory=Link)
    mute_until_ms: int = 0
    retry_ms: int = 0
    next_beat_ms: int = 0
    # Beats on their way: when they arrive, when they were sent, and on which stream.
    flying: list[tuple[int, int, Replica, LiveAgent]] = field(default_factory=list)

    def work_ended(self, now_ms: int) -> bool:
        return now_ms >= self.answered_ms + TIMING.fence_ms


class Simulation:
    """Three replicas and eight agents under one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.clock = SimulatedClock()
        self.store = FlakyStore(self.clock, lost_report, TIMING.loss_ms)
        self.replicas = [self.replica(f"r{number}") for number in range(3)]
        self.agents = [Agent(f"a{number}", self.clock.at_ms) for number in range(8)]
        self.losses = 0
        self.calm = False
        self.database_back_ms = 0

    def replica(self, name: str) -> Replica:
        notices = Notices()
        sessions = Sessions(
            self.store, notices, self.clock, RandomIds(self.rng), name, gap_ms=TIMING.suspect_ms
        )
        vigil = Vigil(
            self.store, sessions, TIMING,
            clock=self.clock, wall=self.clock, replica_ms=REPLICA_MS,
        )  # fmt: skip
        return Replica(sessions, vigil, notices)

    async def step(self) -> None:
        self.clock.at_ms += STEP_MS
        if not self.calm:
            self.disturb()
        self.store.away = self.clock.at_ms < self.database_back_ms
        order = [*self.agents, *self.replicas]
        self.rng.shuffle(order)
        for each in order:
            if isinstance(each, Agent):
                await self.move(each)
            elif not each.dead and self.clock.at_ms >= each.paused_until_ms:
                await self.attend(each)

    def disturb(self) -> None:
        rng, now_ms = self.rng, self.clock.at_ms
        if rng.random() < 0.01:
            agent = rng.choice(self.agents)
            agent.mute_until_ms = now_ms + rng.choice((2_000, 8_000, 15_000, 60_000))
        if rng.random() < 0.01:
            replica = rng.choice(self.replicas)
            replica.paused_until_ms = now_ms + rng.choice((1_000, 4_000, 12_000, 30_000))
        if rng.random() < 0.004:
            index = rng.randrange(len(self.replicas))
            self.replicas[index].dead = True
            self.replicas[index] = self.replica(
                f"r{index}-{now_ms}" if rng.random() < 0.5 else f"r{index}"
            )
        if rng.random() < 0.005:
            self.database_back_ms = now_ms + rng.choice((2_000, 15_000, 25_000))

    async def attend(self, replica: Replica) -> None:
        replica.vigil.stay_awake()
        try:
            lost = await replica.vigil.run_once()
        except DomainError:
            return
        for name in lost:
            agent = next(agent for agent in self.agents if agent.name == name)
            assert agent.work_ended(self.clock.at_ms), f"{name} is lost and its work runs"
            assert (await self.store.get_agent(name))[0].state is AgentState.LOST
            self.losses += 1
        for target, names in replica.notices.told:
            for other in self.replicas:
                heard = other.sessions.replica == target and not other.dead
                if heard and self.rng.random() < 0.8:
                    await other.sessions.attend(names)
        replica.notices.told.clear()

    async def move(self, agent: Agent) -> None:
        now_ms = self.clock.at_ms
        self.land(agent, now_ms)
        if now_ms < agent.mute_until_ms:
            return
        gone = agent.replica is None or agent.replica.dead or agent.link.ended
        if gone and now_ms >= agent.retry_ms:
            agent.retry_ms = now_ms + self.rng.randrange(250, 3_000)
            await self.connect(agent)
        elif not gone and now_ms >= agent.next_beat_ms:
            assert agent.replica is not None and agent.live is not None
            agent.next_beat_ms = now_ms + TIMING.heartbeat_ms
            arrives_ms = now_ms + self.rng.randrange(0, 1_000)
            agent.flying.append((arrives_ms, now_ms, agent.replica, agent.live))

    def land(self, agent: Agent, now_ms: int) -> None:
        """Let beats arrive; a paused replica reads them when it is awake again."""
        still = []
        for beat in agent.flying:
            arrives_ms, sent_ms, replica, live = beat
            if replica.dead or live is not agent.live or agent.link.ended:
                continue
            if now_ms < max(arrives_ms, replica.paused_until_ms):
                still.append(beat)
            elif replica.sessions.beat(live, None):
                agent.answered_ms = max(agent.answered_ms, sent_ms)
        agent.flying = still

    async def connect(self, agent: Agent) -> None:
        awake = [each for each in self.replicas if self.clock.at_ms >= each.paused_until_ms]
        if not awake:
            return
        replica = self.rng.choice(awake)
        link = Link()
        claim = Claim(agent.name, "main", "d1", "0.1", ResourceVector())
        try:
            live, opened = await replica.sessions.open(claim, frozenset(), link)
        except DomainError:
            return
        replica.sessions.started(live, opened)
        if agent.live is not None and agent.replica is not None and not agent.replica.dead:
            agent.replica.sessions.closed(agent.live)
        agent.replica, agent.live, agent.link = replica, live, link


@pytest.mark.parametrize("seed", range(25))
async def test_no_agent_is_lost_while_its_work_may_run(seed: int) -> None:
    simulation = Simulation(seed)
    for _ in range(1_200):
        await simulation.step()
    # After everything has calmed down every agent is alive or lost, and watched by somebody.
    simulation.calm = True
    for agent in simulation.agents:
        agent.mute_until_ms = 0
    for _ in range(800):
        await simulation.step()
    states = {
        (await simulation.store.get_agent(agent.name))[0].state for agent in simulation.agents
    }
    assert states == {AgentState.ALIVE}


async def test_the_schedules_do_lose_agents() -> None:
    losses = 0
    for seed in range(5):
        simulation = Simulation(seed)
        for _ in range(1_200):
            await simulation.step()
        losses += simulation.losses
    assert losses > 5
