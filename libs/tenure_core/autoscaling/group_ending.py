"""The end of an elastic group: workers end their work and go, and the master goes last.

Decided while the group may have no workers at all. What is asked for and not yet listed is let
go; should it still come, it is deleted when it is listed.
"""

from __future__ import annotations

from dataclasses import replace

from tenure_core.autoscaling.elastic_group import GroupDecision, GroupExplanation, GroupInputs
from tenure_core.autoscaling.group_commands import CommandSheet
from tenure_core.autoscaling.group_config import ElasticGroupConfig
from tenure_core.autoscaling.group_records import GroupState, absorbed
from tenure_core.autoscaling.heartbeats import HeartbeatHistory
from tenure_core.autoscaling.lifecycle import Verdict, judge
from tenure_core.autoscaling.machines import (
    CommandKind,
    ListedMachine,
    MachineRecord,
    MachineRole,
    MachineState,
)
from tenure_core.autoscaling.master_protocol import Phase
from tenure_core.autoscaling.silence import Heard, heard, living_history
from tenure_core.autoscaling.worker_scaling import could_miss_booking

_SILENT = HeartbeatHistory()
_AT_WORK = frozenset(
    {Heard.INIT, Heard.BUSY, Heard.RUNNING, Heard.SHUTTING_DOWN, Heard.SUSPECT, Heard.ERROR}
)


def decide_end(state: GroupState, inputs: GroupInputs, config: ElasticGroupConfig) -> GroupDecision:
    """Return the next step of the group's end; none is left once the listing has no machine."""
    if not inputs.listing.complete:
        return GroupDecision(state, (), GroupExplanation(Phase.HELD, "INCOMPLETE_LISTING"))
    now_ms = inputs.now_ms
    seen = absorbed(
        replace(state, intents=(), waiting=True), inputs.listing, now_ms=now_ms, config=config
    )
    state = seen.state
    sheet = CommandSheet(state, now_ms, inputs.leader_epoch, config)
    workers = sum(machine.role is MachineRole.WORKER for machine in seen.owned)
    for machine in seen.owned:
        record = state.records[machine.machine_id]
        history = living_history(record, inputs.histories.get(machine.machine_id, _SILENT))
        said = heard(machine, record, history, now_ms=now_ms, config=config)
        verdict = judge(machine, record, history, said, now_ms=now_ms, deadlines=config.deadlines)
        if not record.tombstone:
            verdict = _ending(machine, record, verdict, config, workers=workers)
        sheet.send(machine, verdict, {})
    why = GroupExplanation(Phase.WAITING, "ENDING", machines=sheet.reasons(), foreign=seen.foreign)
    return GroupDecision(sheet.state, sheet.commands(), why)


def _ending(
    machine: ListedMachine,
    record: MachineRecord,
    verdict: Verdict,
    config: ElasticGroupConfig,
    *,
    workers: int,
) -> Verdict:
    command: CommandKind | None = CommandKind.VM_DELETE
    draining = record.last is CommandKind.APP_SHUTDOWN
    if could_miss_booking(machine, config) or (machine.role is MachineRole.MASTER and workers):
        command = None
    elif (
        machine.role is MachineRole.WORKER
        and machine.state is MachineState.ACTIVE
        and verdict.heard in _AT_WORK
        and not (draining and verdict.late)
    ):
        command = CommandKind.APP_SHUTDOWN
    return Verdict(machine.machine_id, command, "ending", verdict.heard)
