"""The commands of one tick as they are written down: ids, epochs, records, reasons.

Collects what the phases want, keeps the records in step with what is sent, and refuses nothing:
what may be sent was decided before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tenure_core.autoscaling.command_log import after_command
from tenure_core.autoscaling.group_config import ElasticGroupConfig
from tenure_core.autoscaling.group_records import GroupState
from tenure_core.autoscaling.lifecycle import Verdict
from tenure_core.autoscaling.machines import (
    Command,
    CommandKind,
    CreateIntent,
    ListedMachine,
    MachineRole,
    MachineState,
    SuspendReason,
)
from tenure_core.autoscaling.master_protocol import MasterPlan, Phase
from tenure_core.autoscaling.silence import Heard
from tenure_core.autoscaling.worker_scaling import ScaleOutcome
from tenure_core.timebase import Millis


@dataclass(frozen=True, slots=True)
class MachineReason:
    """What was seen of one machine and what was made of it."""

    machine_id: str
    state: MachineState
    heard: Heard
    last: CommandKind | None
    command: CommandKind | None
    reason: str


class CommandSheet:
    """Gathers the commands of one tick and the state that goes with them; lives for one tick."""

    def __init__(
        self, state: GroupState, now_ms: Millis, leader_epoch: int, config: ElasticGroupConfig
    ) -> None:
        self._state = state
        self._records = dict(state.records)
        self.now_ms = now_ms
        self._leader_epoch = leader_epoch
        self._config = config
        self._creates: list[Command] = []
        self._others: list[Command] = []
        self._reasons: list[MachineReason] = []
        self._outage = False

    @property
    def state(self) -> GroupState:
        """Return the state that goes with the commands gathered so far."""
        return replace(self._state, records=self._records)

    def commands(self) -> tuple[Command, ...]:
        """Return the commands in sending order: creations, then by listing."""
        return (*self._creates, *self._others)

    def reasons(self) -> tuple[MachineReason, ...]:
        """Return what was made of each machine, in listing order."""
        return tuple(self._reasons)

    def create(self, role: MachineRole, reason: str) -> None:
        """Ask for a machine, unless the provider is being left alone; the intent is stored."""
        if not self._state.backoff.open_at(self.now_ms):
            return
        count = self._state.token_count + 1
        token = f"{self._config.group}-{count}"
        epoch = self._state.master_epoch
        intent = CreateIntent(token, role, self.now_ms, epoch)
        self._state = replace(
            self._state, token_count=count, intents=(*self._state.intents, intent)
        )
        self._creates.append(
            Command(
                CommandKind.VM_CREATE, role, command_id=token, token=token,
                epoch=self._leader_epoch, master_epoch=epoch, first_sent_at_ms=self.now_ms,
                reason=reason,
            )
        )  # fmt: skip

    def look_up(self, intent: CreateIntent) -> None:
        """Ask whether a creation without an answer was carried out, before any other (P17)."""
        self._others.append(
            Command(
                CommandKind.LOOK_UP, intent.role, command_id=f"{intent.token}?",
                token=intent.token, epoch=self._leader_epoch, first_sent_at_ms=self.now_ms,
                reason="create_unseen",
            )
        )  # fmt: skip

    def apply_plan(self, plan: MasterPlan) -> None:
        """Take over the master phase: its waiting flag, epoch, fences and creations."""
        if plan.phase is Phase.LOST:
            self._outage = True
            self._state = replace(
                self._state, waiting=True, master_id=None,
                master_epoch=self._state.master_epoch + 1,
            )  # fmt: skip
        if plan.phase is Phase.RETURNED:
            self._state = replace(self._state, waiting=False)
        for machine_id in plan.fences:
            self._append(CommandKind.FENCE_MASTER, MachineRole.MASTER, machine_id, "older_master")
        if plan.create_master:
            self.create(MachineRole.MASTER, plan.reason)
        if plan.create_worker:
            self.create(MachineRole.WORKER, "no_worker")

    def apply_scale(self, outcome: ScaleOutcome) -> None:
        """Take over a scale decision: its damping and its creations."""
        self._state = replace(self._state, damping=outcome.damping)
        for _ in range(outcome.creates):
            self.create(MachineRole.WORKER, "scale_out")

    def send(
        self,
        machine: ListedMachine,
        verdict: Verdict,
        overrides: Mapping[str, CommandKind | None],
    ) -> None:
        """Write down what `machine` is sent: the override, or else its own verdict."""
        kind = overrides.get(machine.machine_id, verdict.command)
        own = kind is verdict.command
        record = self._records[machine.machine_id]
        reason = verdict.reason if own else "overridden"
        self._reasons.append(
            MachineReason(
                machine.machine_id, machine.state, verdict.heard, record.last, kind, reason
            )
        )
        if verdict.probe:
            self._append(CommandKind.PROBE, machine.role, machine.machine_id, verdict.reason)
        if kind is None:
            return
        if own and verdict.requeue and machine.role is MachineRole.WORKER:
            self._append(CommandKind.REQUEUE_WORK, machine.role, machine.machine_id, reason)
        drained = record.last is CommandKind.APP_SHUTDOWN
        changed = after_command(
            record, kind, now_ms=self.now_ms,
            new_attempt=own and verdict.new_attempt,
            reason=SuspendReason.OUTAGE if self._outage and not drained else None,
        )  # fmt: skip
        self._records[machine.machine_id] = changed
        self._others.append(
            Command(
                kind, machine.role, machine.machine_id, changed.command_id,
                epoch=self._leader_epoch, master_epoch=self._state.master_epoch,
                first_sent_at_ms=changed.since_ms, resent=changed is record, reason=reason,
            )
        )  # fmt: skip

    def _append(self, kind: CommandKind, role: MachineRole, machine_id: str, reason: str) -> None:
        self._others.append(
            Command(
                kind, role, machine_id, f"{machine_id}!{kind.value}",
                epoch=self._leader_epoch, master_epoch=self._state.master_epoch,
                first_sent_at_ms=self.now_ms, reason=reason,
            )
        )  # fmt: skip
