"""Neighbours' wire messages to the leader's values, and back."""

from __future__ import annotations

from typing import Final

from tenure.admission.v1 import admission_pb2 as apb
from tenure.admission.v1 import lease_pb2 as lpb
from tenure.registry.v1 import agent_pb2 as gpb
from tenure.slottable.v1 import reservation_pb2 as rpb
from tenure.slottable.v1 import slottable_pb2 as spb
from tenure.type.v1 import work_pb2
from tenure_core.enactment.commands import Verb
from tenure_core.enactment.ranks import Report, ReportKind
from tenure_core.leases.lease import (
    Advance,
    BestEffort,
    Deadline,
    Dependency,
    DependencyCondition,
    HistoryEntry,
    Immediate,
    Lease,
    LeaseSpec,
    OnFailure,
    OnLoss,
    Placement,
    Terms,
    Work,
)
from tenure_core.leases.states import LeaseState
from tenure_core.planning.snapshot import ReservationKind, ReservationView
from tenure_core.resources import ResourceVector
from tenure_core.slots import commit
from tenure_core.timebase import Millis
from tenure_runtime.rpc.wire import (
    bare,
    from_interval,
    span_to_millis,
    to_duration,
    to_interval,
    to_millis,
    to_timestamp,
)
from tenure_scheduler.entries import (
    AgentEntry,
    AgentState,
    ChangeVerdict,
    CounterOffer,
    Dispatch,
    LeaseEntry,
    Prediction,
    RequestedChange,
    RowChange,
    SubmitGroup,
    Transition,
)

COMMAND_VALID_MS: Final[dict[Verb, Millis]] = {
    Verb.START: 60_000,
    Verb.SUSPEND: 3_600_000,
    Verb.RESUME: 3_600_000,
    Verb.STOP: 24 * 3_600_000,
}
"""How long after its dispatch a command may still be begun."""

_STATES: Final = {
    number: LeaseState(name.removeprefix("STATE_"))
    for name, number in lpb.Lease.State.items()
    if number
}
_NUMBERS: Final = {state: number for number, state in _STATES.items()}
_KINDS: Final = {
    number: ReservationKind(name.removeprefix("RESERVATION_KIND_"))
    for name, number in work_pb2.ReservationKind.items()
    if number
}
_REPORTS: Final = {
    number: ReportKind(name.removeprefix("KIND_"))
    for name, number in gpb.Report.Kind.items()
    if number
}
_ON_LOSS: Final = {OnLoss.STOP: work_pb2.ON_LOSS_STOP, OnLoss.KEEP: work_pb2.ON_LOSS_KEEP}


# Leases


def from_state(state: LeaseState) -> lpb.Lease.State.ValueType:
    """Return a state for the wire."""
    return _NUMBERS[state]


def to_state(number: lpb.Lease.State.ValueType) -> LeaseState:
    """Return a lease's state."""
    return _STATES[number]


def to_lease(wire: lpb.Lease) -> LeaseEntry:
    """Return a lease as admission tells it."""
    lease = Lease(
        id=bare(wire.name),
        spec=_to_spec(wire),
        state=_STATES[wire.state],
        created=to_millis(wire.create_time),
        version=wire.version,
        attempt=wire.attempt,
        reason=wire.reason,
        message=wire.message,
        started=to_millis(wire.start_time) if wire.HasField("start_time") else None,
        ended=to_millis(wire.end_time) if wire.HasField("end_time") else None,
        remaining_ms=span_to_millis(wire.remaining_duration),
        placements=tuple(
            Placement(p.rank, bare(p.node), to_interval(p.interval)) for p in wire.placements
        ),
        exit_code=wire.exit_code if wire.HasField("exit_code") else None,
        preemptions=wire.preemption_count,
        history=tuple(_to_entry(entry) for entry in wire.history),
        failures=wire.failure_count,
    )
    return LeaseEntry(lease, wire.trace_parent, _to_change(wire))


def _to_entry(wire: lpb.Transition) -> HistoryEntry:
    return HistoryEntry(
        at=to_millis(wire.record_time),
        state=_STATES[wire.state],
        reason=wire.reason,
        message=wire.message,
        attempt=wire.attempt,
        transition_id=wire.transition_id,
    )


def _to_spec(wire: lpb.Lease) -> LeaseSpec:
    work = wire.work
    return LeaseSpec(
        owner=wire.owner,
        project=wire.project,
        pool=wire.pool,
        terms=_to_terms(wire.terms),
        node_count=wire.node_count,
        amounts=ResourceVector(wire.amounts),
        duration_ms=span_to_millis(wire.duration),
        priority=wire.priority,
        preemptible=wire.preemptible,
        work=Work(tuple(work.command), dict(work.environment), work.image),
        on_failure=(
            OnFailure.RESTART if wire.on_failure == lpb.Lease.ON_FAILURE_RESTART else OnFailure.FAIL
        ),
        max_attempts=max(wire.max_attempts, 1),
        on_loss=OnLoss.KEEP if wire.on_loss == work_pb2.ON_LOSS_KEEP else OnLoss.STOP,
        dependencies=tuple(
            Dependency(
                bare(d.lease),
                DependencyCondition.ENDED
                if d.condition == lpb.Dependency.CONDITION_ENDED
                else DependencyCondition.SUCCEEDED,
            )
            for d in wire.dependencies
        ),
        labels=dict(wire.labels),
        node_selector=dict(wire.node_selector),
        spread=wire.spread,
        stop_grace_ms=span_to_millis(wire.stop_grace_duration),
    )


def _to_terms(wire: lpb.Terms) -> Terms:
    match wire.WhichOneof("kind"):
        case "immediate":
            return Immediate()
        case "advance":
            return Advance(to_millis(wire.advance.start_time))
        case "deadline":
            earliest = wire.deadline.earliest_start_time
            has_earliest = wire.deadline.HasField("earliest_start_time")
            return Deadline(
                to_millis(wire.deadline.deadline_time),
                to_millis(earliest) if has_earliest else None,
            )
        case _:
            return BestEffort()


def _to_change(wire: lpb.Lease) -> RequestedChange | None:
    change = wire.pending_change
    if not wire.HasField("pending_change") or change.verdict:
        return None
    return RequestedChange(
        change.change_id,
        span_to_millis(change.duration) if change.HasField("duration") else None,
        to_millis(change.start_time) if change.HasField("start_time") else None,
        change.node_count,
        change.priority if change.HasField("priority") else None,
    )


def from_transition(transition: Transition) -> apb.TransitionRequest:
    """Return a transition for the wire."""
    wire = apb.TransitionRequest(
        transition_id=transition.id,
        lease=f"leases/{transition.lease}",
        version=transition.version,
        state=from_state(transition.state),
        reason=transition.reason,
        message=transition.message,
        attempt=transition.attempt,
        placements=[
            lpb.Placement(rank=p.rank, node=f"nodes/{p.node}", interval=from_interval(p.interval))
            for p in transition.placements
        ],
        exit_code=transition.exit_code,
        preempted=transition.preempted,
        failed=transition.failed,
    )
    if transition.charge is not None:
        wire.charge_interval.CopyFrom(from_interval(transition.charge))
    if transition.predicted_start is not None:
        wire.predicted_start_time.CopyFrom(to_timestamp(transition.predicted_start))
    if transition.started is not None:
        wire.start_time.CopyFrom(to_timestamp(transition.started))
    if transition.ended is not None:
        wire.end_time.CopyFrom(to_timestamp(transition.ended))
    if transition.remaining_ms is not None:
        wire.remaining_duration.CopyFrom(to_duration(transition.remaining_ms))
    if transition.change is not None:
        wire.change_verdict.CopyFrom(_from_change(transition.change))
    return wire


def _from_change(verdict: ChangeVerdict) -> lpb.PendingChange:
    change = verdict.change
    wire = lpb.PendingChange(
        change_id=change.id,
        node_count=change.node_count,
        priority=change.priority,
        verdict=(
            lpb.PendingChange.VERDICT_GRANTED
            if verdict.granted
            else lpb.PendingChange.VERDICT_REFUSED
        ),
        reason=verdict.reason,
        message=verdict.message,
        counter_offers=[_from_offer(offer) for offer in verdict.offers],
    )
    if change.duration_ms is not None:
        wire.duration.CopyFrom(to_duration(change.duration_ms))
    if change.start is not None:
        wire.start_time.CopyFrom(to_timestamp(change.start))
    return wire


def _from_offer(offer: CounterOffer) -> lpb.CounterOffer:
    wire = lpb.CounterOffer(node_count=offer.node_count)
    if offer.start is not None:
        wire.start_time.CopyFrom(to_timestamp(offer.start))
    if offer.duration_ms is not None:
        wire.duration.CopyFrom(to_duration(offer.duration_ms))
    return wire


def from_prediction(prediction: Prediction) -> apb.Prediction:
    """Return a prediction for the wire."""
    wire = apb.Prediction(
        lease=f"leases/{prediction.lease}",
        queue_position=prediction.position,
        reason=prediction.reason,
        message=prediction.message,
    )
    if prediction.start is not None:
        wire.predicted_start_time.CopyFrom(to_timestamp(prediction.start))
    return wire


# Slots


def to_row(wire: rpb.Reservation) -> ReservationView:
    """Return a reservation."""
    return ReservationView(
        id=bare(wire.name),
        lease=bare(wire.lease),
        attempt=wire.attempt,
        rank=wire.rank,
        node=bare(wire.node),
        interval=to_interval(wire.interval),
        amounts=ResourceVector(wire.amounts),
        kind=_KINDS[wire.kind],
        displaced=wire.displaced,
        version=wire.version,
    )


def from_row(row: ReservationView, pool: str) -> rpb.Reservation:
    """Return a reservation to book."""
    return rpb.Reservation(
        name=f"reservations/{row.id}",
        pool=pool,
        node=f"nodes/{row.node}",
        lease=f"leases/{row.lease}",
        attempt=row.attempt,
        rank=row.rank,
        kind=work_pb2.ReservationKind.Value(f"RESERVATION_KIND_{row.kind.value}"),
        interval=from_interval(row.interval),
        amounts=dict(row.amounts),
    )


def to_node(wire: rpb.Node) -> commit.Node:
    """Return a node."""
    return commit.Node(
        id=bare(wire.name),
        pool=wire.pool,
        capacity=tuple(
            (
                to_millis(change.start_time) if change.HasField("start_time") else 0,
                ResourceVector(change.amounts),
            )
            for change in wire.capacity
        ),
        state=commit.NodeState(rpb.Node.State.Name(wire.state).removeprefix("STATE_")),
        node_type=wire.node_type,
        attributes=dict(wire.attributes),
        agent=bare(wire.agent),
        agent_incarnation=wire.agent_incarnation,
        suspended_keeps=tuple(wire.suspended_keeps),
        version=wire.version,
    )


def from_node(node: commit.Node) -> rpb.Node:
    """Return a node to set."""
    return rpb.Node(
        name=f"nodes/{node.id}",
        pool=node.pool,
        node_type=node.node_type,
        attributes=node.attributes,
        capacity=[
            rpb.CapacityChange(
                start_time=to_timestamp(since) if since else None, amounts=dict(amounts)
            )
            for since, amounts in node.capacity
        ],
        agent=f"agents/{node.agent}" if node.agent else "",
        agent_incarnation=node.agent_incarnation,
        suspended_keeps=node.suspended_keeps,
    )


def to_row_change(wire: spb.WatchReservationsResponse) -> RowChange:
    """Return an event of slottable's feed."""
    at = to_millis(wire.as_of) if wire.HasField("as_of") else 0
    return RowChange(
        wire.resume_token,
        at,
        wire.revision,
        row=to_row(wire.reservation) if wire.HasField("reservation") else None,
        released=bare(wire.released_reservation),
        node=to_node(wire.node) if wire.HasField("node") else None,
    )


def from_group(group: SubmitGroup, pool: str) -> rpb.OperationGroup:
    """Return a group of operations for the wire."""
    return rpb.OperationGroup(
        group_id=group.id,
        operations=[_from_operation(operation, pool) for operation in group.operations],
        trace_parent=group.trace_parent,
    )


def _from_operation(operation: commit.RowOperation, pool: str) -> rpb.Operation:
    match operation:
        case commit.BookRow(row):
            return rpb.Operation(book=rpb.BookOperation(reservation=from_row(row, pool)))
        case commit.MoveRow(reservation, version, interval):
            move = rpb.MoveOperation(
                reservation=_named(reservation), version=version, interval=from_interval(interval)
            )
            return rpb.Operation(move=move)
        case commit.ResizeRow(reservation, version, end, amounts):
            resize = rpb.ResizeOperation(
                reservation=_named(reservation),
                version=version,
                end_time=None if end is None else to_timestamp(end),
                amounts=dict(amounts or {}),
            )
            return rpb.Operation(resize=resize)
        case commit.ReleaseRow(reservation, version):
            release = rpb.ReleaseOperation(reservation=_named(reservation), version=version)
            return rpb.Operation(release=release)
        case commit.RebindRow(reservation, version, node, interval):
            rebind = rpb.RebindOperation(
                reservation=_named(reservation),
                version=version,
                node=f"nodes/{node}",
                interval=None if interval is None else from_interval(interval),
            )
            return rpb.Operation(rebind=rebind)
        case commit.DisplaceRow(reservation, version):
            displace = rpb.DisplaceOperation(reservation=_named(reservation), version=version)
            return rpb.Operation(displace=displace)


def _named(reservation: str) -> str:
    return f"reservations/{reservation}"


# Agents


def to_agent(wire: gpb.Agent) -> AgentEntry:
    """Return an agent."""
    return AgentEntry(
        id=bare(wire.name),
        state=AgentState(gpb.Agent.State.Name(wire.state).removeprefix("STATE_")),
        capacity=ResourceVector(wire.capacity),
        attributes=dict(wire.attributes),
        cordoned=wire.cordoned or wire.draining,
        incarnation=wire.incarnation,
        suspended_keeps=tuple(wire.suspended_keeps),
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
            command=spec.work.command, environment=spec.work.environment, image=spec.work.image
        ),
        amounts=dict(spec.amounts),
        on_loss=_ON_LOSS[spec.on_loss],
        stop_grace_duration=to_duration(command.grace_ms),
        node_count=spec.node_count,
        nodes=[f"nodes/{node}" for node in command.nodes],
    )
