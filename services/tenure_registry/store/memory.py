"""The registry's store in memory: the same promises as PostgreSQL's, for tests and simulation.

Nothing here awaits between reading and writing, so each method is one transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tenure_core.agents.agent import Agent
from tenure_core.agents.states import WITH_SESSION, AgentState, may_change
from tenure_core.agents.work import (
    Allocation,
    Command,
    OnLoss,
    Report,
    Slot,
    Verb,
    after_command,
    after_report,
)
from tenure_core.errors import Invalid, Stale, Violation
from tenure_core.timebase import Clock, Millis
from tenure_registry.store.postgres import agent_not_found, allocation_not_found
from tenure_registry.store.postgres_sessions import MakeLost
from tenure_registry.store.postgres_work import stale_epoch
from tenure_registry.values import (
    AgentChange,
    Dispatch,
    Dispatched,
    Opened,
    Opening,
    Outgoing,
    ReportChange,
    ReportGroup,
    StateChange,
)


@dataclass(slots=True)
class _Stored:
    """A command with its outcome, as a row has it."""

    command: Command
    dispatched_ms: Millis
    outcome: str = ""


@dataclass(slots=True)
class MemoryFeed:
    """A change feed in memory. A token is `m` and the number of changes before it."""

    changes: list[tuple[str, Agent | Report, Millis]] = field(default_factory=list)
    grown: asyncio.Event = field(default_factory=asyncio.Event)

    def append(self, pool: str, item: Agent | Report, now_ms: Millis) -> None:
        """Add a change and wake all who wait."""
        self.changes.append((pool, item, now_ms))
        self.grown.set()
        self.grown = asyncio.Event()

    def token(self, count: int | None = None) -> str:
        """Return the token after `count` changes; of all of them by default."""
        return f"m{len(self.changes) if count is None else count}"

    def start(self, token: str) -> int:
        """Return the number of changes before a token; "" means all. Raises Invalid or Stale."""
        if not token:
            return len(self.changes)
        if not (token.startswith("m") and token[1:].isdigit()):
            violation = Violation(
                "resume_token", "RESUME_TOKEN_INVALID", "is no token of this feed"
            )
            raise Invalid([violation], "RESUME_TOKEN_INVALID")
        if int(token[1:]) > len(self.changes):
            raise Stale("RESUME_TOKEN_EXPIRED", "List again and watch from its token.")
        return int(token[1:])


class MemoryStore:
    """Keeps everything in dictionaries, by the clock given."""

    def __init__(self, clock: Clock, make_lost: MakeLost, loss_ms: Millis) -> None:
        self._clock = clock
        self._make_lost = make_lost
        self._loss_ms = loss_ms
        self._agents: dict[str, Agent] = {}
        self._epochs: dict[str, int] = {}
        self._commands: dict[str, _Stored] = {}
        self._allocations: dict[Slot, Allocation] = {}
        self._abandoned_ms: dict[Slot, Millis] = {}
        self._changed_ms: dict[Slot, Millis] = {}
        self._reports: dict[tuple[str, str], Millis] = {}
        self._replicas: dict[str, Millis] = {}
        self._agent_feed = MemoryFeed()
        self._report_feed = MemoryFeed()

    async def run(self) -> None:
        """Do nothing, for ever: there is nothing to follow."""
        await asyncio.Event().wait()

    def _put(self, agent: Agent) -> Agent:
        self._agents[agent.agent] = agent
        self._agent_feed.append(agent.pool, agent, self._clock.now_ms())
        return agent

    def _live(self, agents: Collection[str]) -> list[Allocation]:
        found = (a for a in self._allocations.values() if a.live and a.agent in agents)
        return sorted(found, key=lambda a: a.slot)

    async def open_session(self, opening: Opening) -> Opened:
        """See `SessionStore`."""
        claim, now_ms = opening.claim, self._clock.now_ms()
        before = self._agents.get(claim.agent)
        steady = before is not None and before.state is AgentState.ALIVE
        agent = self._put(
            Agent(
                agent=claim.agent,
                pool=claim.pool,
                incarnation=claim.incarnation,
                state=AgentState.ALIVE,
                cordoned=before.cordoned if before else False,
                draining=before.draining if before else False,
                capacity=claim.capacity,
                attributes=claim.attributes,
                suspended_keeps=claim.suspended_keeps,
                version=claim.version,
                session=opening.session,
                replica=opening.replica,
                contact_ms=now_ms,
                changed_ms=before.changed_ms if before and steady else now_ms,
            )
        )
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
                if stored.outcome in ("", "VOID"):
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

    def _of_slot(self, slot: Slot) -> list[_Stored]:
        return [each for each in self._commands.values() if each.command.slot == slot]

    async def pending(self, agents: Collection[str]) -> list[Outgoing]:
        """See `SessionStore`."""
        now_ms = self._clock.now_ms()
        return [
            Outgoing(
                stored.command, max(0, stored.command.valid_ms - (now_ms - stored.dispatched_ms))
            )
            for stored in self._commands.values()
            if not stored.outcome and stored.command.agent in agents
        ]

    async def superseded(self, given: Mapping[str, str]) -> list[str]:
        """See `SessionStore`."""
        return [
            name
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
            if not stored.outcome and stored.command.agent in names:
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
        async for where, item, _ in _follow(self._agent_feed, token, pool):
            assert isinstance(item, Agent)
            yield AgentChange(item, where)

    async def dispatch(self, dispatch: Dispatch) -> Dispatched:
        """See `WorkStore`."""
        await self.fence(dispatch.scope, dispatch.epoch)
        reasons: list[str] = []
        out: dict[str, Command] = {}
        for command in dispatch.commands:
            reason, sends = self._accept(command, dispatch)
            reasons.append(reason)
            if sends:
                out[command.command_id] = command
        return Dispatched(
            tuple(reasons),
            tuple(Outgoing(command, command.valid_ms) for command in out.values()),
            {command.agent: self._agents[command.agent].replica for command in out.values()},
        )

    def _accept(self, command: Command, dispatch: Dispatch) -> tuple[str, bool]:
        stored = self._commands.get(command.command_id)
        if stored is not None:
            if stored.command.digest != command.digest:
                return "COMMAND_ID_REUSED", False
            if stored.outcome in ("VOID", "FORGOTTEN"):
                return "AGENT_LOST", False
            renewed = not stored.outcome and stored.command.epoch < dispatch.epoch
            if renewed:
                stored.command, stored.dispatched_ms = command, self._clock.now_ms()
            return "", renewed
        agent = self._agents.get(command.agent)
        if agent is None or agent.pool != dispatch.pool:
            return "AGENT_NOT_FOUND", False
        if agent.state not in WITH_SESSION:
            return "AGENT_LOST", False
        after = after_command(self._allocations.get(command.slot), command, dispatch.pool)
        if isinstance(after, str):
            return after, False
        self._keep(after)
        self._commands[command.command_id] = _Stored(command, self._clock.now_ms())
        return "", True

    def _keep(self, allocation: Allocation) -> None:
        self._allocations[allocation.slot] = allocation
        self._changed_ms[allocation.slot] = self._clock.now_ms()

    async def record(self, group: ReportGroup) -> None:
        """See `WorkStore`."""
        self._record(group.reports)

    def _record(self, reports: Iterable[Report]) -> None:
        for report in reports:
            key = (report.agent, report.report_id)
            if key in self._reports:
                continue
            self._reports[key] = self._clock.now_ms()
            self._apply(report)

    def _apply(self, report: Report) -> None:
        stored = self._commands.get(report.command_id)
        answered = None
        if stored is not None and stored.command.agent == report.agent:
            stored.outcome = stored.outcome or "ANSWERED"
            answered = stored.command.verb
        before = self._allocations.get(report.slot)
        if before is None or before.agent != report.agent:
            return
        after = after_report(before, report, answered)
        self._keep(after)
        if before.live and not after.live:
            for each in self._of_slot(report.slot):
                each.outcome = each.outcome or "SETTLED"
        self._report_feed.append(before.pool, report, self._clock.now_ms())

    async def last_reports(
        self, pool: str, after: Slot | None, limit: int
    ) -> tuple[list[Report], str]:
        """See `WorkStore`."""
        found = [
            allocation.last
            for slot, allocation in sorted(self._allocations.items())
            if allocation.last and allocation.pool == pool and (after is None or slot > after)
        ]
        return found[:limit], self._report_feed.token()

    async def watch_reports(self, token: str, pool: str) -> AsyncGenerator[ReportChange, None]:
        """See `WorkStore`."""
        async for where, item, now_ms in _follow(self._report_feed, token, pool):
            assert isinstance(item, Report)
            yield ReportChange(item, where, now_ms)

    async def find_allocation(self, lease: str, attempt: int, rank: int) -> Allocation:
        """See `WorkStore`."""
        found = [
            allocation
            for slot, allocation in sorted(self._allocations.items())
            if (slot.lease, slot.rank) == (lease, rank) and attempt in (0, slot.attempt)
        ]
        if not found:
            raise allocation_not_found(lease, attempt, rank)
        return found[-1]

    async def fence(self, scope: str, epoch: int) -> int:
        """See `Upkeep`."""
        stored = self._epochs.setdefault(scope, epoch)
        if stored > epoch:
            raise stale_epoch(scope, epoch, stored)
        self._epochs[scope] = epoch
        return epoch

    async def forget(self, retention_ms: Millis) -> int:
        """See `Upkeep`."""
        before_ms = self._clock.now_ms() - retention_ms
        old = [
            slot
            for slot, allocation in self._allocations.items()
            if not allocation.live and self._changed_ms[slot] < before_ms
        ]
        for slot in old:
            del self._allocations[slot]
        answered = [
            name
            for name, stored in self._commands.items()
            if stored.outcome
            and stored.dispatched_ms < before_ms
            and not self._is_live(stored.command.slot)
        ]
        for name in answered:
            del self._commands[name]
        reports = [key for key, at_ms in self._reports.items() if at_ms < before_ms]
        for key in reports:
            del self._reports[key]
        return len(old) + len(answered) + len(reports)

    def _is_live(self, slot: Slot) -> bool:
        return slot in self._allocations and self._allocations[slot].live


async def _follow(
    feed: MemoryFeed, token: str, pool: str
) -> AsyncGenerator[tuple[str, Agent | Report, Millis], None]:
    count = feed.start(token)
    while True:
        grown = feed.grown
        while count < len(feed.changes):
            kind, item, now_ms = feed.changes[count]
            count += 1
            if not pool or kind == pool:
                yield feed.token(count), item, now_ms
        if not grown.is_set():
            await grown.wait()
