"""Checks by rule: how many workers, chosen how, without swinging or stalling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

from tests.conformance.autoscaler_master_checks import serving
from tests.conformance.autoscaler_scene import Scene, ages, removed_by_scaling, says_running
from tests.conformance.autoscaler_world import Step

from tenure_core.autoscaling.group_config import ElasticGroupConfig
from tenure_core.autoscaling.heartbeats import HeartbeatHistory
from tenure_core.autoscaling.machines import (
    ApplicationState,
    CommandKind,
    MachineRole,
    MachineState,
)
from tenure_core.autoscaling.master_protocol import Phase

Script = list[tuple[int, list[Mapping[str, Any]]]]
CAPACITY = (CommandKind.VM_CREATE, CommandKind.VM_RESUME)


def p10(scene: Scene) -> None:
    """Starts never keep a decision from being made; what is on its way is counted once."""
    for step in scene.play():
        report = step.decision.explanation.scale
        if report is None or report.active == 0:
            continue
        if report.measurement is not None and report.measurement.drain_ms is not None:
            assert report.evaluated
            wanted = report.aimed_at - report.active - report.arriving
            gained = report.created + report.resumed
            room = scene.config.max_workers - report.known
            reclaimed = len(step.sent(CommandKind.APP_INIT))
            if report.aimed_at > report.active:
                assert max(0, wanted) - reclaimed <= gained or report.refused_at_limit
                assert gained <= max(0, wanted)
                assert report.created <= max(0, room)
        else:
            assert report.reason != "WAITS_FOR_STARTS"


def p11(scene: Scene) -> None:
    """With work queued and nobody running, somebody is resumed or created in bounded time."""
    live = scene.live()
    master = live.scripted.histories.get(scene.initial["master"], HeartbeatHistory()).latest
    live.queue_length = max(1, master.queue_length if master else 1)
    gained: list[str] = []
    for _ in range(40):
        step = live.tick()
        gained += [
            c.machine_id
            for c in step.decision.commands
            if c.kind in CAPACITY and c.role is MachineRole.WORKER
        ]
    assert gained or serving(live)


def p12(scene: Scene) -> None:
    """No measurement holds; otherwise only the drain time at the true rate moves the size."""
    band, interval = scene.config.band, scene.config.decision_interval_ms
    for step in scene.play():
        report = step.decision.explanation.scale
        if report is None:
            continue
        silent_for = ages(step)
        beats = [
            step.histories[m.machine_id].entries[-1]
            for m in step.listed
            if m.role is MachineRole.WORKER
            and silent_for.get(m.machine_id, interval + 1) <= interval
        ]
        running = [b for b in beats if b.app_state is ApplicationState.RUNNING]
        measured = [b for b in running if b.mean_job_ms]
        rate = sum((b.threads / b.mean_job_ms for b in measured), Fraction(0))
        removed = removed_by_scaling(step)
        queue = step.histories[scene.initial["master"]].entries[-band.samples :]
        if not rate or len(queue) < band.samples:
            assert not report.evaluated and not removed
            continue
        # Threads of workers that have ended no job yet count at the mean of the others.
        rate *= Fraction(sum(b.threads for b in running), sum(b.threads for b in measured))
        drain = Fraction(sum(b.queue_length for b in queue), len(queue)) / rate
        if report.evaluated:
            assert report.measurement is not None and report.measurement.drain_ms == drain
            assert drain > band.upper_ms or report.created + report.resumed == 0
        assert drain < band.lower_ms or not removed


def p13(scene: Scene) -> None:
    """Power waits until work has ended, and the idle are chosen before the busy."""
    for step in scene.play(scene.world(in_flight=1)):
        if step.decision.explanation.phase is Phase.LOST:
            continue  # An outage has taken the work away already.
        held = [
            name
            for name in step.sent(CommandKind.VM_SUSPEND)
            if _runs(step, name)
            and _in_flight(step, name) != 0
            and not _shutdown_late(step, name, scene.config)
        ]
        assert not held
    _idle_first(scene)


def _runs(step: Step, name: str) -> bool:
    return any(
        machine.machine_id == name and machine.state is MachineState.ACTIVE
        for machine in step.listed
    )


def _in_flight(step: Step, name: str) -> int | None:
    latest = step.histories.get(name, HeartbeatHistory()).latest
    return latest.in_flight if latest else None


def _shutdown_late(step: Step, name: str, config: ElasticGroupConfig) -> bool:
    return step.now_ms - step.before.records[name].since_ms > config.deadlines.shutdown_ms


def _idle_first(scene: Scene) -> None:
    plain = next(iter(scene.play()))
    count = len(removed_by_scaling(plain))
    workers = [
        m.machine_id
        for m in plain.listed
        if m.role is MachineRole.WORKER and says_running(plain, m.machine_id)
    ]
    draining = any(r.last is CommandKind.APP_SHUTDOWN for r in plain.before.records.values())
    if draining or not count or len(workers) <= count:
        return
    idle = set(workers[:count])
    work = {name: 0 if name in idle else 1 for name in workers}
    step = next(iter(scene.play(scene.world(work=work))))
    assert removed_by_scaling(step) and removed_by_scaling(step) <= idle


def p14(scene: Scene) -> None:
    """Nobody drains while a machine is bought, and a removal is never undone at once."""
    for step in scene.play():
        report = step.decision.explanation.scale
        if report is None:
            continue
        if report.created + report.resumed:
            assert not step.sent(CommandKind.APP_SHUTDOWN)
            draining = [
                name
                for name, record in step.before.records.items()
                if record.last is CommandKind.APP_SHUTDOWN
            ]
            lost = set(step.sent(CommandKind.VM_DELETE))
            assert set(draining) - lost <= set(step.sent(CommandKind.APP_INIT))
    live = scene.live()
    latest = live.scripted.histories.get(scene.initial["master"], HeartbeatHistory()).latest
    live.queue_length = latest.queue_length if latest else 0
    shrunk = False
    for _ in range(6):
        step = live.tick()
        grew = any(c.kind in CAPACITY for c in step.decision.commands)
        assert not (shrunk and grew)
        shrunk = shrunk or bool(removed_by_scaling(step))


def p15(scene: Scene) -> None:
    """The size is that of exact arithmetic, between the minimum and the maximum."""
    band, config = scene.config.band, scene.config
    for step in scene.play():
        report = step.decision.explanation.scale
        if report is None:
            continue
        measured, advice = report.measurement, report.recommendation
        if measured is None or advice is None or measured.drain_ms is None:
            continue
        active, drain = measured.active, measured.drain_ms
        quarter = Fraction(band.upper_ms - band.lower_ms, 4)
        if drain > band.upper_ms:
            exact = -((-drain / (band.upper_ms - quarter) * active) // 1)
            assert advice.wanted == exact
        elif drain < band.lower_ms:
            stay = -((-drain / (band.lower_ms + quarter) * active) // 1)
            assert advice.wanted == max(stay, min(active, config.min_workers))
        told = set(step.sent(CommandKind.APP_SHUTDOWN))
        left = active - len({name for name in told if says_running(step, name)})
        assert left >= min(active, config.min_workers)
        assert report.known + report.created <= max(report.known, config.max_workers)


def p16(scene: Scene) -> None:
    """The number of machines never exceeds the cap, whatever they are doing."""
    live = scene.live()
    live.queue_length = 10_000
    before = len(live.scripted.machines)
    for _ in range(30):
        live.tick()
        workers = [
            m for m in live.scripted.machines.values() if m.role is MachineRole.WORKER and m.owned
        ]
        assert len(workers) <= max(before, scene.config.max_workers)


def p25(scene: Scene) -> None:
    """A machine with a booking that it could miss is never drained, suspended or deleted."""
    plain = next(iter(scene.play()))
    for name in removed_by_scaling(plain):
        world = scene.world()
        world.machines[name] = replace(world.machines[name], next_booking_in_ms=60_000)
        step = next(iter(scene.play(world)))
        assert name not in step.sent(CommandKind.APP_SHUTDOWN)


def p28(scene: Scene) -> None:
    """No decision takes or orders more machines than a step allows."""
    limited = replace(scene.config.damping, in_step_max=1, out_step_max=1)
    scene.config = replace(scene.config, damping=limited)
    for step in scene.play():
        report = step.decision.explanation.scale
        assert report is None or max(report.shut_down, report.created + report.resumed) <= 1


def p29(scene: Scene) -> None:
    """Samples of another epoch, or from before the master ran, take no machine away."""
    master = scene.initial["master"]
    for spoil in (
        lambda beat: replace(beat, master_epoch=0),
        lambda beat: replace(beat, app_state=ApplicationState.READY),
    ):
        world = scene.world()
        if master not in world.histories or world.state.waiting:
            return
        history = world.histories[master]
        entries = (*map(spoil, history.entries[:-1]), history.entries[-1])
        world.histories[master] = replace(history, entries=entries)
        step = next(iter(scene.play(world)))
        report = step.decision.explanation.scale
        assert report is None or not report.evaluated
        assert not removed_by_scaling(step)
