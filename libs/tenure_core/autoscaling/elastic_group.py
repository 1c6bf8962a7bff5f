"""One decision of an elastic group: state and inputs in, commands, next state and reasons out.

The order is the ancestor's: judge every machine, then the master phase, and only with a master in
service the worker phase. The caller stores the next state and the commands in one transaction
before it executes any, so a crash at any point is resumed by deciding again (P20, P22).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tenure_core.autoscaling.group_commands import CommandSheet, MachineReason
from tenure_core.autoscaling.group_config import ElasticGroupConfig
from tenure_core.autoscaling.group_records import GroupState, absorbed, bootstrapped
from tenure_core.autoscaling.heartbeats import HeartbeatHistory, load_ppm, queue_samples
from tenure_core.autoscaling.lifecycle import Verdict, judge
from tenure_core.autoscaling.machines import (
    DESTRUCTIVE,
    Command,
    CommandKind,
    ListedMachine,
    Listing,
    MachineRole,
)
from tenure_core.autoscaling.master_protocol import MasterPlan, Phase, plan_master
from tenure_core.autoscaling.silence import Health, heard, living_history, observer_in_doubt
from tenure_core.autoscaling.worker_scaling import ScaleReport, scale
from tenure_core.autoscaling.worker_view import WorkerView
from tenure_core.timebase import Millis

_SILENT = HeartbeatHistory()


@dataclass(frozen=True, slots=True)
class GroupInputs:
    """What a tick sees: the time, the provider's listing, the heartbeats of each machine.

    `leader_epoch` is the acting leader's fencing token and goes into every command (P23).
    """

    now_ms: Millis
    listing: Listing
    histories: Mapping[str, HeartbeatHistory] = field(default_factory=dict)
    leader_epoch: int = 0


@dataclass(frozen=True, slots=True)
class GroupExplanation:
    """Why a decision is as it is: phase, doubt, every machine, the scale decision (P27)."""

    phase: Phase
    reason: str
    in_doubt: bool = False
    machines: tuple[MachineReason, ...] = ()
    scale: ScaleReport | None = None
    loads_ppm: Mapping[str, int] = field(default_factory=dict)
    foreign: tuple[str, ...] = ()
    adopted: tuple[str, ...] = ()
    forgotten: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupDecision:
    """The next state, the commands in the order to send them (creations first), and why."""

    state: GroupState
    commands: tuple[Command, ...]
    explanation: GroupExplanation


def start(state: GroupState, inputs: GroupInputs, config: ElasticGroupConfig) -> GroupDecision:
    """Return the first decision of a controller that has just started: adopt, and nothing else.

    A missing master is asked for; all other machines are left alone until the first tick. Without
    a complete listing nothing is done at all (P22).
    """
    config.checked()
    if not inputs.listing.complete:
        return _held(state, "INCOMPLETE_LISTING")
    state = bootstrapped(state, inputs.listing, now_ms=inputs.now_ms, config=config)
    seen = absorbed(state, inputs.listing, now_ms=inputs.now_ms, config=config)
    sheet = CommandSheet(state, inputs.now_ms, inputs.leader_epoch, config)
    on_order = any(intent.role is MachineRole.MASTER for intent in state.intents)
    if state.master_id is None and not on_order:
        sheet.create(MachineRole.MASTER, "no_master")
    why = GroupExplanation(Phase.WAITING, "STARTED", foreign=seen.foreign)
    return GroupDecision(sheet.state, sheet.commands(), why)


def decide(state: GroupState, inputs: GroupInputs, config: ElasticGroupConfig) -> GroupDecision:
    """Return the decision of one tick. Deterministic; O(n log n) in the machines listed."""
    if not inputs.listing.complete:
        return _held(state, "INCOMPLETE_LISTING")
    now_ms = inputs.now_ms
    seen = absorbed(state, inputs.listing, now_ms=now_ms, config=config)
    state = _with_epoch_of_master(seen.state, inputs.histories)
    histories = {
        machine.machine_id: living_history(
            state.records[machine.machine_id],
            inputs.histories.get(machine.machine_id, _SILENT),
        )
        for machine in seen.owned
    }
    verdicts = _judged(state, seen.owned, histories, now_ms=now_ms, config=config)
    state, verdicts, in_doubt = _doubted(state, seen.owned, verdicts, config, now_ms=now_ms)
    plan = MasterPlan(Phase.HELD, reason="OBSERVER_IN_DOUBT")
    if not in_doubt or any(verdict.command in DESTRUCTIVE for verdict in verdicts.values()):
        plan = plan_master(state, seen.owned, verdicts)
    sheet = CommandSheet(state, now_ms, inputs.leader_epoch, config)
    sheet.apply_plan(plan)
    report = None
    overrides = dict(plan.overrides)
    if plan.phase is Phase.IN_SERVICE and not in_doubt:
        report = _scaled(state, seen.owned, verdicts, histories, overrides, sheet, config)
    for intent in seen.overdue:
        sheet.look_up(intent)
    for machine in seen.owned:
        sheet.send(machine, verdicts[machine.machine_id], overrides)
    why = GroupExplanation(
        plan.phase, plan.reason, in_doubt, sheet.reasons(), report,
        _loads(seen.owned, verdicts, histories, config),
        seen.foreign, seen.adopted, seen.forgotten,
    )  # fmt: skip
    return GroupDecision(sheet.state, sheet.commands(), why)


def _held(state: GroupState, reason: str) -> GroupDecision:
    return GroupDecision(state, (), GroupExplanation(Phase.HELD, reason))


def _with_epoch_of_master(
    state: GroupState, histories: Mapping[str, HeartbeatHistory]
) -> GroupState:
    """Take over the epoch that an adopted master says it holds, if it is higher than ours."""
    latest = histories.get(state.master_id or "", _SILENT).latest
    if latest is None or latest.master_epoch <= state.master_epoch:
        return state
    return replace(state, master_epoch=latest.master_epoch)


def _judged(
    state: GroupState,
    owned: Sequence[ListedMachine],
    histories: Mapping[str, HeartbeatHistory],
    *,
    now_ms: Millis,
    config: ElasticGroupConfig,
) -> dict[str, Verdict]:
    verdicts = {}
    for machine in owned:
        record, history = state.records[machine.machine_id], histories[machine.machine_id]
        verdicts[machine.machine_id] = judge(
            machine, record, history,
            heard(machine, record, history, now_ms=now_ms, config=config),
            now_ms=now_ms, deadlines=config.deadlines,
        )  # fmt: skip
    return verdicts


def _doubted(
    state: GroupState,
    owned: Sequence[ListedMachine],
    verdicts: dict[str, Verdict],
    config: ElasticGroupConfig,
    *,
    now_ms: Millis,
) -> tuple[GroupState, dict[str, Verdict], bool]:
    """Take destructive commands out of the verdicts while the observer is in doubt (P06)."""
    healths = [
        Health(machine.state, verdicts[machine.machine_id].heard)
        for machine in owned
        if not state.records[machine.machine_id].tombstone
    ]
    if not observer_in_doubt(healths, config.silence):
        return replace(state, doubted_since_ms=None), verdicts, False
    since = now_ms if state.doubted_since_ms is None else state.doubted_since_ms
    allowed = ""
    if now_ms - since > config.silence.halt_max_ms:
        by_role = sorted(owned, key=lambda machine: machine.role is not MachineRole.MASTER)
        doomed = [m for m in by_role if verdicts[m.machine_id].command in DESTRUCTIVE]
        allowed = doomed[0].machine_id if doomed else ""
    held = {
        machine_id: verdict
        if machine_id == allowed or verdict.command not in DESTRUCTIVE
        else replace(
            verdict, command=None, reason="observer_in_doubt", requeue=False, new_attempt=False
        )
        for machine_id, verdict in verdicts.items()
    }
    return replace(state, doubted_since_ms=since), held, True


def _scaled(
    state: GroupState,
    owned: Sequence[ListedMachine],
    verdicts: Mapping[str, Verdict],
    histories: Mapping[str, HeartbeatHistory],
    overrides: dict[str, CommandKind | None],
    sheet: CommandSheet,
    config: ElasticGroupConfig,
) -> ScaleReport:
    workers = [
        WorkerView(
            machine,
            state.records[machine.machine_id],
            verdicts[machine.machine_id],
            histories[machine.machine_id].latest,
        )
        for machine in owned
        if machine.role is MachineRole.WORKER
    ]
    assert state.master_id is not None
    outcome = scale(
        workers,
        queue_samples(
            histories[state.master_id],
            master_epoch=state.master_epoch,
            running_only=config.band.running_samples_only,
        ),
        state.damping,
        open_creates=sum(intent.role is MachineRole.WORKER for intent in state.intents),
        create_allowed=state.backoff.open_at(sheet.now_ms),
        now_ms=sheet.now_ms,
        config=config,
    )
    overrides.update(outcome.overrides)
    sheet.apply_scale(outcome)
    return outcome.report


def _loads(
    owned: Sequence[ListedMachine],
    verdicts: Mapping[str, Verdict],
    histories: Mapping[str, HeartbeatHistory],
    config: ElasticGroupConfig,
) -> dict[str, int]:
    """Return the load of every worker in service with enough heartbeats; reported, not used."""
    loads = {}
    for machine in owned:
        history = histories[machine.machine_id]
        measured = len(history.entries) >= config.band.samples
        serving = verdicts[machine.machine_id].reason == "serving"
        if machine.role is MachineRole.WORKER and serving and measured and history.latest:
            loads[machine.machine_id] = load_ppm(
                history.latest, limit_ppm=config.band.load_limit_ppm
            )
    return loads
