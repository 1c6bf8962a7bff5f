"""Checks by rule: creations by token, refusals and back-off, deletions that linger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.conformance.autoscaler_live import LiveWorld
from tests.conformance.autoscaler_scene import Scene

from tenure_core.autoscaling.group_records import after_create_refused
from tenure_core.autoscaling.machines import (
    CommandKind,
    MachineRecord,
)
from tenure_core.autoscaling.provider_errors import ProviderErrorClass

Script = list[tuple[int, list[Mapping[str, Any]]]]
CAPACITY = (CommandKind.VM_CREATE, CommandKind.VM_RESUME)


def p17(scene: Scene) -> None:
    """Every creation is stored as an intent with a token of its own before it is sent."""
    tokens: list[str] = []
    for step in scene.play():
        new = [c.token for c in step.decision.commands if c.kind is CommandKind.VM_CREATE]
        assert set(new) <= {intent.token for intent in step.decision.state.intents}
        tokens += new
    assert len(tokens) == len(set(tokens)) and all(tokens)


def p18(scene: Scene) -> None:
    """A refused creation stops nothing else, is not repeated at once, and is repeated later."""
    for cause in ProviderErrorClass:
        world = scene.world()
        first = next(iter(scene.play(world)))
        asked = [c for c in first.decision.commands if c.kind is CommandKind.VM_CREATE]
        if not asked:
            return
        for command in asked:
            world.machines.pop(world.tokens[command.token])
            world.state = after_create_refused(
                world.state, command.token, cause, now_ms=first.now_ms
            )
        live = LiveWorld(world, first.now_ms)
        live.queue_length = 1000
        step = live.tick()
        resting = live.now_ms < world.state.backoff.until_ms
        assert not resting or not step.sent(CommandKind.VM_CREATE)
        assert step.decision.explanation.reason
        live.now_ms = max(world.state.backoff.until_ms, live.now_ms)
        again = [live.tick() for _ in range(20)]
        assert any(s.sent(CommandKind.VM_CREATE) for s in [step, *again]), cause


def p19(scene: Scene) -> None:
    """A deleted machine that lingers is a tombstone: not an error, not spoken to, forgotten."""
    world = scene.world(deletes_linger=True)
    buried = {name for name, machine in world.machines.items() if not machine.owned}
    records = dict(world.state.records)
    for name in buried:
        machine = world.machines[name] = replace(world.machines[name], owned=True)
        records[name] = MachineRecord(
            name, machine.role, CommandKind.VM_DELETE, scene.script[0][0] - 1000
        )
    world.state = replace(world.state, records=records)
    for step in scene.play(world):
        assert not buried & {name for _, name in step.commands}
        buried |= set(step.sent(CommandKind.VM_DELETE))
    if not buried:
        return
    late = scene.script[-1][0] + scene.config.deadlines.delete_ms + 1000
    assert buried <= set(world.tick(late).sent(CommandKind.VM_DELETE))
    for name in buried:
        del world.machines[name]
    assert not buried & set(world.tick(late + 1000).decision.state.records)
