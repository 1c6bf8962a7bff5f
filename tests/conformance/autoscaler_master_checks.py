"""Checks by rule: one active master whatever is lost, and the right workers back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.conformance.autoscaler_live import LiveWorld
from tests.conformance.autoscaler_scene import Scene

from tenure_core.autoscaling.machines import (
    ApplicationState,
    CommandKind,
    MachineRole,
    MachineState,
    SuspendReason,
)

Script = list[tuple[int, list[Mapping[str, Any]]]]
CAPACITY = (CommandKind.VM_CREATE, CommandKind.VM_RESUME)


def p20(scene: Scene) -> None:
    """At most one master is active at any time, and a crash at any step is only a delay."""
    sent = _recovers(scene, lost=frozenset())
    for place in range(sent):
        _recovers(scene, lost=frozenset({place}))
    _recovers(scene, lost=frozenset(range(sent)))


def _recovers(scene: Scene, *, lost: frozenset[int]) -> int:
    """Run a loss of the master in which the commands at some places are never carried out."""
    live = scene.live()
    master = scene.initial["master"]
    live.mute.add(master)
    count = 0
    sending = [0]

    def dropped(_: Any) -> bool:
        sending[0] += 1
        return sending[0] - 1 in lost

    live.scripted.dropped = dropped
    initial = set(live.active_masters())
    owed: set[str] = set()
    for _ in range(200):
        step = live.tick()
        if not step.decision.state.waiting and not count:
            count = sending[0]
        active = live.active_masters()
        fresh = [name for name in active if name not in initial]
        assert active == fresh[:1] if fresh else set(active) <= initial, active
        records = step.decision.state.records
        owed |= {
            name
            for name in step.sent(CommandKind.VM_SUSPEND)
            if records[name].suspend_reason is SuspendReason.OUTAGE
        }
        owed -= set(step.sent(CommandKind.VM_RESUME))
        owed &= set(live.scripted.machines)
        if fresh and not step.decision.state.waiting and not owed:
            return count
    raise AssertionError(f"the group never came back; lost {sorted(lost)}, owed {owed}")


def serving(live: LiveWorld) -> list[str]:
    return [
        name
        for name, machine in live.scripted.machines.items()
        if machine.role is MachineRole.WORKER
        and machine.state is MachineState.ACTIVE
        and live.apps.get(name) is ApplicationState.RUNNING
    ]


def p21(scene: Scene) -> None:
    """After an outage those whom it suspended are resumed, and nobody else."""
    base = scene.world()
    asleep = [
        name for name, machine in base.machines.items()
        if machine.state is MachineState.SUSPENDED and machine.role is MachineRole.WORKER
    ]  # fmt: skip
    for outage in (set(asleep), set(asleep[::2]), set()):
        world = scene.world()
        records = dict(world.state.records)
        for name in asleep:
            records[name] = replace(
                records[name],
                last=CommandKind.VM_SUSPEND,
                suspend_reason=SuspendReason.OUTAGE if name in outage else SuspendReason.DRAINED,
            )
        world.state = replace(world.state, records=records)
        live = scene.live(world)
        resumed: set[str] = set()
        touched: set[str] = set()
        was_waiting = world.state.waiting
        if not was_waiting:
            live.mute.add(scene.initial["master"])
        for _ in range(100):
            step = live.tick()
            if was_waiting and not step.decision.state.waiting:
                resumed = set(step.sent(CommandKind.VM_RESUME)) & set(asleep)
                break
            touched |= set(step.sent(CommandKind.VM_RESUME))
            was_waiting = step.decision.state.waiting
        assert resumed - touched == outage - touched
