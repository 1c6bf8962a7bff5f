"""The autoscaler's store in memory: the same promises as PostgreSQL's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace

from tenure_autoscaler.store.rows import (
    changed_group,
    check_version,
    group_exists,
    group_in_use,
    group_not_found,
    same_but_version,
    says_the_same,
)
from tenure_autoscaler.values import (
    Decision,
    Group,
    GroupChange,
    Machine,
    MachineChange,
    RequestMark,
)
from tenure_core.errors import Invalid, Violation
from tenure_core.timebase import Clock, Millis


class MemoryStore:
    """Keeps everything in dictionaries; nothing awaits between reading and writing."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._groups: dict[str, Group] = {}
        self._requests: dict[tuple[str, str], tuple[bytes, Group]] = {}
        self._machines: dict[str, Machine] = {}
        self._changes: list[Machine] = []
        self._grown = asyncio.Event()
        self._decisions: list[Decision] = []
        self.has_fleet: Callable[[str], bool] = lambda _: False
        """Says whether a fleet store beside this one has machines or offers of a group."""

    async def run(self) -> None:
        """Do nothing, for ever: there is nothing to follow."""
        await asyncio.Event().wait()

    async def create_group(self, group: Group, mark: RequestMark) -> Group:
        """See `GroupStore`."""
        key = (mark.caller, mark.request_id)
        if mark.request_id and key in self._requests:
            request, answer = self._requests[key]
            if request != mark.request:
                found = Violation("request_id", "REQUEST_ID_REUSED", "was used for other content")
                raise Invalid([found], "REQUEST_ID_REUSED")
            return answer
        if group.group in self._groups:
            raise group_exists(group.group)
        self._groups[group.group] = group
        if mark.request_id:
            self._requests[key] = (mark.request, group)
        return group

    async def get_group(self, group: str) -> Group:
        """See `GroupStore`."""
        if group not in self._groups:
            raise group_not_found(group)
        return self._groups[group]

    async def list_groups(self, after: str, limit: int) -> list[Group]:
        """See `GroupStore`."""
        return [group for name, group in sorted(self._groups.items()) if name > after][:limit]

    async def change_group(self, group: str, change: GroupChange, version: int | None) -> Group:
        """See `GroupStore`."""
        after = changed_group(await self.get_group(group), change, version)
        self._groups[group] = after
        return after

    async def delete_group(self, group: str, version: int | None) -> None:
        """See `GroupStore`."""
        check_version(await self.get_group(group), version)
        if any(machine.group == group and machine.serves for machine in self._machines.values()):
            raise group_in_use(group)
        if self.has_fleet(group):
            raise group_in_use(group)
        del self._groups[group]

    async def sync_machines(self, seen: Sequence[Machine]) -> int:
        """See `MachineStore`."""
        count = 0
        for machine in seen:
            before = self._machines.get(machine.machine)
            if before is None or not same_but_version(before, machine):
                after = replace(machine, version=before.version + 1 if before else 1)
                self._machines[machine.machine] = after
                self._changes.append(after)
                count += 1
        if count:
            self._grown.set()
            self._grown = asyncio.Event()
        return count

    async def list_machines(
        self, group: str, pool: str, after: str, limit: int
    ) -> tuple[list[Machine], str]:
        """See `MachineStore`."""
        found = [
            machine
            for name, machine in sorted(self._machines.items())
            if name > after and group in ("", machine.group) and pool in ("", machine.pool)
        ]
        return found[:limit], f"m{len(self._changes)}"

    async def watch_machines(self, token: str) -> AsyncGenerator[MachineChange, None]:
        """See `MachineStore`."""
        if token and not (token.startswith("m") and token[1:].isdigit()):
            found = Violation("resume_token", "RESUME_TOKEN_INVALID", "is no token of this feed")
            raise Invalid([found], "RESUME_TOKEN_INVALID")
        count = int(token[1:]) if token else len(self._changes)
        while True:
            grown = self._grown
            while count < len(self._changes):
                count += 1
                yield MachineChange(self._changes[count - 1], f"m{count}")
            if grown is self._grown:
                await grown.wait()

    async def add_decision(self, decision: Decision) -> bool:
        """See `DecisionStore`."""
        last = next((d for d in reversed(self._decisions) if d.subject == decision.subject), None)
        if last is not None and says_the_same(last, decision):
            return False
        self.keep_decision(decision)
        return True

    def keep_decision(self, decision: Decision) -> int:
        """Store a decision in any case; return its number."""
        number = self._decisions[-1].number + 1 if self._decisions else 1
        self._decisions.append(replace(decision, number=number))
        return number

    def decision(self, number: int) -> Decision:
        """Return a stored decision."""
        return next(each for each in self._decisions if each.number == number)

    def put_decision(self, decision: Decision) -> None:
        """Replace a stored decision by another form of it."""
        self._decisions = [
            decision if each.number == decision.number else each for each in self._decisions
        ]

    async def list_decisions(self, subject: str, before: int, limit: int) -> list[Decision]:
        """See `DecisionStore`."""
        found = [
            decision
            for decision in reversed(self._decisions)
            if subject in ("", decision.subject) and (not before or decision.number < before)
        ]
        return found[:limit]

    async def forget(self, retention_ms: Millis) -> int:
        """See `DecisionStore`."""
        oldest_ms = self._clock.now_ms() - retention_ms
        last = {decision.subject: decision.number for decision in self._decisions}
        kept = [
            decision
            for decision in self._decisions
            if decision.decided_ms >= oldest_ms or last[decision.subject] == decision.number
        ]
        count = len(self._decisions) - len(kept)
        self._decisions = kept
        return count
