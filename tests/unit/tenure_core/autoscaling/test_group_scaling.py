"""Elastic groups: how many workers, in exact arithmetic, without swinging and without stalling."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import hypothesis.strategies as st
import pytest
from hypothesis import assume, example, given, settings
from tests.unit.tenure_core.autoscaling.group_builder import (
    CONFIG,
    NOW,
    beat,
    group,
    live,
    with_config,
)

from tenure_core.autoscaling.drain_time import (
    Direction,
    WorkerSample,
    mean_job_ms,
    measure,
    recommend,
    would_call_for_more,
)
from tenure_core.autoscaling.group_config import (
    DrainBand,
    ServiceTime,
    WhileStarting,
)
from tenure_core.autoscaling.machines import (
    ApplicationState,
    CommandKind,
    ListedMachine,
    MachineRecord,
    MachineRole,
    MachineState,
)

NOW_MS = NOW * 1000
BAND = DrainBand()
samples = st.lists(
    st.builds(WorkerSample, st.integers(0, 9), st.fractions(0, 60_000)), min_size=1, max_size=9
)
queues = st.lists(st.integers(0, 500), min_size=3, max_size=3)


@given(samples, queues, st.integers(1, 5))
def test_p15_the_recommendation_is_exact_and_never_below_the_minimum(
    workers: list[WorkerSample], queue: list[int], minimum: int
) -> None:
    """The recommended size is the least that meets the target, except for the minimum."""
    measured = measure(workers, queue, BAND)
    advice = recommend(measured, BAND, min_workers=minimum)
    if measured.drain_ms is None:
        assert advice.direction is Direction.HOLD
        return
    assert advice.wanted >= min(len(workers), minimum)
    if advice.desired_ms is not None and advice.wanted > minimum:
        work = measured.drain_ms * len(workers)
        assert work / advice.wanted <= advice.desired_ms
        assert advice.wanted == 1 or work / (advice.wanted - 1) > advice.desired_ms


def test_p15_what_floats_got_wrong_is_right() -> None:
    """5/3 of three workers is five, not six; a tiny drain time keeps one worker."""
    five = measure([WorkerSample(1, Fraction(2500))] + [WorkerSample(0, Fraction(2500))] * 2,
                   [0, 50, 0], BAND)  # fmt: skip
    tiny = measure([WorkerSample(1, Fraction(1, 10**14))] * 3, [1, 0, 0], BAND)

    assert recommend(five, BAND, min_workers=1).wanted == 5
    assert recommend(tiny, BAND, min_workers=1).wanted == 1


@given(samples, queues)
def test_p12_a_mean_weighted_by_work_makes_drain_time_queue_over_rate(
    workers: list[WorkerSample], queue: list[int]
) -> None:
    """One slow small worker does not distort the drain time."""
    assume(all(worker.mean_job_ms > 0 for worker in workers))
    rate = sum((w.threads / w.mean_job_ms for w in workers), Fraction(0))
    assume(rate > 0)

    assert measure(workers, queue, BAND).drain_ms == Fraction(sum(queue), 3) / rate


@pytest.mark.parametrize(
    ("workers", "queue", "reason"),
    [
        ([], [5, 5, 5], "NO_ACTIVE_WORKER"),
        ([WorkerSample(2, Fraction(3))], [5, 5], "TOO_FEW_SAMPLES"),
        ([WorkerSample(0, Fraction(3))], [5, 5, 5], "NO_THREADS"),
        ([WorkerSample(2, Fraction(0))], [500, 500, 500], "NO_JOB_ENDED"),
    ],
)
def test_p12_no_measurement_is_not_zero(
    workers: list[WorkerSample], queue: list[int], reason: str
) -> None:
    """Without data the size holds; the ancestor divided by zero or removed all but one."""
    measured = measure(workers, queue, BAND)

    assert (measured.drain_ms, measured.reason) == (None, reason)
    assert recommend(measured, BAND, min_workers=1).direction is Direction.HOLD


def test_p12_a_newcomer_without_an_ended_job_does_not_count_as_infinitely_fast() -> None:
    """It is left out of our mean; the ancestor's, kept for comparison, takes it for zero."""
    workers = [WorkerSample(1, Fraction(3000)), WorkerSample(1, Fraction(0))]

    assert mean_job_ms(workers, ServiceTime.WEIGHTED) == 3000
    assert mean_job_ms(workers, ServiceTime.PLAIN) == 1500


def test_p12_an_idle_group_without_measurement_is_left_alone() -> None:
    """A fresh, idle group stopped the ancestor."""
    step = group(awake=2, worker={"threads": 0, "avg_time": 0.0}).tick(NOW_MS)

    assert step.commands == []


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(1, 20)), min_size=2, max_size=6),
    st.integers(0, 200),
)
@example([(1, 20), (6, 1)], 40)
@example([(6, 1), (1, 20), (1, 20)], 40)
def test_p14_the_state_after_a_removal_does_not_call_for_an_addition(
    workers: list[tuple[int, int]], queue: int
) -> None:
    """Whoever stays drains the queue inside the band, however unequal the workers are."""
    world = group(awake=len(workers), queue=(queue,) * 3, config=replace(CONFIG, max_workers=20))
    for place, (threads, seconds) in enumerate(workers):
        name = f"w{place + 1}"
        world.histories[name] = replace(
            world.histories[name],
            entries=tuple(
                replace(e, threads=threads, mean_job_ms=Fraction(seconds * 1000))
                for e in world.histories[name].entries
            ),
        )
    step = world.tick(NOW_MS)
    gone = step.sent(CommandKind.APP_SHUTDOWN)
    staying = [
        WorkerSample(threads, Fraction(seconds * 1000))
        for place, (threads, seconds) in enumerate(workers)
        if f"w{place + 1}" not in gone
    ]

    assert not gone or not would_call_for_more(staying, [queue] * 3, CONFIG.band)
    assert len(staying) >= CONFIG.min_workers
    assert not (gone and (step.sent(CommandKind.VM_CREATE) or step.sent(CommandKind.VM_RESUME)))


def test_p14_a_drain_is_cancelled_before_a_machine_is_bought() -> None:
    """Capacity on its way out is called back first, then sleepers, then purchases."""
    world = group(awake=2, asleep=1, queue=(30, 30, 30))
    records = dict(world.state.records)
    records["w2"] = replace(records["w2"], last=CommandKind.APP_SHUTDOWN, since_ms=NOW_MS - 9000)
    world.state = replace(world.state, records=records)
    step = world.tick(NOW_MS)

    assert step.commands == [
        ("VM_CREATE", "WORKER"), ("APP_INIT", "w2"), ("VM_RESUME", "s1"),
    ]  # fmt: skip


@pytest.mark.parametrize("while_starting", list(WhileStarting))
def test_p10_a_late_start_blocks_nothing(while_starting: WhileStarting) -> None:
    """A resume without effect is retried and replaced, and the queue is served meanwhile."""
    config = with_config(CONFIG, "band", while_starting=while_starting)
    world = group(awake=1, queue=(80, 80, 80), config=config)
    world.machines["w9"] = ListedMachine("w9", MachineRole.WORKER, MachineState.SUSPENDED)
    stuck = MachineRecord("w9", MachineRole.WORKER, CommandKind.VM_RESUME, NOW_MS - 310_000, 2)
    world.state = replace(world.state, records={**world.state.records, "w9": stuck})
    going = live(world)
    going.queue_length = 80
    steps = [going.tick() for _ in range(4)]

    assert steps[0].sent(CommandKind.VM_DELETE) == ["w9"]
    assert any(step.sent(CommandKind.VM_CREATE) for step in steps)


def test_p10_a_start_that_is_late_counts_no_more() -> None:
    """It is tried again, and what it should have brought is bought beside it."""
    world = group(awake=1, queue=(14, 14, 14))
    world.machines["w9"] = ListedMachine("w9", MachineRole.WORKER, MachineState.SUSPENDED)
    stuck = MachineRecord("w9", MachineRole.WORKER, CommandKind.VM_RESUME, NOW_MS - 310_000)
    world.state = replace(world.state, records={**world.state.records, "w9": stuck})

    assert world.tick(NOW_MS).commands == [("VM_CREATE", "WORKER"), ("VM_RESUME", "w9")]


def test_p10_what_is_on_its_way_is_counted_once() -> None:
    """A worker told to initialise is neither forgotten nor bought a second time."""
    world = group(awake=1, queue=(14, 14, 14))
    world.machines["w2"] = ListedMachine("w2", MachineRole.WORKER, MachineState.ACTIVE)
    arriving = MachineRecord("w2", MachineRole.WORKER, CommandKind.APP_INIT, NOW_MS - 10_000)
    world.state = replace(world.state, records={**world.state.records, "w2": arriving})
    world.hear("w2", beat("READY"))
    step = world.tick(NOW_MS)

    assert step.commands == [("APP_INIT", "w2")]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 3), st.integers(0, 3), st.integers(1, 300), st.sets(st.integers(0, 30)))
def test_p11_demand_without_a_running_worker_ends_in_a_running_worker(
    awake: int, asleep: int, queue: int, lost: set[int]
) -> None:
    """Whatever sleeps, fails or gets lost, somebody runs again in bounded time."""
    world = group(awake=awake, asleep=asleep, queue=(queue,) * 3)
    for place in range(awake):
        name = f"w{place + 1}"
        world.machines[name] = replace(world.machines[name], state=MachineState.FAILED)
    count = iter(range(10**6))
    world.dropped = lambda _: next(count) in lost
    going = live(world)
    going.queue_length = queue
    for _ in range(200):
        going.tick()
        running = [
            name
            for name, machine in world.machines.items()
            if machine.role is MachineRole.WORKER
            and machine.state is MachineState.ACTIVE
            and going.apps.get(name) is ApplicationState.RUNNING
        ]
        if running:
            return
    raise AssertionError("nobody ever ran")


@settings(max_examples=80, deadline=None)
@given(
    st.integers(1, 4), st.integers(0, 4), st.integers(4, 9),
    st.lists(st.integers(0, 400), min_size=1, max_size=25), st.integers(1, 6),
)  # fmt: skip
def test_p16_the_cap_holds_at_every_instant(
    awake: int, asleep: int, cap: int, queue: list[int], linger: int
) -> None:
    """Machines that start, sleep, drain or linger after their deletion all count."""
    config = replace(CONFIG, max_workers=cap)
    world = group(awake=awake, asleep=asleep, config=config)
    before = awake + asleep
    going = live(world, linger=linger)
    for length in queue:
        going.queue_length = length
        going.tick()
        workers = [m for m in world.machines.values() if m.role is MachineRole.WORKER]
        assert len(workers) <= max(cap, before)


def test_p13_the_idle_are_drained_before_the_busy_and_the_dear_before_the_cheap() -> None:
    """Listing order only breaks ties, from its end."""
    busy_first = group(awake=4, queue=(10, 10, 10), work={"w1": 0, "w2": 0, "w3": 4, "w4": 1})
    priced = group(awake=4, queue=(10, 10, 10))
    priced.machines["w2"] = replace(priced.machines["w2"], price_micros=9)
    priced.machines["w1"] = replace(priced.machines["w1"], price_micros=5)

    assert busy_first.tick(NOW_MS).sent(CommandKind.APP_SHUTDOWN) == ["w1", "w2"]
    assert priced.tick(NOW_MS).sent(CommandKind.APP_SHUTDOWN) == ["w1", "w2"]


def test_p25_a_worker_with_a_near_booking_is_not_drained_and_a_drain_is_cancelled() -> None:
    """Draining, sleeping and coming back must all fit before the booking."""
    world = group(awake=2)
    world.machines["w2"] = replace(world.machines["w2"], next_booking_in_ms=120_000)
    first = world.tick(NOW_MS)
    going = live(group(awake=2))
    draining = going.tick()
    name = draining.sent(CommandKind.APP_SHUTDOWN)[0]
    machines = going.scripted.machines
    machines[name] = replace(machines[name], next_booking_in_ms=120_000)

    assert first.sent(CommandKind.APP_SHUTDOWN) == ["w1"]
    assert going.tick().sent(CommandKind.APP_INIT) == [name]


def test_p29_samples_of_an_earlier_epoch_move_nothing() -> None:
    """After a failover the size holds until the new master has been measured."""
    world = group(awake=4, queue=(0, 0, 0))
    world.state = replace(world.state, master_epoch=2)
    step = world.tick(NOW_MS)

    assert step.decision.explanation.scale is not None
    assert step.decision.explanation.scale.reason == "TOO_FEW_SAMPLES"
    assert step.commands == []
