"""Checks by rule: whose machines, silence, deadlines, commands, restarts, clocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.conformance.autoscaler_scene import Scene, ages, moved
from tests.conformance.autoscaler_world import Step

from tenure_core.autoscaling.elastic_group import GroupInputs, decide, start
from tenure_core.autoscaling.heartbeats import HeartbeatHistory, merged
from tenure_core.autoscaling.machines import (
    DESTRUCTIVE,
    ApplicationState,
    CommandKind,
    ListedMachine,
    Listing,
    MachineRole,
    MachineState,
)
from tenure_core.autoscaling.master_protocol import Phase

Script = list[tuple[int, list[Mapping[str, Any]]]]
CAPACITY = (CommandKind.VM_CREATE, CommandKind.VM_RESUME)


def p01(scene: Scene) -> None:
    """Only machines with the mark get commands, and none does when no machine carries it."""
    for step in scene.play():
        owned = {machine.machine_id for machine in step.listed if machine.owned}
        assert {c.machine_id for c in step.decision.commands} - {""} <= owned
    world = scene.world()
    world.machines = {n: replace(m, owned=False) for n, m in world.machines.items()}
    step = world.tick(scene.script[0][0])
    assert all(command.machine_id == "" for command in step.decision.commands)


def p02(scene: Scene) -> None:
    """A machine of which nothing is known is reported and changes nothing for the others."""
    for step in scene.play():
        foreign = tuple(m.machine_id for m in step.listed if not m.owned)
        assert step.decision.explanation.foreign == foreign
        without = Listing(tuple(m for m in step.listed if m.owned))
        inputs = GroupInputs(step.now_ms, without, step.histories)
        assert decide(step.before, inputs, scene.config).commands == step.decision.commands
        marked = Listing(tuple(replace(m, owned=True) for m in step.listed))
        adopted = decide(step.before, replace(inputs, listing=marked), scene.config)
        assert set(foreign) <= set(adopted.explanation.adopted)


def p03(scene: Scene) -> None:
    """What leaves the listing is forgotten in that tick, and no count remembers it."""
    for step in scene.play():
        for gone in step.listed:
            kept = Listing(tuple(m for m in step.listed if m is not gone))
            decision = decide(
                step.before, GroupInputs(step.now_ms, kept, step.histories), scene.config
            )
            assert gone.machine_id not in decision.state.records
    p04(scene)


def p04(scene: Scene) -> None:
    """Creations use the room that the listing shows, whatever a counter said."""
    for step in scene.play():
        report = step.decision.explanation.scale
        workers = sum(m.role is MachineRole.WORKER and m.owned for m in step.listed)
        shown = {m.token for m in step.listed}
        open_before = sum(
            i.role is MachineRole.WORKER and i.token not in shown for i in step.before.intents
        )
        if report is None:
            continue
        assert report.known == workers + open_before
        room = scene.config.max_workers - report.known
        if report.evaluated and report.refused_at_limit:
            assert report.created == room


def p05(scene: Scene) -> None:
    """One missed interval removes nothing; several do, once a second source agrees."""
    silent: set[str] = set()
    interval = scene.config.decision_interval_ms
    limit = scene.config.silence.missed_intervals * interval
    for step in scene.play(scene.world(second_source=False)):
        for name, age in ages(step).items():
            if interval < age <= scene.config.silence.give_up_ms:
                silent.add(name)
                assert name not in step.sent(CommandKind.VM_DELETE)
        why = step.decision.explanation
        gone = scene.initial["master"] in silent and why.reason.startswith("silent")
        assert why.phase is not Phase.LOST or not gone
    for name in silent if not scene.initial["waiting_for_master"] else ():
        world = scene.world()
        later = scene.script[-1][0] + limit
        for other, history in world.histories.items():
            if other not in silent:
                world.histories[other] = moved(history, later - scene.script[0][0])
        step = world.tick(later)
        gone = step.sent(CommandKind.VM_DELETE) + step.sent(CommandKind.VM_SUSPEND)
        listed = {m.machine_id for m in step.listed}
        assert name in gone or name not in listed or step.decision.explanation.in_doubt


def p06(scene: Scene) -> None:
    """When everything is silent at once nothing destructive is done, second source or not."""
    world = scene.world()
    speaking = [
        name
        for name, machine in world.machines.items()
        if machine.owned and machine.state is MachineState.ACTIVE and name in world.histories
    ]
    if not speaking:
        return
    for extra in range(scene.config.silence.halt_min - len(speaking)):
        twin, name = speaking[-1], f"twin{extra}"
        world.machines[name] = replace(
            world.machines[twin], machine_id=name, role=MachineRole.WORKER
        )
        world.histories[name] = world.histories[twin]
        record = replace(world.state.records[twin], machine_id=name, role=MachineRole.WORKER)
        world.state = replace(world.state, records={**world.state.records, name: record})
    later = scene.script[-1][0] + 10 * scene.config.decision_interval_ms
    step = world.tick(later)
    assert step.decision.explanation.in_doubt
    assert not {command.kind for command in step.decision.commands} & DESTRUCTIVE


def p08(scene: Scene) -> None:
    """Heartbeats that arrive in another order lead to the same decision."""
    for step in scene.play():
        shuffled = {
            name: merged(
                HeartbeatHistory(), reversed(history.entries), history_max=len(history.entries)
            )
            for name, history in step.histories.items()
        }
        for name, history in step.histories.items():
            assert shuffled[name].entries == history.entries


def p09(scene: Scene) -> None:
    """Every state that a command led to ends: retried or replaced within its deadlines."""
    deadlines, world = scene.config.deadlines, scene.world()
    steps = list(scene.play(world))
    bound = deadlines.startup_ms * deadlines.attempts_max + deadlines.delete_ms
    now_ms, interval = scene.script[-1][0], scene.config.decision_interval_ms
    stuck = {
        machine.machine_id
        for machine in steps[-1].listed
        if machine.owned and _unsettled(machine, steps[-1])
    }
    for step in steps:
        assert not _suspends_the_unfit(step)
    handled = {name for step in steps for name in _handled(step)}
    for tick in range(1, bound // interval + 1):
        for name in world.machines:
            if name in world.histories:
                world.histories[name] = moved(world.histories[name], interval)
        step = world.tick(now_ms + tick * interval)
        assert not _suspends_the_unfit(step)
        handled |= _handled(step)
    assert stuck <= handled, f"nothing ever happens to {stuck - handled}"


def _handled(step: Step) -> set[str]:
    kinds = (CommandKind.VM_DELETE, CommandKind.VM_RESUME, CommandKind.VM_SUSPEND)
    return {name for kind in kinds for name in step.sent(kind)}


def _unsettled(machine: ListedMachine, step: Step) -> bool:
    record = step.before.records.get(machine.machine_id)
    last = record.last if record else None
    if last is None or last is CommandKind.VM_DELETE:
        return False
    if machine.state is MachineState.SUSPENDED:
        return last is not CommandKind.VM_SUSPEND
    return machine.state is not MachineState.ACTIVE


def _suspends_the_unfit(step: Step) -> set[str]:
    unfit = {m.machine_id for m in step.listed if m.state is not MachineState.ACTIVE}
    return unfit & set(step.sent(CommandKind.VM_SUSPEND))


def p22(scene: Scene) -> None:
    """A restart changes no timer and no reason, and an incomplete listing moves nothing."""
    world = scene.world()
    step = next(iter(scene.play(world)))
    inputs = GroupInputs(step.now_ms, Listing(step.listed, complete=False), step.histories)
    for decision in (decide(step.before, inputs, scene.config),
                     start(step.before, inputs, scene.config)):  # fmt: skip
        assert decision.commands == () and decision.state == step.before
    again = start(step.before, replace(inputs, listing=Listing(step.listed)), scene.config)
    for name, record in again.state.records.items():
        old = step.before.records[name]
        assert (record.last, record.since_ms, record.suspend_reason, record.command_id) == (
            old.last, old.since_ms, old.suspend_reason, old.command_id
        )  # fmt: skip


def p23(scene: Scene) -> None:
    """Every command carries the acting leader's epoch."""
    for step in scene.play():
        inputs = GroupInputs(step.now_ms, Listing(step.listed), step.histories, leader_epoch=7)
        assert {c.epoch for c in decide(step.before, inputs, scene.config).commands} <= {7}


def p24(scene: Scene) -> None:
    """An application in error has its recovery time from the first report of the error."""
    steps = list(scene.play())
    for step in steps:
        for name in step.sent(CommandKind.VM_DELETE):
            latest = step.histories.get(name, HeartbeatHistory()).latest
            if latest is None:
                continue
            in_error = latest.app_state is ApplicationState.ERROR
            since = step.histories[name].reported_since_ms
            limit = scene.config.deadlines.transition_ms
            assert not in_error or since is None or step.now_ms - since > limit
    ids: dict[str, tuple[str, int]] = {}
    for step in steps:
        for command in step.decision.commands:
            if command.kind is CommandKind.APP_INIT:
                sent = (command.command_id, command.first_sent_at_ms)
                known = ids.get(command.machine_id, sent)
                assert not command.resent or sent == known
                ids[command.machine_id] = sent


def p27(scene: Scene) -> None:
    """Every listed machine of ours has a reason, and so has the decision."""
    for step in scene.play():
        why = step.decision.explanation
        assert [m.machine_id for m in why.machines] == [
            m.machine_id for m in step.listed if m.owned
        ]
        assert all(machine.reason for machine in why.machines) and why.reason


def p30(scene: Scene) -> None:
    """Moving every receiver's time by the same step changes no command."""
    step = next(iter(scene.play()))
    renumbered = {
        name: replace(
            history,
            entries=tuple(replace(e, sequence=e.sequence * 7) for e in history.entries),
        )
        for name, history in step.histories.items()
    }
    inputs = GroupInputs(step.now_ms, Listing(step.listed), renumbered)
    assert decide(step.before, inputs, scene.config).commands == step.decision.commands
