"""Elastic groups: creations by token, refusals, deletions that linger."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.tenure_core.autoscaling.group_builder import (
    CONFIG,
    NOW,
    beat,
    group,
    live,
)

from tenure_core.autoscaling.group_records import after_create_refused
from tenure_core.autoscaling.machines import (
    CommandKind,
    MachineState,
)
from tenure_core.autoscaling.provider_errors import ProviderErrorClass

NOW_MS = NOW * 1000


def test_p17_a_create_is_an_intent_before_it_is_a_machine() -> None:
    """The token is stored with the decision, and found again in the listing."""
    world = group(awake=1, queue=(30, 30, 30))
    step = world.tick(NOW_MS)
    tokens = [c.token for c in step.decision.commands if c.kind is CommandKind.VM_CREATE]
    stored = [intent.token for intent in step.decision.state.intents]
    after = world.tick(NOW_MS + 1000)

    assert tokens == stored and len(set(tokens)) == len(tokens) > 0
    assert not after.before.intents or not after.decision.state.intents
    assert world.state.records["new1"].last is CommandKind.VM_CREATE
    assert world.state.records["new1"].since_ms == NOW_MS


def test_p17_an_unclear_create_is_looked_up_before_another_is_tried() -> None:
    """Without an answer the intent counts, is looked up by token, and only then given up."""
    world = group(awake=1, queue=(16, 16, 16), dropped=lambda c: c.kind is CommandKind.VM_CREATE)
    going = live(world)
    going.queue_length = 16
    steps = [going.tick() for _ in range(16)]
    created = [place for place, s in enumerate(steps) for _ in s.sent(CommandKind.VM_CREATE)]
    looked = [place for place, s in enumerate(steps) if s.sent(CommandKind.LOOK_UP)]

    assert created[0] < looked[0] < created[1]
    tokens = [c.token for s in steps for c in s.decision.commands
              if c.kind is CommandKind.VM_CREATE]  # fmt: skip
    assert len(set(tokens)) == len(tokens)


@pytest.mark.parametrize("cause", list(ProviderErrorClass))
def test_p18_a_refusal_backs_off_by_its_class_and_stops_nothing_else(
    cause: ProviderErrorClass,
) -> None:
    """Creations rest, growing with each refusal; other machines are still served."""
    world = group(awake=1, queue=(30, 30, 30))
    step = world.tick(NOW_MS)
    token = step.decision.commands[0].token
    state = after_create_refused(step.decision.state, token, cause, now_ms=NOW_MS)
    again = after_create_refused(state, token, cause, now_ms=state.backoff.until_ms)
    first, second = state.backoff.until_ms - NOW_MS, again.backoff.until_ms - state.backoff.until_ms
    world.state = state
    del world.machines[world.tokens[token]]
    held = world.tick(NOW_MS + 1000)

    assert second == 2 * first
    assert not held.sent(CommandKind.VM_CREATE)
    assert held.decision.explanation.machines
    assert (token in {i.token for i in state.intents}) is (cause is ProviderErrorClass.UNCLEAR)


def test_p19_a_lingering_deletion_is_repeated_late_and_then_forgotten() -> None:
    """No error, no other command, heartbeats of the dead ignored, one re-issue a deadline."""
    world = group(awake=2, deletes_linger=True)
    world.machines["w2"] = replace(world.machines["w2"], state=MachineState.FAILED)
    first = world.tick(NOW_MS)
    world.hear("w2", beat())
    second = world.tick(NOW_MS + 10_000)
    late = world.tick(NOW_MS + CONFIG.deadlines.delete_ms + 1000)
    del world.machines["w2"]
    world.tick(NOW_MS + CONFIG.deadlines.delete_ms + 2000)

    assert first.sent(CommandKind.VM_DELETE) == ["w2"]
    assert "w2" not in {c.machine_id for c in second.decision.commands}
    assert "w2" in late.sent(CommandKind.VM_DELETE)
    assert "w2" not in world.state.records
