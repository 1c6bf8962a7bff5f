"""Elastic groups: whose machines, which commands, what is remembered, who is in doubt."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.conformance.autoscaler_live import LiveWorld
from tests.unit.tenure_core.autoscaling.group_builder import (
    CONFIG,
    NOW,
    group,
    with_config,
)

from tenure_core.autoscaling.command_log import after_command, run_time_ms
from tenure_core.autoscaling.elastic_group import GroupInputs, decide, start
from tenure_core.autoscaling.group_config import DrainBand, ElasticGroupConfig, SilencePolicy
from tenure_core.autoscaling.group_records import GroupState
from tenure_core.autoscaling.machines import (
    DESTRUCTIVE,
    CommandKind,
    ListedMachine,
    Listing,
    MachineRecord,
    MachineRole,
    MachineState,
    Probe,
    SuspendReason,
)
from tenure_core.autoscaling.master_protocol import Phase
from tenure_core.errors import Invalid

NOW_MS = NOW * 1000


@given(
    st.lists(st.tuples(st.sampled_from(MachineState), st.booleans()), min_size=1, max_size=6),
    st.integers(0, 1000),
)
def test_p01_no_command_for_a_machine_without_the_mark(
    found: list[tuple[MachineState, bool]], age: int
) -> None:
    """Whatever state a foreign machine is in, and for however long, it is left alone."""
    world = group()
    for place, (state, owned) in enumerate(found):
        name = f"x{place}"
        world.machines[name] = ListedMachine(name, MachineRole.WORKER, state, owned=owned)
    for tick in range(3):
        step = world.tick(NOW_MS + tick * age * 1000)
        owned_ids = {m.machine_id for m in step.listed if m.owned}
        assert {c.machine_id for c in step.decision.commands} - {""} <= owned_ids


def test_p02_an_unknown_machine_is_reported_and_adopted_only_with_the_mark() -> None:
    """It is never an error: the mark is the explicit rule for adoption."""
    world = group()
    world.machines["x"] = ListedMachine("x", MachineRole.WORKER, MachineState.ACTIVE, owned=False)
    world.machines["y"] = ListedMachine("y", MachineRole.WORKER, MachineState.ACTIVE)
    step = world.tick(NOW_MS)

    assert step.decision.explanation.foreign == ("x",)
    assert step.decision.explanation.adopted == ("y",)
    assert world.state.records["y"].last is None


def test_p03_a_vanished_machine_is_forgotten_in_the_same_tick() -> None:
    """Neither a count nor a record nor an error remains."""
    world = group(awake=3)
    del world.machines["w2"]
    step = world.tick(NOW_MS)

    assert step.decision.explanation.forgotten == ("w2",)
    assert set(world.state.records) == {"m", "w1", "w3"}


@given(st.integers(1, 6), st.integers(0, 6), st.integers(1, 12))
def test_p04_counts_come_from_listing_and_intents(awake: int, asleep: int, cap: int) -> None:
    """The room for creations is what the listing leaves, in every tick anew."""
    config = replace(CONFIG, max_workers=cap)
    world = group(awake=awake, asleep=asleep, queue=(900, 900, 900), config=config)
    report = world.tick(NOW_MS).decision.explanation.scale

    assert report is not None
    assert report.known == awake + asleep
    assert report.created <= max(0, cap - awake - asleep)


def test_p05_silence_alone_removes_nothing() -> None:
    """Several missed intervals ask for a probe; only its word removes."""
    world = group(awake=2, second_source=False)
    world.histories["w2"] = replace(
        world.histories["w2"],
        entries=tuple(
            replace(e, received_at_ms=NOW_MS - 60_000) for e in world.histories["w2"].entries
        ),
    )
    step = world.tick(NOW_MS)
    world.machines["w2"] = replace(world.machines["w2"], probe=Probe.DEAD)
    convicted = world.tick(NOW_MS + 1000)

    assert step.sent(CommandKind.PROBE) == ["w2"]
    assert not step.sent(CommandKind.VM_DELETE)
    assert convicted.sent(CommandKind.VM_DELETE) == ["w2"]
    assert convicted.sent(CommandKind.REQUEUE_WORK) == ["w2"]


@given(st.integers(3, 12))
def test_p06_a_silent_fleet_stops_destructive_commands(awake: int) -> None:
    """If all go silent at once the observer is to blame, even when probes fail too."""
    world = group(awake=awake, config=replace(CONFIG, max_workers=20))
    step = world.tick(NOW_MS + 600_000)

    assert step.decision.explanation.in_doubt
    assert step.decision.explanation.phase is Phase.HELD
    assert not {command.kind for command in step.decision.commands} & DESTRUCTIVE


def test_p06_the_halt_ends_in_a_trickle() -> None:
    """A true mass loss is cleared one machine a tick after a while: nothing blocks for ever."""
    config = with_config(CONFIG, "silence", halt_max_ms=60_000)
    world = group(awake=6, config=config)
    world.tick(NOW_MS + 600_000)
    step = world.tick(NOW_MS + 661_000)

    assert [kind for kind, _ in step.commands].count("VM_DELETE") == 1
    assert step.decision.explanation.in_doubt


def test_p22_nothing_is_commanded_before_a_complete_listing() -> None:
    """An empty page is not an empty cloud: state and machines stay as they are."""
    world = group(queue=(90, 90, 90))
    inputs = GroupInputs(NOW_MS, Listing((), complete=False), world.histories)

    for decision in (decide(world.state, inputs, CONFIG), start(world.state, inputs, CONFIG)):
        assert (decision.commands, decision.state) == ((), world.state)


def test_p22_a_restart_keeps_commands_timers_and_reasons() -> None:
    """A stored log is gone on with: deadlines do not start anew, sleepers keep their reason."""
    world = group(awake=1, asleep=1)
    inputs = GroupInputs(NOW_MS, Listing(tuple(world.machines.values())), world.histories)
    decision = start(world.state, inputs, CONFIG)

    assert decision.commands == ()
    assert {n: replace(r, state=None) for n, r in decision.state.records.items()} == dict(
        world.state.records
    )


def test_p23_every_command_carries_the_leaders_epoch() -> None:
    """Whoever acts for an older leader is refused by the number in the command."""
    world = group(awake=1, queue=(90, 90, 90))
    inputs = GroupInputs(
        NOW_MS, Listing(tuple(world.machines.values())), world.histories, leader_epoch=7
    )
    commands = decide(world.state, inputs, CONFIG).commands

    assert commands and {command.epoch for command in commands} == {7}


def test_p24_a_resend_keeps_id_and_first_time_and_another_command_does_not() -> None:
    """The agent can tell a repetition; a deadline counts from the first sending."""
    record = MachineRecord("w", MachineRole.WORKER, CommandKind.APP_INIT, 5, sequence=3)
    resent = after_command(record, CommandKind.APP_INIT, now_ms=99)
    retried = after_command(record, CommandKind.APP_INIT, now_ms=99, new_attempt=True)
    other = after_command(record, CommandKind.APP_SHUTDOWN, now_ms=99)

    assert resent == record
    assert (retried.since_ms, retried.attempt, retried.command_id) == (99, 2, "w#4")
    assert (other.since_ms, other.attempt, other.command_id) == (99, 1, "w#4")


def test_the_run_clock_counts_from_creation_or_resume_to_sleep() -> None:
    """It is what a machine costs; no order of commands makes it fail."""
    record = MachineRecord("w", MachineRole.WORKER, None, 0, running_since_ms=0)
    asleep = after_command(record, CommandKind.VM_SUSPEND, now_ms=50)
    twice = after_command(asleep, CommandKind.VM_SUSPEND, now_ms=60, new_attempt=True)
    awake = after_command(twice, CommandKind.VM_RESUME, now_ms=100)

    assert run_time_ms(record, now_ms=50) == 50
    assert run_time_ms(asleep, now_ms=90) == run_time_ms(twice, now_ms=90) == 0
    assert run_time_ms(awake, now_ms=130) == 30


def test_p27_every_decision_says_what_it_saw_and_why() -> None:
    """Inputs, rule and result of each machine and of the size are in the explanation."""
    world = group(awake=2, asleep=1, queue=(30, 30, 30))
    why = world.tick(NOW_MS).decision.explanation

    assert [(m.machine_id, m.reason) for m in why.machines] == [
        ("m", "serving"), ("w1", "serving"), ("w2", "serving"), ("s1", "overridden"),
    ]  # fmt: skip
    assert why.scale is not None and why.scale.measurement is not None
    assert (why.scale.measurement.drain_ms, why.scale.aimed_at) == (45_000, 4)
    assert (why.scale.resumed, why.scale.created) == (1, 1)


@pytest.mark.parametrize(
    "config",
    [
        replace(CONFIG, max_workers=0),
        replace(CONFIG, min_workers=9),
        replace(CONFIG, band=DrainBand(lower_ms=30_000, upper_ms=10_000)),
        replace(CONFIG, heartbeat_interval_ms=10_000),
        replace(CONFIG, silence=SilencePolicy(missed_intervals=0)),
    ],
    ids=["no-workers", "min-over-max", "band-reversed", "slow-heartbeats", "no-patience"],
)
def test_a_configuration_that_cannot_work_is_refused_at_start(config: ElasticGroupConfig) -> None:
    """The ancestor shut everything down on such settings; here nothing starts."""
    inputs = GroupInputs(NOW_MS, Listing(()))

    with pytest.raises(Invalid) as caught:
        start(GroupState(), inputs, config)

    assert caught.value.reason == "INVALID_GROUP_CONFIG"


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 3), st.integers(0, 3), st.integers(0, 60),
    st.lists(st.sampled_from(MachineState), max_size=3), st.sets(st.integers(0, 60), max_size=30),
)  # fmt: skip
def test_the_same_inputs_give_the_same_decision_and_never_an_error(
    awake: int, asleep: int, queue: int, odd: list[MachineState], lost: set[int]
) -> None:
    """Any mixture of states, and any commands lost on the way, leaves a controller that decides."""

    def run() -> list[tuple[tuple[str, str], ...]]:
        world = group(awake=awake, asleep=asleep, queue=(queue,) * 3)
        for place, state in enumerate(odd):
            name = f"o{place}"
            world.machines[name] = ListedMachine(name, MachineRole.WORKER, state)
        sent = [0]

        def dropped(_: object) -> bool:
            sent[0] += 1
            return sent[0] in lost

        world.dropped = dropped
        going = LiveWorld(world, NOW_MS)
        going.queue_length = queue
        return [tuple(going.tick().commands) for _ in range(12)]

    assert run() == run()


def test_p21_the_reason_of_a_sleep_is_stored_with_the_command() -> None:
    """A worker on its way to sleep by a drain is not an outage's to resume."""
    world = group(awake=2)
    records = dict(world.state.records)
    records["w2"] = replace(records["w2"], last=CommandKind.APP_SHUTDOWN, since_ms=NOW_MS - 5000)
    world.state = replace(world.state, records=records)
    world.machines["m"] = replace(world.machines["m"], state=MachineState.FAILED)
    world.tick(NOW_MS)

    assert world.state.records["w1"].suspend_reason is SuspendReason.OUTAGE
    assert world.state.records["w2"].suspend_reason is SuspendReason.DRAINED
