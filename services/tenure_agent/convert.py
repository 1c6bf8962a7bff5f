"""Between the wire and the agent's values. Nothing here decides.

Raises `Unreadable` for a command that no agent could carry out; it is refused, not acted on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tenure.registry.v1 import agent_pb2, registry_pb2
from tenure.type.v1.work_pb2 import OnLoss
from tenure_agent.work import Command, Key, Kind, Launch, Observed, Report, State, Verb, is_lease_id
from tenure_runtime.rpc.wire import bare, span_to_millis, to_duration, to_timestamp

VALID_MS_DEFAULT: Final = 60_000
GRACE_MS_DEFAULT: Final = 5_000

_WIRE_STATES: Final = {
    State.STARTING: agent_pb2.Allocation.STATE_STARTING,
    State.RUNNING: agent_pb2.Allocation.STATE_RUNNING,
    State.SUSPENDED: agent_pb2.Allocation.STATE_SUSPENDED,
    State.ENDED: agent_pb2.Allocation.STATE_ENDED,
}
_STATES: Final = {wire: state for state, wire in _WIRE_STATES.items()}
_WIRE_KINDS: Final = {
    Kind.PREPARED: agent_pb2.Report.KIND_PREPARED,
    Kind.STARTED: agent_pb2.Report.KIND_STARTED,
    Kind.SUSPENDED: agent_pb2.Report.KIND_SUSPENDED,
    Kind.RESUMED: agent_pb2.Report.KIND_RESUMED,
    Kind.ENDED: agent_pb2.Report.KIND_ENDED,
    Kind.REFUSED: agent_pb2.Report.KIND_REFUSED,
}


class Unreadable(ValueError):
    """A command that cannot be understood; `command` is as much of it as can be answered."""

    def __init__(self, message: str, command: Command) -> None:
        super().__init__(message)
        self.command = command


def to_command(message: agent_pb2.Command) -> Command:
    """Return a command, or raise Unreadable with what is wrong."""
    kind = message.WhichOneof("kind")
    command = Command(
        id=message.command_id,
        verb=Verb(kind or Verb.PREPARE),
        scope=message.scope,
        epoch=message.epoch,
        session=message.session,
        key=to_key(message),
        valid_ms=_span(message, "valid_duration", VALID_MS_DEFAULT),
        trace_parent=message.trace_parent,
        launch=_to_launch(message.start) if kind == "start" else None,
        grace_ms=_grace(message) if kind == "stop" else None,
        reason=message.stop.reason,
    )
    problem = _problem(command, kind)
    if problem:
        raise Unreadable(problem, command)
    return command


def to_key(message: agent_pb2.Command | agent_pb2.Allocation | registry_pb2.LogRequest) -> Key:
    """Return which allocation a message is about; what is no lease's name stays recognisable."""
    return Key(message.lease.removeprefix("leases/"), message.attempt, message.rank)


def _problem(command: Command, kind: str | None) -> str | None:
    if kind is None:
        return "The command asks for nothing that this version knows."
    if not is_lease_id(command.key.lease):
        return f"{command.key.lease!r} is no lease id."
    if command.key.attempt < 0 or command.key.rank < 0:
        return "Attempts and ranks are not negative."
    launch = command.launch
    if launch is not None:
        words = (*launch.command, *launch.environment, *launch.environment.values())
        if any("\0" in word for word in words):
            return "A command and its environment hold no NUL."
        if any(not name or "=" in name for name in launch.environment):
            return "The name of an environment variable is not empty and holds no '='."
        if launch.command and not launch.command[0]:
            return "The name of a program is not empty."
    return None


def _to_launch(message: agent_pb2.StartCommand) -> Launch:
    return Launch(
        command=tuple(message.work.command),
        environment=dict(message.work.environment),
        keep_on_loss=message.on_loss == OnLoss.ON_LOSS_KEEP,
        grace_ms=_span(message, "stop_grace_duration", GRACE_MS_DEFAULT),
        node_count=message.node_count or 1,
        nodes=tuple(bare(node) for node in message.nodes),
        amounts=dict(message.amounts),
        secrets=tuple(message.work.secrets),
        sealed_secrets=message.sealed_secrets,
    )


def _grace(message: agent_pb2.Command) -> int | None:
    stop = message.stop
    return span_to_millis(stop.grace_duration) if stop.HasField("grace_duration") else None


def _span(message: agent_pb2.Command | agent_pb2.StartCommand, field: str, default_ms: int) -> int:
    # The field names differ by message, which the generated types cannot express.
    if not message.HasField(field):  # type: ignore[arg-type]
        return default_ms
    return max(0, span_to_millis(getattr(message, field)))


def to_wanted(message: registry_pb2.WantedSet) -> tuple[Observed, ...]:
    """Return what shall be on the node."""
    return tuple(
        Observed(to_key(each), _STATES.get(each.state, State.STARTING))
        for each in message.allocations
    )


def from_observed(observed: Observed) -> agent_pb2.Allocation:
    """Return an allocation for the hello."""
    return agent_pb2.Allocation(
        lease=f"leases/{observed.key.lease}",
        attempt=observed.key.attempt,
        rank=observed.key.rank,
        state=_WIRE_STATES[observed.state],
        exit_code=observed.exit_code,
    )


def from_report(report: Report, agent: str) -> agent_pb2.Report:
    """Return a report for the wire."""
    return agent_pb2.Report(
        report_id=report.id,
        agent=f"agents/{agent}",
        command_id=report.command_id,
        lease=f"leases/{report.key.lease}",
        attempt=report.key.attempt,
        rank=report.key.rank,
        kind=_WIRE_KINDS[report.kind],
        exit_code=report.exit_code,
        reason=report.reason,
        message=report.message,
        agent_time=to_timestamp(report.wall_ms),
        run_duration=to_duration(report.run_ms),
        sequence=report.sequence,
    )


def from_reports(reports: Iterable[Report], agent: str) -> registry_pb2.ConnectRequest:
    """Return a batch of reports for the stream."""
    batch = registry_pb2.ReportBatch(reports=[from_report(each, agent) for each in reports])
    return registry_pb2.ConnectRequest(report_batch=batch)
