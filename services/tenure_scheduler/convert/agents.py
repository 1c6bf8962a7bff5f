"""The registry's agents, reports and commands."""

from __future__ import annotations

from typing import Final

from tenure.registry.v1 import agent_pb2 as gpb
from tenure.type.v1 import work_pb2
from tenure_core.agents.states import AgentState
from tenure_core.agents.work import ReportKind, Verb
from tenure_core.enactment.ranks import Report
from tenure_core.leases.lease import (
    OnLoss,
)
from tenure_core.resources import ResourceVector
from tenure_core.secrets import HIDDEN
from tenure_core.timebase import Millis
from tenure_runtime.rpc.wire import (
    bare,
    span_to_millis,
    to_duration,
)
from tenure_scheduler.entries import (
    AgentEntry,
    Dispatch,
)

COMMAND_VALID_MS: Final[dict[Verb, Millis]] = {
    Verb.START: 60_000,
    Verb.SUSPEND: 3_600_000,
    Verb.RESUME: 3_600_000,
    Verb.STOP: 24 * 3_600_000,
}
"""How long after its dispatch a command may still be begun."""

_REPORTS: Final = {
    number: ReportKind(name.removeprefix("KIND_"))
    for name, number in gpb.Report.Kind.items()
    if number
}
_ON_LOSS: Final = {OnLoss.STOP: work_pb2.ON_LOSS_STOP, OnLoss.KEEP: work_pb2.ON_LOSS_KEEP}


def to_agent(wire: gpb.Agent) -> AgentEntry:
    """Return an agent."""
    return AgentEntry(
        id=bare(wire.name),
        state=AgentState(gpb.Agent.State.Name(wire.state).removeprefix("STATE_")),
        capacity=ResourceVector(wire.capacity),
        attributes=dict(wire.attributes),
        cordoned=wire.cordoned or wire.draining,
        draining=wire.draining,
        incarnation=wire.incarnation,
        suspended_keeps=tuple(wire.suspended_keeps),
        sealing_key=wire.sealing_key,
    )


def to_report(wire: gpb.Report) -> Report:
    """Return a report."""
    return Report(
        lease=bare(wire.lease),
        attempt=wire.attempt,
        rank=wire.rank,
        kind=_REPORTS[wire.kind],
        command=wire.command_id,
        exit_code=wire.exit_code if wire.HasField("exit_code") else None,
        reason=wire.reason,
        message=wire.message,
        run_ms=span_to_millis(wire.run_duration),
    )


def from_dispatch(command: Dispatch) -> gpb.Command:
    """Return a command for the wire."""
    lease = command.lease.lease
    wire = gpb.Command(
        command_id=command.id,
        agent=f"agents/{command.node}",
        lease=f"leases/{lease.id}",
        attempt=command.attempt,
        rank=command.rank,
        valid_duration=to_duration(COMMAND_VALID_MS[command.verb]),
        trace_parent=command.lease.trace_parent,
    )
    match command.verb:
        case Verb.START:
            wire.start.CopyFrom(_from_start(command))
        case Verb.SUSPEND:
            wire.suspend.SetInParent()
        case Verb.RESUME:
            wire.resume.SetInParent()
        case Verb.STOP:
            wire.stop.CopyFrom(
                gpb.StopCommand(grace_duration=to_duration(command.grace_ms), reason=command.reason)
            )
    return wire


def _from_start(command: Dispatch) -> gpb.StartCommand:
    spec = command.lease.lease.spec
    return gpb.StartCommand(
        work=work_pb2.Work(
            command=spec.work.command,
            environment=spec.work.environment,
            image=spec.work.image,
            secrets=dict.fromkeys(spec.work.secrets, HIDDEN),
        ),
        amounts=dict(spec.amounts),
        on_loss=_ON_LOSS[spec.on_loss],
        stop_grace_duration=to_duration(command.grace_ms),
        node_count=spec.node_count,
        nodes=[f"nodes/{node}" for node in command.nodes],
        owner=spec.owner,
        project=spec.project,
        sealed_secrets=command.sealed_secrets,
    )
