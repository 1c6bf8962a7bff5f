"""Messages of `tenure.registry.v1` to the core's values and back.

A command's and a report's content is opaque to the registry: it travels as the bytes of its own
message, and only what decides something is taken out of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

from tenure.registry.v1 import agent_pb2, application_pb2, registry_pb2
from tenure.type.v1 import work_pb2
from tenure_core.agents.agent import Agent, Claim, Load, believed_capacity
from tenure_core.agents.states import AgentState
from tenure_core.agents.work import (
    Allocation,
    AllocationState,
    Command,
    Report,
    ReportKind,
    Slot,
    Verb,
)
from tenure_core.leases.lease import OnLoss
from tenure_core.timebase import Millis
from tenure_registry.values import (
    ApplicationOrder,
    LogPart,
    LogRequest,
    Opened,
    Outgoing,
    StoredApplication,
)
from tenure_runtime.rpc.wire import bare, to_duration, to_timestamp

VALID_MS_DEFAULT: Final[Millis] = 60_000

_STATES: Final = {
    state: agent_pb2.Agent.State.Value(f"STATE_{state.value}") for state in AgentState
}
_STATE_OF: Final = {number: state for state, number in _STATES.items()}
_ALLOCATION_STATES: Final = {
    state: agent_pb2.Allocation.State.Value(f"STATE_{state.value}") for state in AllocationState
}
_KINDS: Final = {agent_pb2.Report.Kind.Value(f"KIND_{kind.value}"): kind for kind in ReportKind}


def state_of(number: int) -> AgentState | None:
    """Return the state with a wire number; None for none of ours."""
    return _STATE_OF.get(agent_pb2.Agent.State.ValueType(number))


def claim_of(hello: registry_pb2.Hello, limits: Mapping[str, int]) -> Claim:
    """Return what a valid hello claims, cut to what is believed."""
    return Claim(
        agent=bare(hello.agent),
        pool=hello.pool.removeprefix("pools/"),
        incarnation=hello.incarnation,
        version=hello.version,
        capacity=believed_capacity(hello.capacity, limits),
        attributes=tuple(sorted(hello.attributes.items())),
        suspended_keeps=tuple(sorted(set(hello.suspended_keeps))),
        sealing_key=hello.sealing_key,
    )


def present_of(hello: registry_pb2.Hello) -> frozenset[Slot]:
    """Return the slots that an agent says are on its node."""
    return frozenset(Slot(bare(a.lease), a.attempt, a.rank) for a in hello.allocations)


def load_of(beat: registry_pb2.Heartbeat) -> Load | None:
    """Return the load in a beat, if it carries one."""
    if not beat.HasField("load"):
        return None
    return Load(beat.load.cpu_permille, beat.load.memory_bytes, beat.load.running_count)


def application_message(stored: StoredApplication) -> application_pb2.Application:
    """Return what is known of an application as a message."""
    return application_pb2.Application(
        agent=f"agents/{stored.agent}",
        incarnation=stored.incarnation,
        sequence=stored.sequence,
        age_duration=to_duration(stored.age_ms),
        report=application_pb2.ApplicationReport.FromString(stored.report),
        order_id=stored.order_id,
    )


def application_order_of(order: application_pb2.ApplicationOrder) -> ApplicationOrder:
    """Return what a valid message says that an application shall be."""
    body = order.SerializeToString(deterministic=True)
    return ApplicationOrder(bare(order.agent), order.incarnation, order.order_id, body)


def application_order_response(body: bytes) -> registry_pb2.ConnectResponse:
    """Return an order as it is sent to an agent."""
    order = application_pb2.ApplicationOrder.FromString(body)
    return registry_pb2.ConnectResponse(application_order=order)


def agent_message(
    agent: Agent, allocations: tuple[Allocation, ...] = (), load: Load | None = None
) -> agent_pb2.Agent:
    """Return an agent as a message."""
    return agent_pb2.Agent(
        name=f"agents/{agent.agent}",
        pool=agent.pool,
        node=f"nodes/{agent.agent}",
        incarnation=agent.incarnation,
        state=_STATES[agent.state],
        cordoned=agent.cordoned,
        draining=agent.draining,
        capacity=dict(agent.capacity.items()),
        attributes=dict(agent.attributes),
        suspended_keeps=agent.suspended_keeps,
        version=agent.version,
        session=agent.session,
        heartbeat_time=to_timestamp(agent.contact_ms),
        change_time=to_timestamp(agent.changed_ms),
        load=None if load is None else load_message(load),
        allocations=[allocation_message(allocation) for allocation in allocations],
        sealing_key=agent.sealing_key,
    )


def load_message(load: Load) -> agent_pb2.Load:
    """Return a load as a message."""
    return agent_pb2.Load(
        cpu_permille=load.cpu_permille,
        memory_bytes=load.memory_bytes,
        running_count=load.running_count,
    )


def allocation_message(allocation: Allocation) -> agent_pb2.Allocation:
    """Return an allocation as a message."""
    return agent_pb2.Allocation(
        lease=f"leases/{allocation.slot.lease}",
        attempt=allocation.slot.attempt,
        rank=allocation.slot.rank,
        state=_ALLOCATION_STATES[allocation.state],
    )


def command_of(message: agent_pb2.Command, scope: str, epoch: int) -> Command:
    """Return a valid command under its dispatch's scope and epoch."""
    kind = message.WhichOneof("kind")
    assert kind is not None, "validated"
    valid_ms = VALID_MS_DEFAULT
    if message.HasField("valid_duration"):
        valid_ms = message.valid_duration.ToMilliseconds()
    on_loss = OnLoss.STOP
    if kind == "start" and message.start.on_loss == work_pb2.ON_LOSS_KEEP:
        on_loss = OnLoss.KEEP
    owner, project = message.start.owner, message.start.project
    asked = agent_pb2.Command()
    asked.CopyFrom(message)
    for name in ("scope", "epoch", "session", "trace_parent", "valid_duration"):
        asked.ClearField(name)
    if kind == "start":
        # They follow from the lease, and a leader of an older version repeats a START without.
        asked.start.ClearField("owner")
        asked.start.ClearField("project")
    digest = hashlib.sha256(asked.SerializeToString(deterministic=True)).digest()
    body = agent_pb2.Command()
    body.CopyFrom(message)
    body.scope, body.epoch = scope, epoch
    return Command(
        command_id=message.command_id,
        agent=bare(message.agent),
        slot=Slot(bare(message.lease), message.attempt, message.rank),
        verb=Verb(kind.upper()),
        epoch=epoch,
        valid_ms=valid_ms,
        on_loss=on_loss,
        digest=digest,
        body=body.SerializeToString(),
        owner=owner,
        project=project,
    )


def command_response(outgoing: Outgoing, session: str) -> registry_pb2.ConnectResponse:
    """Return a command as it goes to its agent, with the time that is left of its validity."""
    response = registry_pb2.ConnectResponse()
    response.command.MergeFromString(outgoing.command.body)
    response.command.session = session
    response.command.valid_duration.CopyFrom(to_duration(outgoing.remaining_ms))
    return response


def report_of(message: agent_pb2.Report, agent: str) -> Report:
    """Return a valid report of the agent whose stream brought it."""
    body = agent_pb2.Report()
    body.CopyFrom(message)
    body.agent = f"agents/{agent}"
    return Report(
        report_id=message.report_id,
        agent=agent,
        command_id=message.command_id,
        slot=Slot(bare(message.lease), message.attempt, message.rank),
        kind=_KINDS[message.kind],
        sequence=message.sequence,
        body=body.SerializeToString(),
    )


def report_message(report: Report) -> agent_pb2.Report:
    """Return a report as a message."""
    return agent_pb2.Report.FromString(report.body)


def lost_report(allocation: Allocation, session: str) -> Report:
    """Return the registry's own terminal report of an allocation whose agent was lost."""
    slot = allocation.slot
    sequence = allocation.last.sequence + 1 if allocation.last else 1
    message = agent_pb2.Report(
        report_id=f"lost.{session or 'gone'}.{slot.lease}.{slot.attempt}.{slot.rank}",
        agent=f"agents/{allocation.agent}",
        lease=f"leases/{slot.lease}",
        attempt=slot.attempt,
        rank=slot.rank,
        kind=agent_pb2.Report.KIND_LOST,
        reason="AGENT_LOST",
        message="The agent was out of contact for too long; its work is past its fence.",
        sequence=sequence,
    )
    return Report(
        message.report_id,
        allocation.agent,
        "",
        slot,
        ReportKind.LOST,
        sequence,
        message.SerializeToString(),
    )


def session_response(
    opened: Opened, heartbeat_ms: Millis, fence_ms: Millis, loss_ms: Millis
) -> registry_pb2.ConnectResponse:
    """Return the answer to a hello."""
    return registry_pb2.ConnectResponse(
        session=registry_pb2.Session(
            session=opened.agent.session,
            heartbeat_period=to_duration(heartbeat_ms),
            fence_duration=to_duration(fence_ms),
            loss_duration=to_duration(loss_ms),
            epochs=dict(opened.epochs),
        )
    )


def wanted_response(opened: Opened) -> registry_pb2.ConnectResponse:
    """Return all that shall be on the agent's node."""
    wanted = registry_pb2.WantedSet(allocations=[allocation_message(a) for a in opened.wanted])
    return registry_pb2.ConnectResponse(wanted_set=wanted)


def log_request_response(request: LogRequest) -> registry_pb2.ConnectResponse:
    """Return what is asked of an agent about a log."""
    return registry_pb2.ConnectResponse(
        log_request=registry_pb2.LogRequest(
            log_request_id=request.request_id,
            lease=f"leases/{request.slot.lease}",
            attempt=request.slot.attempt,
            rank=request.slot.rank,
            offset=request.offset,
            follow=request.follow,
            cancel=request.cancel,
        )
    )


def log_part_of(chunk: registry_pb2.LogChunk) -> LogPart:
    """Return a part of a log."""
    return LogPart(chunk.log_request_id, chunk.offset, chunk.data, chunk.end, chunk.reason)
