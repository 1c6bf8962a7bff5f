"""The agents whose sessions this replica has: their contact, and the streams that are open.

Decides which stream of an agent counts (the newest), what is sent on it and in which order, and
whether a beat is answered. Kept in memory only: beats write nothing. When an agent is lost is left
to `vigil`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from tenure_core.agents.agent import Agent, Claim, Load
from tenure_core.agents.states import AgentState
from tenure_core.agents.work import Report, Slot
from tenure_core.errors import DomainError, Exhausted, Stale
from tenure_core.timebase import Clock, Millis
from tenure_registry.ports import AgentLink, Ids, Notices, SessionStore
from tenure_registry.values import Opened, Opening, Outgoing

HELLOS_MAX: Final = 30
"""So many hellos an agent may say at once; one more each second. Two clones that supersede one
another for ever are slowed down by it."""


class LiveAgent:
    """One agent with a session here; `link` is absent while no stream is open."""

    __slots__ = (
        "agent",
        "contact_ms",
        "early",
        "given_up",
        "hello_debt",
        "hello_ms",
        "link",
        "load",
        "sent",
        "session",
        "state",
        "steady_since_ms",
        "suspicions",
    )  # fmt: skip

    def __init__(
        self,
        agent: str,
        session: str,
        state: AgentState,
        contact_ms: Millis,
        link: AgentLink | None,
    ) -> None:
        self.agent = agent
        self.session = session
        self.state = state
        self.contact_ms = contact_ms
        self.steady_since_ms = contact_ms
        # How many hellos there were of late: one is forgotten each second.
        self.hello_debt = 1.0
        self.hello_ms = contact_ms
        self.suspicions = 0
        self.load: Load | None = None
        # Set while its loss is being stored: from then on no beat is answered.
        self.given_up = False
        self.link = link
        # Commands that were dispatched while the session was being opened; None once it is open.
        self.early: list[Outgoing] | None = None
        # Epoch under which each command without an answer was sent on this stream.
        self.sent: dict[str, int] = {}

    def unsent(self, commands: Iterable[Outgoing]) -> list[Outgoing]:
        """Return those not sent yet (or under an older epoch only), and note them as sent."""
        out = []
        for outgoing in commands:
            command = outgoing.command
            if self.sent.get(command.command_id, -1) < command.epoch:
                self.sent[command.command_id] = command.epoch
                out.append(outgoing)
        return out


class Sessions:
    """All of this replica's agents.

    `clock` counts suspended time and is this host's own. A silence of more than `gap_ms` ends an
    agent's steady beating.
    """

    def __init__(
        self,
        store: SessionStore,
        notices: Notices,
        clock: Clock,
        ids: Ids,
        replica: str,
        *,
        gap_ms: Millis,
    ) -> None:
        self._store = store
        self._notices = notices
        self._clock = clock
        self._ids = ids
        self._agents: dict[str, LiveAgent] = {}
        self._gap_ms = gap_ms
        self.replica = replica
        # Until when this replica may answer beats: others watch its agents only later.
        self.lease_end_ms: Millis = 0

    def __iter__(self) -> Iterator[LiveAgent]:
        return iter(self._agents.values())

    def __len__(self) -> int:
        return len(self._agents)

    def longest_silence_ms(self) -> Millis:
        """Return how long the most silent agent has said nothing; 0 without agents."""
        now_ms = self._clock.now_ms()
        return max((now_ms - live.contact_ms for live in self._agents.values()), default=0)

    def find(self, agent: str) -> LiveAgent | None:
        """Return an agent whose session is here."""
        return self._agents.get(agent)

    async def open(
        self, claim: Claim, present: frozenset[Slot], link: AgentLink
    ) -> tuple[LiveAgent, Opened]:
        """Give an agent a new session on this stream; an older stream of it ends.

        Raises Stale SESSION_SUPERSEDED when a still newer hello came meanwhile, Exhausted FLOODING
        when the agent connects too often.
        """
        now_ms = self._clock.now_ms()
        before = self._agents.get(claim.agent)
        live = LiveAgent(claim.agent, self._ids.short(16), AgentState.ALIVE, now_ms, link)
        live.early = []
        if before is not None:
            # A new stream is no reason to forget how the agent was.
            live.suspicions = before.suspicions
            live.hello_debt += max(0.0, before.hello_debt - (now_ms - before.hello_ms) / 1_000)
            if live.hello_debt > HELLOS_MAX:
                raise Exhausted(
                    "FLOODING",
                    "The agent connects too often; are there two of it?",
                    retry_after_ms=2_000,
                    agent=claim.agent,
                )
        # Known before it is stored: what is dispatched from now on is either read with the
        # session or handed to `deliver`.
        self._agents[claim.agent] = live
        if before is not None and before.link is not None:
            before.link.end(superseded(claim.agent))
        try:
            opened = await self._store.open_session(
                Opening(claim, live.session, self.replica, present)
            )
        except BaseException:
            self._restore(live, before)
            raise
        if self._agents.get(claim.agent) is not live:
            raise superseded(claim.agent)
        if opened.replica_before not in ("", self.replica):
            self._notices.tell(opened.replica_before, [claim.agent])
        live.contact_ms = self._clock.now_ms()
        return live, opened

    def started(self, live: LiveAgent, opened: Opened) -> list[Outgoing]:
        """Return the commands to send right after the wanted set; later ones go through `link`."""
        first = live.unsent([*opened.commands, *(live.early or ())])
        live.early = None
        return first

    def _restore(self, live: LiveAgent, before: LiveAgent | None) -> None:
        """Undo a hello that was not stored: the session before it may still be the agent's."""
        if self._agents.get(live.agent) is not live:
            return
        if before is None:
            del self._agents[live.agent]
        else:
            before.link = None
            self._agents[live.agent] = before

    def closed(self, live: LiveAgent) -> None:
        """Note that a stream ended; the agent is watched on."""
        live.link = None
        live.sent.clear()

    def beat(self, live: LiveAgent, load: Load | None) -> bool:
        """Note a beat, and say whether it may be answered.

        It may not be once another replica could watch this one's agents: an answer would promise
        the agent a contact that the other knows nothing of.
        """
        now_ms = self._clock.now_ms()
        if now_ms - live.contact_ms > self._gap_ms:
            live.steady_since_ms = now_ms
        live.contact_ms = now_ms
        if load is not None:
            live.load = load
        return not live.given_up and live.contact_ms < self.lease_end_ms

    def answered(self, live: LiveAgent, reports: Iterable[Report]) -> None:
        """Forget commands that have their answer."""
        for report in reports:
            live.sent.pop(report.command_id, None)

    def watch(self, agents: Iterable[Agent]) -> None:
        """Watch agents whose sessions fell to this replica; their contact counts from now."""
        for agent in agents:
            if agent.agent not in self._agents:
                self._agents[agent.agent] = LiveAgent(
                    agent.agent, agent.session, agent.state, self._clock.now_ms(), None
                )

    def drop(self, agent: str, error: DomainError) -> None:
        """Watch an agent no more, and end its stream if one is open."""
        live = self._agents.pop(agent, None)
        if live is not None and live.link is not None:
            live.link.end(error)

    def drop_all(self, error: DomainError) -> None:
        """End every stream; agents connect anew and get new sessions."""
        for agent in list(self._agents):
            self.drop(agent, error)

    def deliver(self, commands: Sequence[Outgoing]) -> None:
        """Send commands to those agents whose streams are open here, in the session they are for.

        What was read before a newer session began is not sent in that: it may be over by now, and a
        START would run twice on an agent that lost its memory of the first.
        """
        by_agent: dict[str, list[Outgoing]] = {}
        for outgoing in commands:
            by_agent.setdefault(outgoing.command.agent, []).append(outgoing)
        for agent, told in by_agent.items():
            live = self._agents.get(agent)
            if live is None or live.link is None:
                continue
            outgoing_list = [each for each in told if each.session == live.session]
            if live.early is not None:
                live.early.extend(outgoing_list)
            else:
                live.link.deliver(live.session, live.unsent(outgoing_list))

    def pass_on(self, replicas: dict[str, str]) -> None:
        """Tell the other replicas that have these agents (agent to replica) to look at them."""
        told: dict[str, list[str]] = {}
        for agent, replica in replicas.items():
            if replica != self.replica:
                told.setdefault(replica, []).append(agent)
        for replica, agents in told.items():
            self._notices.tell(replica, agents)

    async def attend(self, agents: Collection[str]) -> None:
        """Look at agents that another replica changed: superseded sessions end, commands go out."""
        here = {
            name: live.session
            for name in agents
            if (live := self._agents.get(name)) is not None and live.early is None
        }
        for agent in await self._store.superseded(here):
            current = self._agents.get(agent.agent)
            if current is None or current.session != here[agent.agent]:
                continue
            self.drop(agent.agent, superseded(agent.agent))
            if agent.session and agent.replica == self.replica:
                # The replica that gave the newer session is dead: it is watched here by now.
                self.watch([agent])
        # Also those that say hello just now: what they were not told yet is kept for them.
        linked = [name for name in agents if (live := self.find(name)) is not None and live.link]
        if linked:
            self.deliver(await self._store.pending(linked))

    async def hear(self, agents: Collection[str] | None) -> None:
        """Do what a notice asks for: look at some agents, or (None) at all of them."""
        await (self.attend_all() if agents is None else self.attend(agents))

    async def attend_all(self) -> None:
        """Look at every agent: notices may have been lost."""
        await self.attend(list(self._agents))


def superseded(agent: str) -> Stale:
    """Return the error that ends a stream whose agent has a newer session."""
    return Stale(
        "SESSION_SUPERSEDED", "The agent has opened a newer session elsewhere.", agent=agent
    )
