"""Wire messages to domain values and back."""

from __future__ import annotations

from collections.abc import Iterable

from tenure.slottable.v1 import reservation_pb2 as rpb
from tenure.slottable.v1 import slottable_pb2 as spb
from tenure.type.v1 import work_pb2
from tenure_core.planning.snapshot import ReservationKind, ReservationView
from tenure_core.resources import ResourceVector
from tenure_core.slots import operations
from tenure_core.slots.query import Demand
from tenure_core.timebase import Millis
from tenure_runtime.rpc.wire import bare, from_interval, to_interval, to_millis, to_timestamp
from tenure_slottable.ports import Change, MaintenanceWindow, Occupancy, StoredRow
from tenure_slottable.usecases import Availability, EarliestStart, NodesResult, PlanResult


def to_row(message: rpb.Reservation) -> ReservationView:
    """Return a reservation that someone wants booked."""
    kind = work_pb2.ReservationKind.Name(message.kind).removeprefix("RESERVATION_KIND_")
    return ReservationView(
        id=bare(message.name),
        lease=bare(message.lease),
        attempt=message.attempt,
        rank=message.rank,
        node=bare(message.node),
        interval=to_interval(message.interval),
        amounts=ResourceVector(message.amounts),
        kind=ReservationKind(kind),
    )


def from_row(row: ReservationView, pool: str, created: Millis | None = None) -> rpb.Reservation:
    """Return a reservation for the wire."""
    return rpb.Reservation(
        name=f"reservations/{row.id}",
        pool=pool,
        node=f"nodes/{row.node}",
        lease=f"leases/{row.lease}"
        if row.lease and row.kind is not ReservationKind.MAINTENANCE
        else "",
        attempt=row.attempt,
        rank=row.rank,
        kind=work_pb2.ReservationKind.Value(f"RESERVATION_KIND_{row.kind.value}"),
        interval=from_interval(row.interval),
        amounts=dict(row.amounts),
        displaced=row.displaced,
        version=row.version,
        create_time=None if created is None else to_timestamp(created),
    )


def from_stored(stored: StoredRow) -> rpb.Reservation:
    """Return a stored reservation for the wire."""
    return from_row(stored.row, stored.pool, stored.created)


def to_group(message: rpb.OperationGroup) -> operations.RowGroup:
    """Return an operation group."""
    return operations.RowGroup(message.group_id, tuple(map(_to_operation, message.operations)))


def _to_operation(message: rpb.Operation) -> operations.RowOperation:
    match message.WhichOneof("kind"):
        case "book":
            return operations.BookRow(to_row(message.book.reservation))
        case "move":
            move = message.move
            return operations.MoveRow(
                bare(move.reservation), move.version, to_interval(move.interval)
            )
        case "resize":
            resize = message.resize
            return operations.ResizeRow(
                bare(resize.reservation),
                resize.version,
                to_millis(resize.end_time) if resize.HasField("end_time") else None,
                ResourceVector(resize.amounts) if resize.amounts else None,
            )
        case "release":
            return operations.ReleaseRow(bare(message.release.reservation), message.release.version)
        case "rebind":
            rebind = message.rebind
            return operations.RebindRow(
                bare(rebind.reservation),
                rebind.version,
                bare(rebind.node),
                to_interval(rebind.interval) if rebind.HasField("interval") else None,
            )
        case "displace":
            return operations.DisplaceRow(
                bare(message.displace.reservation), message.displace.version
            )
        case _:
            raise AssertionError("validation lets only known operations through")


def to_node(message: rpb.Node) -> operations.Node:
    """Return a node that a leader wants set."""
    return operations.Node(
        id=bare(message.name),
        pool=message.pool,
        capacity=tuple(
            (
                to_millis(change.start_time) if change.HasField("start_time") else 0,
                ResourceVector(change.amounts),
            )
            for change in message.capacity
        ),
        node_type=message.node_type,
        attributes=dict(message.attributes),
        agent=bare(message.agent),
        agent_incarnation=message.agent_incarnation,
        suspended_keeps=tuple(message.suspended_keeps),
    )


def from_node(node: operations.Node) -> rpb.Node:
    """Return a node for the wire."""
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
        state=rpb.Node.State.Value(f"STATE_{node.state.value}"),
        agent=f"agents/{node.agent}" if node.agent else "",
        agent_incarnation=node.agent_incarnation,
        suspended_keeps=node.suspended_keeps,
        version=node.version,
    )


def to_demand(message: spb.Demand) -> Demand:
    """Return the shape that is asked for."""
    return Demand(
        ResourceVector(message.amounts),
        max(message.node_count, 1),
        dict(message.node_selector),
        message.spread,
    )


def from_plan_result(result: PlanResult, pool: str) -> spb.SubmitPlanResponse:
    """Return the verdicts for the wire."""
    return spb.SubmitPlanResponse(
        verdicts=[
            spb.GroupVerdict(
                group_id=verdict.group,
                reason=verdict.error.reason if verdict.error else "",
                message=verdict.error.message if verdict.error else "",
                reservations=[from_row(row, pool) for row in verdict.rows],
            )
            for verdict in result.verdicts
        ],
        revision=result.revision,
        as_of=to_timestamp(result.at),
    )


def from_earliest_start(result: EarliestStart) -> spb.FindEarliestStartResponse:
    """Return when and where for the wire."""
    response = spb.FindEarliestStartResponse(
        nodes=[f"nodes/{node}" for node in result.nodes],
        as_of=to_timestamp(result.at),
        revision=result.revision,
    )
    if result.start is None:
        response.reason = "NEVER_FITS"
        response.message = "The pool's nodes can never hold that many slots at once."
    else:
        response.start_time.CopyFrom(to_timestamp(result.start))
    return response


def from_availability(result: Availability) -> spb.GetAvailabilityResponse:
    """Return free slots over time for the wire."""
    return spb.GetAvailabilityResponse(
        windows=[
            spb.AvailabilityWindow(
                interval=from_interval(step.interval), slot_count=min(step.slots, 2**31 - 1)
            )
            for step in result.steps
        ],
        as_of=to_timestamp(result.at),
        revision=result.revision,
    )


def from_nodes_result(result: NodesResult, pool: str) -> spb.SetCapacityResponse:
    """Return nodes and what they displaced for the wire."""
    return spb.SetCapacityResponse(
        nodes=map(from_node, result.nodes),
        displaced_reservations=from_rows(result.displaced, pool),
        revision=result.revision,
    )


def from_rows(rows: Iterable[ReservationView], pool: str) -> list[rpb.Reservation]:
    """Return reservations for the wire."""
    return [from_row(row, pool) for row in rows]


def from_change(change: Change) -> spb.WatchReservationsResponse:
    """Return one change, or a bookmark, for the wire."""
    response = spb.WatchReservationsResponse(resume_token=change.token, revision=change.revision)
    if change.at:
        response.as_of.CopyFrom(to_timestamp(change.at))
    if change.row is not None:
        response.reservation.CopyFrom(from_stored(change.row))
    elif change.released:
        response.released_reservation = f"reservations/{change.released}"
    elif change.node is not None:
        response.node.CopyFrom(from_node(change.node))
    return response


def to_window(message: rpb.MaintenanceWindow, name: str) -> MaintenanceWindow:
    """Return the maintenance window that is asked for, under a new id."""
    return MaintenanceWindow(
        name,
        message.pool,
        tuple(map(bare, message.nodes)),
        to_interval(message.interval),
        message.message,
    )


def from_occupancy(found: Occupancy) -> spb.VerifyOccupancyResponse:
    """Return whether the table is sound, on the wire."""
    return spb.VerifyOccupancyResponse(
        over_commits=[
            spb.OverCommit(
                node=f"nodes/{each.node}",
                resource=each.resource,
                interval=from_interval(each.interval),
                held=each.held,
                capacity=each.capacity,
            )
            for each in found.over_commits
        ],
        node_count=found.nodes,
        reservation_count=found.reservations,
        verify_time=to_timestamp(found.at),
    )


def from_window(window: MaintenanceWindow) -> rpb.MaintenanceWindow:
    """Return a maintenance window for the wire."""
    return rpb.MaintenanceWindow(
        name=f"maintenanceWindows/{window.id}",
        pool=window.pool,
        nodes=[f"nodes/{node}" for node in window.nodes],
        interval=from_interval(window.interval),
        message=window.message,
    )
