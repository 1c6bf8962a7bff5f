"""Checks by rule what a property demands of one machine, one command, one start, one history."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from tests.conformance.autoscaler_case import Case, ms, settings
from tests.conformance.autoscaler_exact_single import judged, logged_command, merged_ticks, started

from tenure_core.autoscaling.command_log import after_command
from tenure_core.autoscaling.elastic_group import GroupInputs, start
from tenure_core.autoscaling.group_config import ElasticGroupConfig, SilencePolicy
from tenure_core.autoscaling.group_records import GroupState
from tenure_core.autoscaling.lifecycle import Verdict
from tenure_core.autoscaling.machines import (
    DESTRUCTIVE,
    CommandKind,
    ListedMachine,
    Listing,
    MachineRecord,
    MachineRole,
    MachineState,
    SuspendReason,
)
from tenure_core.autoscaling.silence import Health, observer_in_doubt


def _verdict(case: Case, **options: object) -> Verdict:
    config = settings(case.config, case.properties)
    return judged(case, config, **options)[0]  # type: ignore[arg-type]


def _at(case: Case, **changes: object) -> Case:
    return replace(case, input={**case.input, **changes})


def p01_vm(case: Case) -> None:
    """Without the mark there is no command, and the machine is reported."""
    listing = Listing(
        (
            ListedMachine(
                "vm", MachineRole.WORKER, MachineState(case.input["vm_state"]), owned=False
            ),
        )
    )
    config = settings(case.config, case.properties)
    decision = start(GroupState(), GroupInputs(ms(case.input["now"]), listing), config)
    assert decision.explanation.foreign == ("vm",)
    assert {command.machine_id for command in decision.commands} <= {""}


def p05_vm(case: Case) -> None:
    """One missed interval asks a second source; only several and its word delete."""
    config = settings(case.config, case.properties)
    alone = _verdict(case, second_source=False)
    assert alone.command not in DESTRUCTIVE and alone.probe
    assert _verdict(case).command not in DESTRUCTIVE
    several = config.silence.missed_intervals * config.decision_interval_ms // 1000
    later = _at(case, now=case.input["latest_heartbeat"]["received_at"] + several + 1)
    assert _verdict(later, second_source=False).command not in DESTRUCTIVE
    assert _verdict(later).command is CommandKind.VM_DELETE


def p06_vm(case: Case) -> None:
    """The same silence of several machines at once is the observer's fault."""
    silent = Health(MachineState(case.input["vm_state"]), _verdict(case).heard)
    assert observer_in_doubt([silent] * 3, SilencePolicy())


def p09_vm(case: Case) -> None:
    """The state does not last: it is retried, then replaced, within deadlines of its own."""
    config = settings(case.config, case.properties)
    ends = (CommandKind.VM_DELETE, CommandKind.VM_RESUME, CommandKind.VM_SUSPEND)
    first = _verdict(case)
    longest = max(config.deadlines.startup_ms, config.deadlines.suspend_ms) // 1000
    elapsed = case.input["elapsed_since_first_send"]
    if elapsed > longest:
        assert first.command in ends
    if case.input["last_command"] == CommandKind.VM_SUSPEND.value:
        _suspend_has_its_own_deadline(case, config)
    late = _at(case, elapsed_since_first_send=max(elapsed, longest + 1))
    assert _verdict(late).command in ends
    assert _exhausted(late, config).command in ends


def _suspend_has_its_own_deadline(case: Case, config: ElasticGroupConfig) -> None:
    """A suspension is issued again at its own deadline, whatever the start-up time allows."""
    just_late = config.deadlines.suspend_ms // 1000 + 1
    assert _verdict(_at(case, elapsed_since_first_send=just_late)).command in (
        CommandKind.VM_SUSPEND,
        CommandKind.VM_DELETE,
    )
    if case.input["latest_heartbeat"] is not None:
        assert _verdict(case).command in (CommandKind.VM_SUSPEND, CommandKind.VM_DELETE)


def _exhausted(case: Case, config: ElasticGroupConfig) -> Verdict:
    """Return the verdict when no attempts are left."""
    spent = replace(config, deadlines=replace(config.deadlines, attempts_max=1))
    return judged(case, spent)[0]


def p13_vm(case: Case) -> None:
    """Power is cut before work has ended only by the force rule, which hands the work back."""
    config = settings(case.config, case.properties)
    forced = judged(case, config, in_flight=1)[0]
    if forced.command in (CommandKind.VM_DELETE, CommandKind.VM_SUSPEND):
        assert forced.requeue
    gentle = replace(config, deadlines=replace(config.deadlines, force_removal=False))
    assert judged(case, gentle, in_flight=1)[0].command is CommandKind.APP_SHUTDOWN
    in_time = _at(case, elapsed_since_first_send=0)
    assert judged(in_time, config, in_flight=1)[0].command is CommandKind.APP_SHUTDOWN


def p24_vm(case: Case) -> None:
    """An unexpected pair of command and state is adopted or drained, not deleted."""
    verdict = _verdict(case, just_reported=True)
    assert verdict.command in (CommandKind.APP_INIT, CommandKind.APP_SHUTDOWN)


def p22_vm(case: Case) -> None:
    """A machine whose last command is not known is adopted, not removed."""
    known = _at(case, last_command=None, elapsed_since_first_send=0)
    assert _verdict(known).command not in (CommandKind.VM_DELETE, CommandKind.VM_SUSPEND)


def p19_vm(case: Case) -> None:
    """A machine that is deleted already is sent nothing but the deletion."""
    assert _verdict(case).command in (None, CommandKind.VM_DELETE)


def p30_vm(case: Case) -> None:
    """A clock that is ahead or behind by less than the limits removes nothing."""
    assert _verdict(case, second_source=False).command not in DESTRUCTIVE


def p21_log(case: Case) -> None:
    """A suspension stores why."""
    _, after, _ = logged_command(case)
    asleep = after.last is CommandKind.VM_SUSPEND
    assert (after.suspend_reason is not None) == asleep


def p19_log(case: Case) -> None:
    """A deletion needs no entry, no clock and no heartbeat, and leaves a deaf tombstone."""
    _, after, _ = logged_command(case)
    again = after_command(after, CommandKind.VM_DELETE, now_ms=after.since_ms + 1)
    if case.input["send"] == CommandKind.VM_DELETE.value:
        assert after.tombstone and after.running_since_ms is None
        assert again == after


def p24_log(case: Case) -> None:
    """A repeated command keeps its id and first time, whatever is missing beside it."""
    before, after, _ = logged_command(case)
    if case.input["send"] == case.input["previous"]["command"]:
        assert (after.command_id, after.since_ms) == (before.command_id, before.since_ms)
    else:
        assert after.command_id != before.command_id
        assert after.since_ms == ms(case.input["now"])


def p22_start(case: Case) -> None:
    """A start with a stored log goes on from it: commands, times and reasons are as they were."""
    now_ms = ms(case.input["now"])
    stored = {}
    for place, vm in enumerate(case.input["vms"]):
        role = MachineRole.MASTER if vm["type"] == "MASTER" else MachineRole.WORKER
        asleep = vm["state"] == "SUSPENDED"
        stored[vm["id"]] = MachineRecord(
            vm["id"], role,
            CommandKind.VM_SUSPEND if asleep else CommandKind.APP_INIT,
            now_ms - 1000 * (place + 1), sequence=place,
            suspend_reason=SuspendReason.OUTAGE if asleep else None,
        )  # fmt: skip
    decision, _ = started(case, stored=stored)
    kept = {name: replace(record, state=None) for name, record in decision.state.records.items()}
    assert kept == stored
    assert decision.commands == ()


def p01_start(case: Case) -> None:
    """What carries no mark is neither logged nor commanded."""
    decision, _ = started(case)
    foreign = set(decision.explanation.foreign)
    assert not foreign & set(decision.state.records)
    assert not foreign & {command.machine_id for command in decision.commands}


def p20_start(case: Case) -> None:
    """A start knows one master and never asks for another beside it."""
    decision, _ = started(case)
    masters = [vm["id"] for vm in case.input["vms"] if vm["type"] == "MASTER"]
    created = [c for c in decision.commands if c.kind is CommandKind.VM_CREATE]
    assert len(created) == (0 if masters else 1)
    assert not masters or decision.state.master_id in masters


def p08_heartbeats(case: Case) -> None:
    """The buffer is in the sender's order, and the latest is the newest sent."""
    known = {int(sent) for sent in case.input["prior_buffer"]}
    addresses = case.input["known_addresses"]
    for history, arrivals in zip(merged_ticks(case), case.input["ticks"], strict=True):
        known |= {sent for sender, sent in arrivals if sender.rsplit(":", 1)[0] in addresses}
        found = [entry.sequence for entry in history.entries]
        assert found == sorted(known)[-settings(case.config).history_max :]
        assert history.latest is None or history.latest.sequence == max(known)


CHECKS: Mapping[tuple[str, str], Callable[[Case], None]] = {
    ("vm_decision", "P01"): p01_vm,
    ("vm_decision", "P02"): p01_vm,
    ("vm_decision", "P05"): p05_vm,
    ("vm_decision", "P06"): p06_vm,
    ("vm_decision", "P09"): p09_vm,
    ("vm_decision", "P10"): p09_vm,
    ("vm_decision", "P13"): p13_vm,
    ("vm_decision", "P19"): p19_vm,
    ("vm_decision", "P22"): p22_vm,
    ("vm_decision", "P24"): p24_vm,
    ("vm_decision", "P30"): p30_vm,
    ("command_log", "P03"): p19_log,
    ("command_log", "P04"): p19_log,
    ("command_log", "P09"): p24_log,
    ("command_log", "P19"): p19_log,
    ("command_log", "P20"): p24_log,
    ("command_log", "P21"): p21_log,
    ("command_log", "P22"): p24_log,
    ("command_log", "P24"): p24_log,
    ("bootstrap", "P01"): p01_start,
    ("bootstrap", "P02"): p01_start,
    ("bootstrap", "P20"): p20_start,
    ("bootstrap", "P21"): p22_start,
    ("bootstrap", "P22"): p22_start,
    ("heartbeat_merge", "P07"): p08_heartbeats,
    ("heartbeat_merge", "P08"): p08_heartbeats,
    ("heartbeat_merge", "P19"): p08_heartbeats,
    ("heartbeat_merge", "P30"): p08_heartbeats,
}


def check(case: Case) -> None:
    """Assert every property that the case names."""
    assert case.properties, case.required
    for name in case.properties:
        assert (case.kind, name) in CHECKS, f"{case.id}: no check of {name} for a {case.kind}"
        CHECKS[case.kind, name](case)
