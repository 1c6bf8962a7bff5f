"""Commands, reports and allocations in memory.

Nothing here awaits between reading and writing, so each method is one transaction.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Iterable
from dataclasses import dataclass

from tenure_core.agents.states import WITH_SESSION
from tenure_core.agents.work import (
    Allocation,
    Command,
    Report,
    Slot,
    Verb,
    after_command,
    after_report,
    outcome_of,
)
from tenure_core.timebase import Clock, Millis
from tenure_registry.refusals import allocation_not_found
from tenure_registry.store.memory_applications import MemoryApplications
from tenure_registry.store.memory_feed import MemoryFeed, follow
from tenure_registry.values import Dispatch, Dispatched, Outgoing, ReportChange, ReportGroup


@dataclass(slots=True)
class Stored:
    """A command with its outcome, as a row has it."""

    command: Command
    dispatched_ms: Millis
    outcome: str = ""


class MemoryWork(MemoryApplications):
    """The work of all agents; `MemoryStore` adds the agents themselves."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._commands: dict[str, Stored] = {}
        self._allocations: dict[Slot, Allocation] = {}
        self._changed_ms: dict[Slot, Millis] = {}
        self._reports: dict[tuple[str, str], Millis] = {}
        self._report_feed = MemoryFeed()

    def _live(self, agents: Collection[str]) -> list[Allocation]:
        found = (a for a in self._allocations.values() if a.live and a.agent in agents)
        return sorted(found, key=lambda a: a.slot)

    def _of_slot(self, slot: Slot) -> list[Stored]:
        return [each for each in self._commands.values() if each.command.slot == slot]

    async def pending(self, agents: Collection[str]) -> list[Outgoing]:
        """See `SessionStore`."""
        now_ms = self._clock.now_ms()
        return [
            Outgoing(
                stored.command,
                max(0, stored.command.valid_ms - (now_ms - stored.dispatched_ms)),
                self._agents[stored.command.agent].session,
            )
            for stored in self._commands.values()
            if not stored.outcome and stored.command.agent in agents
        ]

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
            if sends and command.verb is Verb.STOP:
                for each in self._of_slot(command.slot):
                    if each.command.verb is not Verb.STOP:
                        each.outcome = each.outcome or "SUPERSEDED"
        return Dispatched(
            tuple(reasons),
            tuple(
                Outgoing(command, command.valid_ms, self._agents[command.agent].session)
                for command in out.values()
            ),
            {command.agent: self._agents[command.agent].replica for command in out.values()},
        )

    def _accept(self, command: Command, dispatch: Dispatch) -> tuple[str, bool]:
        stored = self._commands.get(command.command_id)
        if stored is not None:
            if stored.command.digest != command.digest:
                return "COMMAND_ID_REUSED", False
            was_void = stored.outcome in ("VOID", "FORGOTTEN")
            if was_void and command.verb is not Verb.STOP:
                return "AGENT_LOST", False
            # Its agent is back, and to be told to stop is harmless, however often; or it had no
            # effect.
            again = was_void or stored.outcome == "REFUSED"
            if again and (refusal := self._refusal(command, dispatch)):
                return refusal, False
            renewed = again or (not stored.outcome and stored.command.epoch < dispatch.epoch)
            if renewed:
                stored.outcome = ""
                stored.command, stored.dispatched_ms = command, self._clock.now_ms()
            return "", renewed
        refusal = self._refusal(command, dispatch)
        if refusal:
            return refusal, False
        after = after_command(self._allocations.get(command.slot), command, dispatch.pool)
        if isinstance(after, str):
            return after, False
        self._keep(after)
        self._commands[command.command_id] = Stored(command, self._clock.now_ms())
        return "", True

    def _refusal(self, command: Command, dispatch: Dispatch) -> str:
        agent = self._agents.get(command.agent)
        if agent is None or agent.pool != dispatch.pool:
            return "AGENT_NOT_FOUND"
        return "" if agent.state in WITH_SESSION else "AGENT_LOST"

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
            answered = stored.command.verb
            stored.outcome = stored.outcome or outcome_of(report, answered)
        before = self._allocations.get(report.slot)
        if before is None or before.agent != report.agent:
            return
        after = after_report(before, report, answered)
        self._keep(after)
        if after is not before and not after.live:
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
        async for where, item, now_ms in follow(self._report_feed, token, pool):
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
