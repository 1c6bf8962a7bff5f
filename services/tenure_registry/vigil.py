"""The loop that watches over the sessions of this replica: who is suspected, who is lost.

Decides when to look, and carries out what `tenure_core.agents.loss` judges. It also keeps the
replica's own lease, without which other replicas would take its agents over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tenure_core.agents.loss import LossTiming, Outlook, awake, judge
from tenure_core.agents.states import AgentState
from tenure_core.errors import Stale, Unavailable
from tenure_core.timebase import Clock, Millis
from tenure_registry.ports import LossStore, SessionStore
from tenure_registry.sessions import Sessions
from tenure_registry.values import StateChange


class VigilStore(SessionStore, LossStore, Protocol):
    """What the vigil changes."""


class Vigil:
    """Run `run_once` twice a heartbeat, and `stay_awake` several times a fence.

    `replica_ms` is how long other replicas wait before they watch a silent one's agents.
    `lost` is told the number of agents lost in a round.
    """

    def __init__(
        self,
        store: VigilStore,
        sessions: Sessions,
        timing: LossTiming,
        *,
        clock: Clock,
        wall: Clock,
        replica_ms: Millis,
        lost: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._store = store
        self._sessions = sessions
        self._timing = timing
        self._clock = clock
        self._wall = wall
        self._replica_ms = replica_ms
        self._lost = lost
        now_ms = clock.now_ms()
        self._outlook = Outlook(floor_ms=now_ms, awake_ms=now_ms)
        self._renew_ms: Millis = now_ms
        # Agents whose state may have been stored, or not: it is stored again.
        self._doubted: set[str] = set()

    def stay_awake(self) -> None:
        """Look at the clock; an observer that was paused must not blame its agents."""
        self._outlook = awake(self._clock.now_ms(), self._timing, self._outlook)

    async def run_once(self) -> tuple[str, ...]:
        """Renew the lease when due, judge all agents, store what changed; return who is lost."""
        if self._clock.now_ms() >= self._renew_ms:
            await self.renew()
        await self._store.end_abandoned()
        return await self._look()

    async def renew(self) -> None:
        """Renew this replica's lease and watch the agents of replicas that are gone.

        When the lease had run out, others may watch our agents already: all streams end, and the
        agents get new sessions.
        """
        asked_ms = self._clock.now_ms()
        adopted = await self._store.renew_replica(self._sessions.replica, self._replica_ms)
        late = self._sessions.lease_end_ms <= self._clock.now_ms()
        if late:
            # At the start too: then no stream is open, and sessions of before are taken up again.
            self._sessions.drop_all(
                Unavailable("REPLICA_LATE", "This replica was out of contact; connect anew.")
            )
            adopted += await self._store.watched_by(self._sessions.replica)
        else:
            # A notice of another replica may have been lost with it.
            await self._sessions.attend_all()
        self._sessions.watch(adopted)
        self._sessions.lease_end_ms = asked_ms + self._replica_ms * 9 // 10
        self._renew_ms = asked_ms + self._replica_ms // 6

    async def _look(self) -> tuple[str, ...]:
        now_ms = self._clock.now_ms()
        for agent in sorted(self._doubted):
            live = self._sessions.find(agent)
            if live is None:
                self._doubted.discard(agent)
            else:
                await self._store_states((agent,), live.state, now_ms)
        judged = judge(now_ms, self._sessions, self._timing, self._outlook)
        self._outlook = judged.outlook
        await self._store_states(judged.alive, AgentState.ALIVE, now_ms)
        await self._store_states(judged.suspect, AgentState.SUSPECT, now_ms)
        if not judged.lost:
            return ()
        return await self._give_up(judged.lost, now_ms)

    async def _store_states(
        self, agents: tuple[str, ...], state: AgentState, now_ms: Millis
    ) -> None:
        if not agents:
            return
        to_wall_ms = self._wall.now_ms() - now_ms
        changed = [live for name in agents if (live := self._sessions.find(name)) is not None]
        self._doubted.update(agents)
        await self._store.change_states(
            [
                StateChange(live.agent, live.session, state, live.contact_ms + to_wall_ms)
                for live in changed
            ]
        )
        self._doubted.difference_update(agents)
        for live in changed:
            if state is AgentState.SUSPECT and live.state is not state:
                steady_ms = live.contact_ms - live.steady_since_ms
                forgiven = steady_ms >= self._timing.forgiving_ms
                live.suspicions = 1 if forgiven else live.suspicions + 1
            live.state = state

    async def _give_up(self, agents: tuple[str, ...], now_ms: Millis) -> tuple[str, ...]:
        """Lose those that are still silent; storing states took time in which one may beat."""
        silent = {
            live.agent: live
            for name in agents
            if (live := self._sessions.find(name)) is not None and live.contact_ms < now_ms
        }
        if not silent:
            return ()
        for live in silent.values():
            # An answer from here on would promise a contact that the loss denies.
            live.given_up = True
        sessions = {name: live.session for name, live in silent.items()}
        try:
            lost = await self._store.declare_lost(sessions, self._sessions.replica)
        except BaseException:
            for live in silent.values():
                live.given_up = False
                if live.link is not None:
                    live.link.end(session_lost(live.agent))
            raise
        for name, live in silent.items():
            # One that is not lost has another session by now, elsewhere or on a newer stream.
            if self._sessions.find(name) is live:
                self._sessions.drop(name, session_lost(name))
        self._lost(len(lost))
        return tuple(lost)


def session_lost(agent: str) -> Stale:
    """Return the error that ends the stream of an agent that was given up."""
    return Stale("SESSION_LOST", "The agent was silent for too long; connect anew.", agent=agent)
