"""The loss of a master: one active at a time, resumable at every step, workers back."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.conformance.autoscaler_live import LiveWorld
from tests.unit.tenure_core.autoscaling.group_builder import NOW, group, live

from tenure_core.autoscaling.machines import (
    ApplicationState,
    CommandKind,
    ListedMachine,
    MachineRole,
    MachineState,
)
from tenure_core.autoscaling.master_protocol import Phase

NOW_MS = NOW * 1000


def lose_master(
    *, awake: int = 2, asleep: int = 1, linger: int = 3, how: str = "silent"
) -> LiveWorld:
    """Return a live group whose master is lost, but goes on running until it is gone."""
    world = group(awake=awake, asleep=asleep, queue=(14, 14, 14))
    if how == "failed":
        world.machines["m"] = replace(world.machines["m"], state=MachineState.FAILED)
    going = live(world, linger=linger)
    going.queue_length = 14
    going.mute.add("m")
    return going


def until_back(going: LiveWorld, *, ticks: int = 120) -> dict[str, set[str]]:
    """Run until a new master serves; assert one active master throughout; return what was sent."""
    sent: dict[str, set[str]] = {}
    for _ in range(ticks):
        step = going.tick()
        active = going.active_masters()
        assert len(active) <= 1, active
        for kind, target in step.commands:
            sent.setdefault(kind, set()).add(target)
        if active and active != ["m"] and not step.decision.state.waiting:
            return sent
    raise AssertionError("the group never came back")


@pytest.mark.parametrize("how", ["silent", "failed"])
@pytest.mark.parametrize("linger", [1, 4, 40])
def test_p20_the_new_master_waits_until_the_old_is_gone(how: str, linger: int) -> None:
    """However long the provider takes to delete, two masters are never active together."""
    sent = until_back(lose_master(linger=linger, how=how))

    assert sent["VM_DELETE"] >= {"m"}
    assert sent["VM_SUSPEND"] == {"w1", "w2"}


def test_p20_a_passed_fence_is_enough() -> None:
    """A provider that never deletes does not block for ever once the registry has fenced."""
    going = lose_master(linger=10_000)
    for _ in range(8):
        going.tick()
    assert going.scripted.state.waiting
    going.scripted.machines["m"] = replace(going.scripted.machines["m"], fenced=True)
    going.apps["m"] = ApplicationState.ERROR

    until_back(going)


def test_p20_an_unfenced_older_master_is_told_the_epoch() -> None:
    """Agents persist the highest epoch; the old master learns that it is no longer one."""
    going = lose_master(linger=10_000)
    steps = [going.tick() for _ in range(8)]
    fences = [c for s in steps for c in s.decision.commands if c.kind is CommandKind.FENCE_MASTER]

    assert {(c.machine_id, c.master_epoch) for c in fences} == {("m", 2)}
    assert not any("APP_INIT" in dict(s.commands) for s in steps if s is not steps[0])


def test_p20_the_protocol_resumes_after_a_crash_at_every_step() -> None:
    """Each command lost alone, each suffix lost, and all lost: always one master, always back."""
    total = sum(len(going.tick().decision.commands) for going in [lose_master()] for _ in range(12))
    cuts = [{place} for place in range(total)]
    cuts += [set(range(place, total)) for place in range(total)]
    for lost in cuts:
        going = lose_master()
        count = iter(range(10**6))
        going.scripted.dropped = lambda _, lost=lost, count=count: next(count) in lost
        sent = until_back(going)
        assert "s1" not in sent.get("VM_RESUME", set())


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 4), st.integers(1, 5), st.sets(st.integers(0, 40), max_size=25))
def test_p20_one_active_master_whatever_is_lost(awake: int, linger: int, lost: set[int]) -> None:
    """Random losses of commands delay the return and break nothing."""
    going = lose_master(awake=awake, linger=linger)
    count = iter(range(10**6))
    going.scripted.dropped = lambda _: next(count) in lost

    until_back(going)


def test_p20_a_second_master_is_removed_and_never_initialised() -> None:
    """Only the machine that holds the present epoch is a master."""
    world = group()
    world.machines["old"] = ListedMachine("old", MachineRole.MASTER, MachineState.ACTIVE)
    going = live(world)
    sent = [going.tick() for _ in range(4)]

    assert any("old" in step.sent(CommandKind.VM_DELETE) for step in sent)
    assert not any("old" in step.sent(CommandKind.APP_INIT) for step in sent)


def test_p21_only_those_suspended_for_the_outage_are_resumed() -> None:
    """s1 slept on purpose before the outage and sleeps on."""
    going = lose_master()
    sent = until_back(going)
    resumed = sent.get("VM_RESUME", set()) | set(going.tick().sent(CommandKind.VM_RESUME))

    assert resumed == {"w1", "w2"}


def test_a_master_that_vanishes_is_a_loss_like_any_other() -> None:
    """The ancestor stopped when its master left the listing."""
    world = group()
    del world.machines["m"]
    step = world.tick(NOW_MS)

    assert step.decision.explanation.phase is Phase.LOST
    assert step.commands[0] == ("VM_CREATE", "MASTER")
    assert step.sent(CommandKind.VM_SUSPEND) == ["w1", "w2"]


def test_a_lost_order_for_a_master_is_given_again() -> None:
    """A creation that never shows is looked up, given up, and asked for under a new token."""
    going = lose_master()
    going.scripted.dropped = lambda c: c.kind is CommandKind.VM_CREATE and c.token == "group-1"
    until_back(going)

    assert going.scripted.state.token_count >= 2
