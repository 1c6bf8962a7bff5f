"""The situation of a tick or a sequence, to be run and varied by the property checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

from tests.conformance.autoscaler_case import Case, ms, settings
from tests.conformance.autoscaler_live import LiveWorld
from tests.conformance.autoscaler_world import ScriptedWorld, Step

from tenure_core.autoscaling.heartbeats import HeartbeatHistory
from tenure_core.autoscaling.machines import (
    ApplicationState,
    CommandKind,
    MachineState,
)

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


def ages(step: Step) -> dict[str, int]:
    """Return how long ago each machine that runs and has spoken was last heard."""
    return {
        m.machine_id: step.now_ms - step.histories[m.machine_id].entries[-1].received_at_ms
        for m in step.listed
        if m.state is MachineState.ACTIVE and m.owned and m.machine_id in step.histories
    }


def moved(history: HeartbeatHistory, by_ms: int) -> HeartbeatHistory:
    return replace(
        history,
        entries=tuple(replace(e, received_at_ms=e.received_at_ms + by_ms) for e in history.entries),
    )


def removed_by_scaling(step: Step) -> set[str]:
    """Return the workers that a scale decision takes out of service now."""
    return {
        name
        for name in step.sent(CommandKind.APP_SHUTDOWN)
        if step.before.records[name].last is not CommandKind.APP_SHUTDOWN
        and says_running(step, name)
    }


def says_running(step: Step, name: str) -> bool:
    latest = step.histories.get(name, HeartbeatHistory()).latest
    return latest is not None and latest.app_state is ApplicationState.RUNNING
