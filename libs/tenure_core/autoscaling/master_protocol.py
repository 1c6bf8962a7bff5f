"""The loss and the return of an elastic group's master.

At most one master is ever active: every new one gets a higher epoch, and is initialised only when
each older one has left the listing or passed its fence (P20). Every step follows from the stored
state, so deciding again after a crash resumes the protocol where it stood. Workers suspended for
the outage are resumed afterwards, those asleep for another reason are not (P21).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from tenure_core.autoscaling.group_records import GroupState
from tenure_core.autoscaling.lifecycle import Verdict
from tenure_core.autoscaling.machines import (
    CommandKind,
    ListedMachine,
    MachineRecord,
    MachineRole,
    MachineState,
    SuspendReason,
)
from tenure_core.autoscaling.silence import Heard


class Phase(StrEnum):
    """Where a group stands; only IN_SERVICE lets workers be judged and scaled."""

    HELD = "HELD"
    MISSING = "MISSING"
    LOST = "LOST"
    WAITING = "WAITING"
    RETURNED = "RETURNED"
    IN_SERVICE = "IN_SERVICE"


@dataclass(frozen=True, slots=True)
class MasterPlan:
    """What the master phase wants: commands by machine (None: say nothing), and creations.

    `fences` are older masters whose agents must be told the present epoch until they are gone.
    """

    phase: Phase
    overrides: Mapping[str, CommandKind | None] = field(default_factory=dict)
    create_master: bool = False
    create_worker: bool = False
    fences: tuple[str, ...] = ()
    reason: str = ""


def plan_master(
    state: GroupState, owned: Sequence[ListedMachine], verdicts: Mapping[str, Verdict]
) -> MasterPlan:
    """Return the master phase of a tick over the owned machines in listing order."""
    older = [
        machine
        for machine in owned
        if machine.role is MachineRole.MASTER and machine.machine_id != state.master_id
    ]
    fences = tuple(m.machine_id for m in older if not is_fenced(m))
    overrides: dict[str, CommandKind | None] = {
        machine.machine_id: CommandKind.VM_DELETE
        for machine in older
        if not state.records[machine.machine_id].tombstone
    }
    master = next((m for m in owned if m.machine_id == state.master_id), None)
    if master is None:
        return _without_master(state, owned, verdicts, overrides, fences)
    verdict = verdicts[master.machine_id]
    if verdict.command is CommandKind.VM_DELETE:
        overrides[master.machine_id] = CommandKind.VM_DELETE
        _suspend_for_outage(state, owned, overrides)
        fences = fences if is_fenced(master) else (*fences, master.machine_id)
        return MasterPlan(
            Phase.LOST, overrides, create_master=True, fences=fences, reason=verdict.reason
        )
    if verdict.command is CommandKind.APP_INIT and fences:
        overrides[master.machine_id] = None
    if not state.waiting:
        return MasterPlan(Phase.IN_SERVICE, overrides, fences=fences, reason=verdict.reason)
    _rest(state, owned, verdicts, overrides)
    runs = master.state is MachineState.ACTIVE and verdict.heard is Heard.RUNNING
    if not runs or fences:
        return MasterPlan(Phase.WAITING, overrides, fences=fences, reason=verdict.reason)
    for record in _workers(state, owned):
        if record.last is CommandKind.VM_SUSPEND and record.suspend_reason is SuspendReason.OUTAGE:
            overrides[record.machine_id] = CommandKind.VM_RESUME
    none_left = all(record.tombstone for record in _workers(state, owned))
    asked = any(intent.role is MachineRole.WORKER for intent in state.intents)
    return MasterPlan(
        Phase.RETURNED, overrides, create_worker=none_left and not asked, reason="master_runs"
    )


def is_fenced(machine: ListedMachine) -> bool:
    """Say whether nothing of an older master can run: it is gone, or the registry fenced it."""
    return machine.fenced or machine.state is MachineState.DONE


def _without_master(
    state: GroupState,
    owned: Sequence[ListedMachine],
    verdicts: Mapping[str, Verdict],
    overrides: dict[str, CommandKind | None],
    fences: tuple[str, ...],
) -> MasterPlan:
    """Wait for a master that is on order; treat one that vanished in service as lost."""
    on_order = any(intent.role is MachineRole.MASTER for intent in state.intents)
    if state.waiting:
        _rest(state, owned, verdicts, overrides)
        return MasterPlan(
            Phase.MISSING, overrides, create_master=not on_order, fences=fences,
            reason="master_on_order" if on_order else "no_master",
        )  # fmt: skip
    _suspend_for_outage(state, owned, overrides)
    return MasterPlan(
        Phase.LOST, overrides, create_master=not on_order, fences=fences,
        reason="master_vanished",
    )  # fmt: skip


def _workers(state: GroupState, owned: Sequence[ListedMachine]) -> list[MachineRecord]:
    return [
        state.records[machine.machine_id] for machine in owned if machine.role is MachineRole.WORKER
    ]


def _suspend_for_outage(
    state: GroupState,
    owned: Sequence[ListedMachine],
    overrides: dict[str, CommandKind | None],
) -> None:
    """Stop the workers that run, also those in error or silent: the outage may be the cause.

    They are judged anew once they are resumed; what cannot be suspended keeps its own verdict.
    """
    for machine in owned:
        if machine.role is MachineRole.WORKER and machine.state is MachineState.ACTIVE:
            last = state.records[machine.machine_id].last
            if last not in (CommandKind.VM_SUSPEND, CommandKind.VM_DELETE):
                overrides[machine.machine_id] = CommandKind.VM_SUSPEND


def _rest(
    state: GroupState,
    owned: Sequence[ListedMachine],
    verdicts: Mapping[str, Verdict],
    overrides: dict[str, CommandKind | None],
) -> None:
    """While a master is awaited workers get nothing but repetitions of what was sent before."""
    for machine in owned:
        if machine.role is MachineRole.WORKER:
            last = state.records[machine.machine_id].last
            repeated = verdicts[machine.machine_id].command is last and last in (
                CommandKind.VM_SUSPEND,
                CommandKind.VM_DELETE,
            )
            if not repeated:
                overrides[machine.machine_id] = None
