"""How one worker counts in a scale decision: active, draining, asleep, arriving or doomed."""

from __future__ import annotations

from dataclasses import dataclass

from tenure_core.autoscaling.drain_time import WorkerSample
from tenure_core.autoscaling.heartbeats import Heartbeat
from tenure_core.autoscaling.lifecycle import Verdict
from tenure_core.autoscaling.machines import (
    CommandKind,
    ListedMachine,
    MachineRecord,
    MachineState,
)
from tenure_core.autoscaling.silence import Heard

_RISING = (MachineState.INIT, MachineState.PENDING, MachineState.ACTIVE)


@dataclass(frozen=True, slots=True)
class WorkerView:
    """One owned worker with its verdict of this tick."""

    machine: ListedMachine
    record: MachineRecord
    verdict: Verdict
    latest: Heartbeat | None = None

    @property
    def doomed(self) -> bool:
        """Say whether the machine is deleted or is about to be."""
        return self.record.tombstone or self.verdict.command is CommandKind.VM_DELETE

    @property
    def active(self) -> bool:
        """Say whether it runs and reports RUNNING, draining or not."""
        return (
            self.machine.state is MachineState.ACTIVE
            and self.verdict.heard is Heard.RUNNING
            and not self.doomed
        )

    @property
    def draining(self) -> bool:
        """Say whether it has been told to stop and has not been told otherwise."""
        return (
            self.record.last is CommandKind.APP_SHUTDOWN
            and self.machine.state is MachineState.ACTIVE
            and self.verdict.command in (CommandKind.APP_SHUTDOWN, CommandKind.VM_SUSPEND)
        )

    @property
    def sleeping(self) -> bool:
        """Say whether it is suspended and meant to be."""
        return self.machine.state is MachineState.SUSPENDED and self.record.last in (
            None,
            CommandKind.VM_SUSPEND,
        )

    @property
    def arriving(self) -> bool:
        """Say whether it is on its way to RUNNING and not late."""
        if self.doomed or self.active or self.verdict.late:
            return False
        if self.verdict.heard is Heard.SUSPECT:
            return False
        if self.verdict.command is CommandKind.APP_INIT:
            return True
        starting = self.record.last in (
            CommandKind.VM_CREATE,
            CommandKind.VM_RESUME,
            CommandKind.APP_INIT,
        )
        return starting or (self.record.last is None and self.machine.state in _RISING)

    @property
    def blocks_as_starting(self) -> bool:
        """Say whether a start is in time, or ends late in this very tick."""
        starting = self.record.last in (CommandKind.VM_CREATE, CommandKind.VM_RESUME)
        return starting and (not self.verdict.late or self.doomed)

    @property
    def sample(self) -> WorkerSample:
        """Return what it contributes to the measurement."""
        assert self.latest is not None
        return WorkerSample(self.latest.threads, self.latest.mean_job_ms)
