"""Heartbeats: order, identity, silence, and messages that are wrong."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
from hypothesis import given

from tenure_core.autoscaling.group_config import ElasticGroupConfig, SilencePolicy
from tenure_core.autoscaling.heartbeats import (
    Heartbeat,
    HeartbeatHistory,
    load_ppm,
    merged,
    queue_samples,
    violations,
)
from tenure_core.autoscaling.machines import (
    ApplicationState,
    CommandKind,
    ListedMachine,
    MachineRecord,
    MachineRole,
    MachineState,
    Probe,
)
from tenure_core.autoscaling.silence import Health, Heard, heard, observer_in_doubt

CONFIG = ElasticGroupConfig()
RECORD = MachineRecord("vm", MachineRole.WORKER, CommandKind.APP_INIT, 0)
MACHINE = ListedMachine("vm", MachineRole.WORKER, MachineState.ACTIVE)


def beat(sequence: int, *, incarnation: int = 1, at_ms: int = 0, **more: object) -> Heartbeat:
    """Return a heartbeat of a running application."""
    base = Heartbeat(incarnation, sequence, at_ms, ApplicationState.RUNNING)
    return replace(base, **more)  # type: ignore[arg-type]


@given(st.permutations(list(range(1, 30))), st.integers(1, 28))
def test_p08_the_buffer_does_not_depend_on_the_order_of_arrival(order: list[int], cut: int) -> None:
    """Packets overtake each other within and across ticks; the latest is the newest sent."""
    first = merged(HeartbeatHistory(), map(beat, order[:cut]), history_max=40)
    history = merged(first, map(beat, order[cut:]), history_max=40)

    assert [entry.sequence for entry in history.entries] == sorted(order)
    assert history.latest == beat(29)


def test_p08_a_newer_incarnation_silences_the_older() -> None:
    """Late packets of the dead are not credited to the living at the same address."""
    history = merged(HeartbeatHistory(), [beat(50), beat(1, incarnation=2)], history_max=20)
    again = merged(history, [beat(51)], history_max=20)

    assert again.entries == (beat(1, incarnation=2),)


def test_the_history_keeps_the_newest() -> None:
    """Memory is bounded by the newest, not by the last to arrive."""
    history = merged(HeartbeatHistory(), map(beat, [9, 1, 8, 2, 7]), history_max=3)

    assert [entry.sequence for entry in history.entries] == [7, 8, 9]


def test_p07_a_wrong_message_is_named_and_not_raised() -> None:
    """A listener drops what is wrong and goes on; all that is wrong is said."""
    found = violations(beat(-1, threads=-2, in_flight=-1))

    assert {violation.field for violation in found} == {"sequence", "threads", "in_flight"}
    assert violations(beat(1)) == ()


def test_an_error_counts_from_its_first_report() -> None:
    """The recovery time of P24 starts with the error, not with an old command."""
    error = {"app_state": ApplicationState.ERROR}
    history = merged(HeartbeatHistory(), [beat(1), beat(2, at_ms=70, **error)], history_max=20)
    later = merged(history, [beat(3, at_ms=90, **error)], history_max=1)

    assert history.reported_since_ms == later.reported_since_ms == 70


def test_p29_samples_count_only_in_the_present_epoch_and_while_running() -> None:
    """A queue length of another master, or from before it ran, is no measurement."""
    beats = [
        beat(1, queue_length=7, master_epoch=1),
        beat(2, queue_length=8, master_epoch=2, app_state=ApplicationState.READY),
        beat(3, queue_length=9, master_epoch=2),
    ]
    history = merged(HeartbeatHistory(), beats, history_max=20)

    assert queue_samples(history, master_epoch=2) == (9,)


def test_load_is_cpu_until_memory_or_disk_is_short() -> None:
    """Equal to the limit is not short."""
    at_limit = beat(1, cpu_ppm=400_000, memory_ppm=800_000, disk_ppm=800_000)
    above = replace(at_limit, memory_ppm=810_000)

    assert load_ppm(at_limit, limit_ppm=800_000) == 400_000
    assert load_ppm(above, limit_ppm=800_000) == 810_000


def _heard(age_ms: int, probe: Probe = Probe.UNKNOWN, **more: object) -> Heard:
    history = HeartbeatHistory((beat(1, at_ms=1_000_000, **more),))
    return heard(
        replace(MACHINE, probe=probe), RECORD, history, now_ms=1_000_000 + age_ms, config=CONFIG
    )


def test_p05_silence_needs_several_intervals_and_a_second_source() -> None:
    """One missed interval asks; several and a dead probe convict; a live probe has its limit."""
    several = CONFIG.silence.missed_intervals * CONFIG.decision_interval_ms

    assert _heard(10_000) is Heard.RUNNING
    assert _heard(10_001, Probe.DEAD) is Heard.SUSPECT
    assert _heard(several, Probe.DEAD) is Heard.SUSPECT
    assert _heard(several + 1, Probe.DEAD) is Heard.DEAD
    assert _heard(several + 1, Probe.ALIVE) is Heard.SUSPECT
    assert _heard(CONFIG.silence.give_up_ms + 1, Probe.ALIVE) is Heard.DEAD


def test_ready_with_work_in_flight_or_unknown_is_busy() -> None:
    """No measurement of work is not the absence of work."""
    ready = {"app_state": ApplicationState.READY}

    assert _heard(0, **ready, in_flight=0) is Heard.READY
    assert _heard(0, **ready, in_flight=2) is Heard.BUSY
    assert _heard(0, **ready, in_flight=None) is Heard.BUSY


@given(st.integers(-(10**9), 10**9), st.integers(0, 10**6))
def test_p30_a_step_of_the_clock_common_to_all_changes_nothing(step: int, age: int) -> None:
    """Only differences of one monotonic clock are read, and the sender's clock never."""
    history = HeartbeatHistory((beat(1, at_ms=step),))
    moved = heard(MACHINE, RECORD, history, now_ms=step + age, config=CONFIG)

    assert moved is _heard(age)


def test_p30_a_heartbeat_from_the_future_is_fresh() -> None:
    """A receiver that is a little ahead does not convict."""
    assert _heard(-5_000) is Heard.RUNNING


@given(st.integers(0, 40), st.integers(0, 40))
def test_p06_many_silent_at_once_is_the_observers_fault(silent: int, well: int) -> None:
    """The halt needs a number and a share; sleepers and newcomers count on neither side."""
    policy = SilencePolicy()
    healths = [Health(MachineState.ACTIVE, Heard.DEAD)] * silent
    healths += [Health(MachineState.ACTIVE, Heard.RUNNING)] * well
    healths += [Health(MachineState.SUSPENDED, Heard.NEVER)] * 50

    expected = silent >= 3 and silent * 100 > 45 * (silent + well)
    assert observer_in_doubt(healths, policy) is expected
