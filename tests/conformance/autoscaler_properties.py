"""Checks by rule what a property demands, for whole states and for sequences.

Each check runs the case's situation under the new system's settings, varies what the property is
about (a second source, work in flight, the reason for a sleep, a refusal ...), and asserts the
property itself. None looks at a case's id or at a particular expectation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from fractions import Fraction
from typing import Any

from tests.conformance.autoscaler_case import Case, ms, settings
from tests.conformance.autoscaler_world import LiveWorld, ScriptedWorld, Step

from tenure_core.autoscaling.elastic_group import GroupInputs, decide, start
from tenure_core.autoscaling.group_config import ElasticGroupConfig
from tenure_core.autoscaling.group_records import after_create_refused
from tenure_core.autoscaling.heartbeats import HeartbeatHistory
from tenure_core.autoscaling.machines import (
    DESTRUCTIVE,
    ApplicationState,
    CommandKind,
    ListedMachine,
    Listing,
    MachineRecord,
    MachineRole,
    MachineState,
    SuspendReason,
)
from tenure_core.autoscaling.master_protocol import Phase
from tenure_core.autoscaling.provider_errors import ProviderErrorClass

Script = list[tuple[int, list[Mapping[str, Any]]]]
CAPACITY = (CommandKind.VM_CREATE, CommandKind.VM_RESUME)


class Scene:
    """The situation of a tick or a sequence: an initial state and a script of changes."""

    def __init__(self, case: Case) -> None:
        sequence = case.kind == "sequence"
        self.initial: Mapping[str, Any] = case.input["initial"] if sequence else case.input
        self.script: Script = (
            [(ms(raw["now"]), raw["changes"]) for raw in case.input["ticks"]]
            if sequence
            else [(ms(case.input["now"]), [])]
        )
        self.config = settings(case.config, case.properties)

    def world(self, **options: Any) -> ScriptedWorld:
        """Return the initial state as a world of its own."""
        return ScriptedWorld.of(deepcopy(self.initial), self.config, **options)

    def play(self, world: ScriptedWorld | None = None) -> Iterator[Step]:
        """Decide at every instant of the script."""
        world = world or self.world()
        for now_ms, changes in self.script:
            for change in changes:
                world.change(change)
            yield world.tick(now_ms)

    def live(self, world: ScriptedWorld | None = None, **options: Any) -> LiveWorld:
        """Return the initial state as a world that lives on; the machines silent stay so."""
        world = world or self.world()
        interval, (first, changes) = self.config.decision_interval_ms, self.script[0]
        speaking = {change["heartbeat"][0] for change in changes if "heartbeat" in change}
        silent = {
            name
            for name, history in world.histories.items()
            if history.latest and first - history.latest.received_at_ms > interval
        } - speaking
        live = LiveWorld(world, first - interval, **options)
        live.mute |= silent
        return live


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
        for name, age in _ages(step).items():
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
                world.histories[other] = _moved(history, later - scene.script[0][0])
        step = world.tick(later)
        gone = step.sent(CommandKind.VM_DELETE) + step.sent(CommandKind.VM_SUSPEND)
        listed = {m.machine_id for m in step.listed}
        assert name in gone or name not in listed or step.decision.explanation.in_doubt


def _ages(step: Step) -> dict[str, int]:
    """Return how long ago each machine that runs and has spoken was last heard."""
    return {
        m.machine_id: step.now_ms - step.histories[m.machine_id].entries[-1].received_at_ms
        for m in step.listed
        if m.state is MachineState.ACTIVE and m.owned and m.machine_id in step.histories
    }


def _moved(history: HeartbeatHistory, by_ms: int) -> HeartbeatHistory:
    return replace(
        history,
        entries=tuple(replace(e, received_at_ms=e.received_at_ms + by_ms) for e in history.entries),
    )


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
    moved = {name for step in steps for name in _handled(step)}
    for tick in range(1, bound // interval + 1):
        for name in world.machines:
            if name in world.histories:
                world.histories[name] = _moved(world.histories[name], interval)
        step = world.tick(now_ms + tick * interval)
        assert not _suspends_the_unfit(step)
        moved |= _handled(step)
    assert stuck <= moved, f"nothing ever happens to {stuck - moved}"


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
    assert gained or _serving(live)


def _removed(step: Step) -> set[str]:
    """Return the workers that a scale decision takes out of service now."""
    return {
        name
        for name in step.sent(CommandKind.APP_SHUTDOWN)
        if step.before.records[name].last is not CommandKind.APP_SHUTDOWN
        and _says_running(step, name)
    }


def _says_running(step: Step, name: str) -> bool:
    latest = step.histories.get(name, HeartbeatHistory()).latest
    return latest is not None and latest.app_state is ApplicationState.RUNNING


def p12(scene: Scene) -> None:
    """No measurement holds; otherwise only the drain time at the true rate moves the size."""
    band, interval = scene.config.band, scene.config.decision_interval_ms
    for step in scene.play():
        report = step.decision.explanation.scale
        if report is None:
            continue
        ages = _ages(step)
        beats = [
            step.histories[m.machine_id].entries[-1]
            for m in step.listed
            if m.role is MachineRole.WORKER and ages.get(m.machine_id, interval + 1) <= interval
        ]
        running = [b for b in beats if b.app_state is ApplicationState.RUNNING]
        measured = [b for b in running if b.mean_job_ms]
        rate = sum((b.threads / b.mean_job_ms for b in measured), Fraction(0))
        removed = _removed(step)
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
    count = len(_removed(plain))
    workers = [
        m.machine_id
        for m in plain.listed
        if m.role is MachineRole.WORKER and _says_running(plain, m.machine_id)
    ]
    draining = any(r.last is CommandKind.APP_SHUTDOWN for r in plain.before.records.values())
    if draining or not count or len(workers) <= count:
        return
    idle = set(workers[:count])
    work = {name: 0 if name in idle else 1 for name in workers}
    step = next(iter(scene.play(scene.world(work=work))))
    assert _removed(step) <= idle


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
        shrunk = shrunk or bool(_removed(step))


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
        left = active - len({name for name in told if _says_running(step, name)})
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


def _serving(live: LiveWorld) -> list[str]:
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


def p25(scene: Scene) -> None:
    """A machine with a booking that it could miss is never drained, suspended or deleted."""
    plain = next(iter(scene.play()))
    for name in _removed(plain):
        world = scene.world()
        world.machines[name] = replace(world.machines[name], next_booking_in_ms=60_000)
        step = next(iter(scene.play(world)))
        assert name not in step.sent(CommandKind.APP_SHUTDOWN)


def p27(scene: Scene) -> None:
    """Every listed machine of ours has a reason, and so has the decision."""
    for step in scene.play():
        why = step.decision.explanation
        assert [m.machine_id for m in why.machines] == [
            m.machine_id for m in step.listed if m.owned
        ]
        assert all(machine.reason for machine in why.machines) and why.reason


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
        assert not _removed(step)


def p30(scene: Scene) -> None:
    """Moving every receiver's time by the same step changes no command."""
    step = next(iter(scene.play()))
    moved = {
        name: replace(
            history,
            entries=tuple(replace(e, sequence=e.sequence * 7) for e in history.entries),
        )
        for name, history in step.histories.items()
    }
    inputs = GroupInputs(step.now_ms, Listing(step.listed), moved)
    assert decide(step.before, inputs, scene.config).commands == step.decision.commands


CHECKS: Mapping[str, Callable[[Scene], None]] = {
    "P01": p01, "P02": p02, "P03": p03, "P04": p04, "P05": p05, "P06": p06, "P09": p09,
    "P10": p10, "P11": p11, "P12": p12, "P13": p13, "P14": p14, "P15": p15, "P16": p16,
    "P17": p17, "P18": p18, "P19": p19, "P20": p20, "P21": p21, "P22": p22, "P24": p24,
    "P25": p25, "P27": p27, "P29": p29, "P30": p30,
}  # fmt: skip


def check(case: Case) -> None:
    """Assert every property that the case names."""
    assert case.properties, case.required
    scene = Scene(case)
    for name in case.properties:
        assert name in CHECKS, f"{case.id}: no check of {name} for a {case.kind}"
        CHECKS[name](scene)
