"""A world that lives on: machines boot, agents answer, deletions linger, commands get lost."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tests.conformance.autoscaler_world import ScriptedWorld, Step

from tenure_core.autoscaling.heartbeats import Heartbeat, HeartbeatHistory, merged
from tenure_core.autoscaling.machines import (
    ApplicationState,
    Command,
    CommandKind,
    MachineRole,
    MachineState,
)


@dataclass
class LiveWorld:
    """Machines that boot, sleep and die in their own time, and agents that answer.

    Starts from a scripted world. Every machine that has spoken keeps doing so in its state, except
    those in `mute`. A deletion takes `linger` ticks, during which the machine goes on running.
    """

    scripted: ScriptedWorld
    now_ms: int
    mute: set[str] = field(default_factory=set)
    linger: int = 3
    queue_length: int = 0
    leaving: dict[str, int] = field(default_factory=dict)
    apps: dict[str, ApplicationState] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.scripted.deletes_linger = True
        for machine_id, history in self.scripted.histories.items():
            if history.latest:
                self.apps[machine_id] = history.latest.app_state
                self.epochs[machine_id] = history.latest.master_epoch

    def active_masters(self) -> list[str]:
        """Return the masters that hold an application, heard or not, until they are gone."""
        return [
            machine_id
            for machine_id, machine in self.scripted.machines.items()
            if machine.role is MachineRole.MASTER
            and machine.state is MachineState.ACTIVE
            and self.apps.get(machine_id) in (ApplicationState.INIT, ApplicationState.RUNNING)
        ]

    def tick(self) -> Step:
        """Let one interval pass, then decide and let the commands begin to work."""
        self.now_ms += self.scripted.config.decision_interval_ms
        self._pass_time()
        step = self.scripted.tick(self.now_ms)
        for command in step.carried:
            self._obey(command)
        return step

    def _pass_time(self) -> None:
        world = self.scripted
        for machine_id in list(self.leaving):
            self.leaving[machine_id] -= 1
            if self.leaving[machine_id] <= 0:
                del self.leaving[machine_id]
                world.machines.pop(machine_id, None)
        for machine_id, machine in world.machines.items():
            if machine.state in (MachineState.INIT, MachineState.PENDING):
                world.machines[machine_id] = replace(machine, state=MachineState.ACTIVE)
                self.apps[machine_id] = ApplicationState.READY
            elif machine.state is MachineState.ACTIVE and machine_id not in self.mute:
                self._speak(machine_id)

    def _speak(self, machine_id: str) -> None:
        world = self.scripted
        history = world.histories.get(machine_id, HeartbeatHistory())
        latest = history.latest
        state = self.apps.setdefault(machine_id, ApplicationState.READY)
        beat = Heartbeat(
            1, latest.sequence + 1 if latest else 1, self.now_ms - 2000, state,
            threads=latest.threads if latest else 1,
            mean_job_ms=latest.mean_job_ms if latest else 0,  # type: ignore[arg-type]
            in_flight=0 if state is ApplicationState.READY else None,
            queue_length=self.queue_length, master_epoch=self.epochs.get(machine_id, 0),
        )  # fmt: skip
        world.histories[machine_id] = merged(history, [beat], history_max=world.config.history_max)

    def _obey(self, command: Command) -> None:
        world, machine_id = self.scripted, command.machine_id
        machine = world.machines.get(machine_id)
        if machine is None:
            return
        if command.kind is CommandKind.VM_DELETE:
            self.leaving.setdefault(machine_id, self.linger)
        elif command.kind is CommandKind.VM_SUSPEND and machine.state is MachineState.ACTIVE:
            world.machines[machine_id] = replace(machine, state=MachineState.SUSPENDED)
        elif command.kind is CommandKind.VM_RESUME and machine.state is MachineState.SUSPENDED:
            world.machines[machine_id] = replace(machine, state=MachineState.ACTIVE)
            self.apps[machine_id] = ApplicationState.READY
        elif command.kind is CommandKind.APP_INIT and machine.state is MachineState.ACTIVE:
            if machine_id not in self.mute:
                self.apps[machine_id] = ApplicationState.RUNNING
                self.epochs[machine_id] = command.master_epoch
        elif command.kind is CommandKind.APP_SHUTDOWN and machine_id not in self.mute:
            self.apps[machine_id] = ApplicationState.READY
