"""Carries out the next steps of leases: give back, record, and tell the agents.

What the next step is, is decided in `tenure_core.enactment`. Capacity is given back before an end
is recorded, so that nothing is uncharged while it is still held. A START goes out once STARTING is
recorded: whoever takes over must find in the lease that agents may know of it. Other commands go
out while their transition is being recorded, since a repeat of them is harmless.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from tenure_core.agents.work import ReportKind, Verb
from tenure_core.enactment.commands import implied_commands
from tenure_core.enactment.facts import Facts, Step, grace_ms
from tenure_core.enactment.names import command_name
from tenure_core.enactment.ranks import Report
from tenure_core.enactment.steps import next_step
from tenure_core.errors import Invalid
from tenure_core.leases.lease import OnLoss
from tenure_core.leases.states import HOLDING, LeaseState
from tenure_core.planning.snapshot import ReservationKind
from tenure_core.slots.operations import ReleaseRow
from tenure_core.timebase import Millis
from tenure_runtime.telemetry.logging import get_logger
from tenure_runtime.telemetry.tracing import touches
from tenure_scheduler import metrics
from tenure_scheduler.entries import (
    Dispatch,
    LeaseEntry,
    SubmitGroup,
    Transition,
    TransitionVerdict,
)
from tenure_scheduler.mirror import PoolMirror
from tenure_scheduler.poolclock import PoolClock
from tenure_scheduler.ports import Claim, Neighbours
from tenure_scheduler.sealing import with_secrets

UNREACHABLE = frozenset({"AGENT_NOT_FOUND", "AGENT_LOST"})
RETRY_MS: Millis = 2_000

log = get_logger()


class Enactor:
    """Enacts the leases of one pool for one leader."""

    def __init__(
        self, claim: Claim, mirror: PoolMirror, clock: PoolClock, neighbours: Neighbours
    ) -> None:
        self._claim = claim
        self._mirror = mirror
        self._clock = clock
        self._neighbours = neighbours
        self._sent: dict[str, set[str]] = {}

    async def run_once(self) -> int:
        """Take the next step of every lease that is due; return how many there were."""
        now = self._clock.now_ms()
        for refused in self._mirror.take_refused():
            self._retry(refused.lease, refused.command)
        steps: list[Step] = []
        commands: list[Dispatch] = []
        for name in self._mirror.take_due(now):
            entry = self._mirror.leases.get(name)
            if entry is None:
                self._sent.pop(name, None)
                continue
            facts = self._mirror.facts(entry, now)
            step = next_step(facts, now)
            if step is not None:
                steps.append(step)
            state = entry.lease.state if step is None else step.state
            if step is not None:
                self._note_entering(entry, step)
            if step is None or state is not LeaseState.STARTING:
                reason = entry.lease.reason if step is None else step.reason
                commands.extend(self._unsent(entry, facts, state, reason))
            self._remind(entry, now)
        # Before anything is awaited: what was decided holds for the versions that were looked at.
        transitions = [self._transition(step) for step in steps if self._changes(step)]
        await self._give_back(steps, now)
        await asyncio.gather(
            self._record_and_start(steps, transitions, now), self._dispatch(commands)
        )
        return len(steps) + len(commands)

    async def _record_and_start(
        self, steps: Sequence[Step], transitions: Sequence[Transition], now: Millis
    ) -> None:
        await self.record(transitions)
        commands: list[Dispatch] = []
        for step in steps:
            entry = self._mirror.leases.get(step.lease)
            if step.state is LeaseState.STARTING and entry and entry.lease.state is step.state:
                facts = self._mirror.facts(entry, now)
                commands.extend(self._unsent(entry, facts, step.state, step.reason))
        await self._dispatch(commands)

    def _changes(self, step: Step) -> bool:
        return self._mirror.leases[step.lease].lease.state is not step.state

    def _note_entering(self, entry: LeaseEntry, step: Step) -> None:
        if step.state in (LeaseState.STARTING, LeaseState.RESUMING):
            lease = entry.lease
            for placement in step.placements or lease.placements:
                self._mirror.enter(lease.id, lease.attempt, placement.rank, placement.node)

    def _remind(self, entry: LeaseEntry, now: Millis) -> None:
        """Have a lease looked at again when its work is to be told to stop."""
        if entry.lease.state not in HOLDING:
            return
        for row in self._mirror.rows_of(entry.lease.id):
            at = row.interval.end - grace_ms(entry.lease)
            if at > now:
                self._mirror.remind(at, entry.lease.id)

    async def _give_back(self, steps: Sequence[Step], now: Millis) -> None:
        groups = [
            SubmitGroup(
                f"{step.lease}/release",
                tuple(map(ReleaseRow, rows)),
                self._mirror.leases[step.lease].trace_parent,
            )
            for step in steps
            if (rows := self._given_back(step, now))
        ]
        groups += [
            SubmitGroup(
                f"{lease}/orphan",
                tuple(ReleaseRow(row.id) for row in self._mirror.rows_of(lease)),
            )
            for lease in self._mirror.orphans()
        ]
        if groups:
            await self.submit(groups, now)

    def _given_back(self, step: Step, now: Millis) -> list[str]:
        rows = self._mirror.rows_of(step.lease)
        if step.release:
            return [row.id for row in rows]
        if step.release_past:
            kept = ReservationKind.RESIDENT if step.state is LeaseState.SUSPENDED else None
            return [row.id for row in rows if row.interval.end <= now and row.kind is not kept]
        return []

    async def submit(self, groups: Sequence[SubmitGroup], now: Millis) -> dict[str, str]:
        """Commit groups and take over what came of it; return the refusals by group."""
        try:
            result = await self._neighbours.slots.submit(
                self._claim, now, self._mirror.revision, groups
            )
        except Invalid as error:
            return await self._submit_apart(groups, now, error)
        self._clock.observe(result.at)
        self._mirror.revision = result.revision
        self._mirror.seen_revision = max(self._mirror.seen_revision, result.revision)
        refused: dict[str, str] = {}
        with self._mirror.answering():
            for group, verdict in zip(groups, result.verdicts, strict=True):
                if verdict.reason:
                    refused[group.id] = f"{verdict.reason}: {verdict.message}"
                    continue
                for operation in group.operations:
                    if isinstance(operation, ReleaseRow):
                        self._mirror.drop_row(operation.reservation, result.revision)
                for row in verdict.rows:
                    self._mirror.put_row(row)
        return refused

    async def _submit_apart(
        self, groups: Sequence[SubmitGroup], now: Millis, error: Invalid
    ) -> dict[str, str]:
        """Find the group that makes no sense to the slot table: it must not sink the others.

        Such a group is a fault of ours, or of a planner of another version.
        """
        if len(groups) == 1:
            log.error("group.invalid", group=groups[0].id, violations=error.message)
            return {groups[0].id: f"{error.reason}: {error.message}"}
        half = len(groups) // 2
        refused = await self.submit(groups[:half], now)
        return refused | await self.submit(groups[half:], now)

    def _transition(self, step: Step) -> Transition:
        lease = self._mirror.leases[step.lease].lease
        return Transition(
            id=self.transition_id(lease.id, lease.version),
            lease=lease.id,
            version=lease.version,
            state=step.state,
            attempt=lease.attempt,
            reason=step.reason,
            message=step.message,
            placements=step.placements,
            started=step.started,
            ended=step.ended,
            remaining_ms=step.remaining_ms,
            exit_code=step.exit_code,
            preempted=step.preempted,
            failed=step.failed,
        )

    def transition_id(self, lease: str, version: int) -> str:
        """Return the id of what this leader records on a version of a lease."""
        return f"{self._claim.epoch}.{lease}.{version}"

    async def record(self, transitions: Sequence[Transition]) -> list[TransitionVerdict]:
        """Record transitions and take over the leases as they are then, refused or not."""
        if not transitions:
            return []
        self.touch(transitions)
        verdicts = await self._neighbours.leases.record(self._claim, transitions, ())
        self.take_over(verdicts)
        metrics.recorded(self._claim.pool, transitions, verdicts)
        return verdicts

    def touch(self, transitions: Iterable[Transition]) -> None:
        """Link the cycle to the traces of the leases that it moves on."""
        leases = self._mirror.leases
        touches(leases[each.lease].trace_parent for each in transitions if each.lease in leases)

    def take_over(self, verdicts: Iterable[TransitionVerdict]) -> None:
        """Take over the leases that verdicts show."""
        with self._mirror.answering():
            for verdict in verdicts:
                if verdict.lease is not None:
                    self._mirror.put_lease(verdict.lease)

    def _unsent(
        self, entry: LeaseEntry, facts: Facts, state: LeaseState, reason: str
    ) -> list[Dispatch]:
        lease = entry.lease
        sent = self._sent.setdefault(lease.id, set())
        nodes = tuple(p.node for p in sorted(lease.placements, key=lambda p: p.rank))
        dispatches = []
        for wish in implied_commands(facts, state):
            name = command_name(lease.id, lease.attempt, wish.rank, wish.verb, wish.number)
            if name in sent:
                continue
            sent.add(name)
            dispatches.append(
                Dispatch(
                    name,
                    entry,
                    lease.attempt,
                    wish.rank,
                    wish.node,
                    wish.verb,
                    reason,
                    grace_ms(lease),
                    nodes,
                )
            )
        return dispatches

    async def _dispatch(self, commands: Sequence[Dispatch]) -> None:
        if not commands:
            return
        try:
            commands, withheld = await with_secrets(commands, self._mirror, self._neighbours.leases)
            verdicts = await self._neighbours.fleet.dispatch(self._claim, commands)
        except BaseException:
            for command in commands:
                self._retry(command.lease.lease.id, command.id)
            raise
        for command in withheld:
            self._retry(command.lease.lease.id, command.id)
        for command, verdict in zip(commands, verdicts, strict=True):
            if verdict.reason in UNREACHABLE:
                self._unreachable(command, verdict.reason)

    def _retry(self, lease: str, command: str) -> None:
        """Have a command sent again after a while, if it is still what the state implies."""
        self._sent.get(lease, set()).discard(command)
        self._mirror.remind(self._clock.now_ms() + RETRY_MS, lease)

    def _unreachable(self, command: Dispatch, reason: str) -> None:
        """Take work on a lost agent as ended, unless it may go on there."""
        lease = command.lease.lease
        if command.verb is not Verb.START and lease.spec.on_loss is OnLoss.KEEP:
            self._retry(lease.id, command.id)
            return
        self._mirror.put_report(
            Report(
                lease.id,
                command.attempt,
                command.rank,
                ReportKind.LOST,
                command.id,
                reason=reason,
                message=f"Agent {command.node} is not there.",
            )
        )
