"""How many workers an elastic group should have now, and by which means it gets there.

Takes the verdict of every worker and the master's queue samples; overrides verdicts (a removal, a
cancelled drain, a resume) and asks for creations. Who lives and dies on its own account was
decided in `lifecycle`; how fast the size may change is decided in `damping`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tenure_core.autoscaling.damping import DampingState, after_change, damped
from tenure_core.autoscaling.drain_time import (
    Measurement,
    Recommendation,
    measure,
    recommend,
    would_call_for_more,
)
from tenure_core.autoscaling.group_config import ElasticGroupConfig, WhileStarting
from tenure_core.autoscaling.machines import CommandKind, ListedMachine, MachineState
from tenure_core.autoscaling.worker_view import WorkerView
from tenure_core.timebase import Millis


@dataclass(frozen=True, slots=True)
class ScaleReport:
    """The inputs and the result of a scale decision, as kept with the decision."""

    evaluated: bool
    reason: str
    active: int = 0
    arriving: int = 0
    sleeping: int = 0
    draining: int = 0
    known: int = 0
    measurement: Measurement | None = None
    recommendation: Recommendation | None = None
    aimed_at: int = 0
    shut_down: int = 0
    drains_cancelled: int = 0
    resumed: int = 0
    created: int = 0
    refused_at_limit: bool = False


@dataclass(frozen=True, slots=True)
class ScaleOutcome:
    """Commands that replace verdicts, creations to ask for, and the damping state to keep."""

    overrides: dict[str, CommandKind]
    creates: int
    report: ScaleReport
    damping: DampingState


@dataclass(slots=True)
class _Draft:
    """Means chosen so far; lives for one decision only."""

    overrides: dict[str, CommandKind] = field(default_factory=dict)
    cancelled: int = 0
    resumed: int = 0
    created: int = 0
    shut_down: int = 0
    refused: bool = False


def scale(
    workers: Sequence[WorkerView],
    queue_lengths: Sequence[int],
    damping: DampingState,
    *,
    open_creates: int,
    create_allowed: bool,
    now_ms: Millis,
    config: ElasticGroupConfig,
) -> ScaleOutcome:
    """Return the scale decision over `workers`, given in the provider's listing order.

    `queue_lengths` are the master's valid samples; `open_creates` are machines asked for and not
    yet listed. Every machine that exists counts towards `max_workers`, whatever its state, until
    the listing has lost it. O(n log n).
    """
    active = [worker for worker in workers if worker.active]
    draining = [worker for worker in workers if worker.draining]
    arriving = sum(worker.arriving for worker in workers) + open_creates
    known = sum(worker.machine.state is not MachineState.DONE for worker in workers) + open_creates
    serving = sum(worker.active and not worker.draining for worker in workers)
    leaving_now = sum(worker.doomed and not worker.record.tombstone for worker in workers)
    lacking = max(0, config.min_workers - serving - arriving - leaving_now)
    report = ScaleReport(
        evaluated=False, reason="", active=len(active), arriving=arriving,
        sleeping=sum(worker.sleeping for worker in workers), draining=len(draining), known=known,
        aimed_at=len(active),
    )  # fmt: skip
    draft = _Draft()
    _cancel(draft, [worker for worker in draining if could_miss_booking(worker.machine, config)])
    waits = config.band.while_starting is WhileStarting.WAIT and (
        open_creates > 0 or any(worker.blocks_as_starting for worker in workers)
    )
    if waits or not active:
        report = replace(report, reason="WAITS_FOR_STARTS" if waits else "NO_ACTIVE_WORKER")
    else:
        samples = [worker.sample for worker in active]
        measurement = measure(samples, queue_lengths, config.band)
        advice = recommend(measurement, config.band, min_workers=config.min_workers)
        report = replace(
            report, reason=measurement.reason, measurement=measurement, recommendation=advice
        )
        if measurement.drain_ms is not None:
            held = damped(
                damping, config.damping, recommended=advice.wanted, present=len(active),
                now_ms=now_ms,
            )  # fmt: skip
            damping = held.state
            report = replace(report, evaluated=True, reason=held.reason, aimed_at=held.size)
            if held.size <= len(active):
                _settle_drains(
                    draft, active, queue_lengths, config, wanted_out=len(active) - held.size
                )
            else:
                counted = arriving if config.band.while_starting is WhileStarting.COUNT else 0
                lacking = max(lacking, held.size - len(active) - counted)
                if config.damping.anti_flap:
                    _cancel(draft, [worker for worker in draining if worker.active])
    _add(draft, workers, lacking, known=known, create_allowed=create_allowed, config=config)
    return _outcome(draft, report, damping, now_ms=now_ms)


def _outcome(
    draft: _Draft, report: ScaleReport, damping: DampingState, *, now_ms: Millis
) -> ScaleOutcome:
    report = replace(
        report, shut_down=draft.shut_down, drains_cancelled=draft.cancelled,
        resumed=draft.resumed, created=draft.created, refused_at_limit=draft.refused,
    )  # fmt: skip
    grew = draft.resumed + draft.created > 0
    changed = after_change(damping, grew=grew, shrank=draft.shut_down > 0, now_ms=now_ms)
    return ScaleOutcome(draft.overrides, draft.created, report, changed)


def _cancel(draft: _Draft, drains: Sequence[WorkerView]) -> None:
    for worker in drains:
        draft.overrides[worker.machine.machine_id] = CommandKind.APP_INIT
        draft.cancelled += 1


def _add(
    draft: _Draft,
    workers: Sequence[WorkerView],
    count: int,
    *,
    known: int,
    create_allowed: bool,
    config: ElasticGroupConfig,
) -> None:
    """Gain `count` workers: first by cancelled drains, then resumes, then creations (P14)."""
    if count <= 0:
        return
    reclaimed = [
        worker
        for worker in workers
        if worker.draining and worker.machine.machine_id not in draft.overrides
    ][: count if config.damping.anti_flap else 0]
    _cancel(draft, reclaimed)
    count -= len(reclaimed)
    asleep = [worker for worker in workers if worker.sleeping]
    awake = known - len(asleep)
    for worker in asleep[:count]:
        if awake + draft.resumed >= config.max_workers:
            draft.refused = True
            break
        draft.overrides[worker.machine.machine_id] = CommandKind.VM_RESUME
        draft.resumed += 1
    count -= min(count, len(asleep))
    if not create_allowed:
        return
    room = max(0, config.max_workers - known)
    draft.created = min(count, room)
    draft.refused = draft.refused or count > room


def _settle_drains(
    draft: _Draft,
    active: Sequence[WorkerView],
    queue_lengths: Sequence[int],
    config: ElasticGroupConfig,
    *,
    wanted_out: int,
) -> None:
    """Choose who leaves so that those who stay suffice, and cancel drains that cost too much.

    Without `anti_flap` exactly `wanted_out` leave, and drains under way are not among the first.

    Drains under way come first, then idle before busy, dear before cheap, late in the listing
    before early (P13); a machine with a booking that it could miss is never chosen (P25).
    """
    under_way = [
        worker
        for worker in active
        if worker.draining and not could_miss_booking(worker.machine, config)
    ]
    order = {worker.machine.machine_id: place for place, worker in enumerate(active)}
    free = [
        worker
        for worker in active
        if not worker.draining and not could_miss_booking(worker.machine, config)
    ]
    if not config.damping.anti_flap:
        free = [worker for worker in active if not could_miss_booking(worker.machine, config)]
        under_way = []
    free.sort(key=lambda worker: _removal_rank(worker, order))
    chosen = under_way + free[: max(0, wanted_out - len(under_way))]
    if config.damping.anti_flap and not _suffices(active, chosen, queue_lengths, config):
        chosen = _largest_sufficient(active, under_way + free, wanted_out, queue_lengths, config)
    for worker in chosen:
        draft.overrides[worker.machine.machine_id] = CommandKind.APP_SHUTDOWN
        draft.shut_down += not worker.draining
    kept = {worker.machine.machine_id for worker in chosen}
    _cancel(draft, [worker for worker in under_way if worker.machine.machine_id not in kept])


def _largest_sufficient(
    active: Sequence[WorkerView],
    candidates: Sequence[WorkerView],
    wanted_out: int,
    queue_lengths: Sequence[int],
    config: ElasticGroupConfig,
) -> list[WorkerView]:
    """Take candidates in order, leaving out each whose loss the others could not make up for."""
    chosen: list[WorkerView] = []
    for worker in candidates:
        may_leave = worker.draining or len(chosen) < wanted_out
        if may_leave and _suffices(active, [*chosen, worker], queue_lengths, config):
            chosen.append(worker)
    return chosen


def _suffices(
    active: Sequence[WorkerView],
    leaving: Sequence[WorkerView],
    queue_lengths: Sequence[int],
    config: ElasticGroupConfig,
) -> bool:
    gone = {worker.machine.machine_id for worker in leaving}
    staying = [worker for worker in active if worker.machine.machine_id not in gone]
    if len(staying) < config.min_workers:
        return False
    samples = [worker.sample for worker in staying]
    return not would_call_for_more(samples, queue_lengths, config.band)


def _removal_rank(worker: WorkerView, order: dict[str, int]) -> tuple[int, int, int, int]:
    in_flight = worker.latest.in_flight if worker.latest else None
    known_busy = 1 if in_flight is None else 2 if in_flight else 0
    place = order[worker.machine.machine_id]
    return (known_busy, in_flight or 0, -worker.machine.price_micros, -place)


def could_miss_booking(machine: ListedMachine, config: ElasticGroupConfig) -> bool:
    """Say whether the next booking is nearer than draining, suspending and coming back takes."""
    if machine.next_booking_in_ms is None:
        return False
    deadlines = config.deadlines
    trip = deadlines.shutdown_ms + deadlines.suspend_ms + deadlines.startup_ms
    return machine.next_booking_in_ms <= trip
