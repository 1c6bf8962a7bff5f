"""Slottable's reservations, nodes and operations."""

from __future__ import annotations

from typing import Final

from tenure.slottable.v1 import reservation_pb2 as rpb
from tenure.slottable.v1 import slottable_pb2 as spb
from tenure.type.v1 import work_pb2
from tenure_core.planning.snapshot import ReservationKind, ReservationView
from tenure_core.resources import ResourceVector
from tenure_core.slots import operations
from tenure_runtime.rpc.wire import (
    bare,
    from_interval,
    to_interval,
    to_millis,
    to_timestamp,
)
from tenure_scheduler.entries import (
    RowChange,
    SubmitGroup,
)

_KINDS: Final = {
    number: ReservationKind(name.removeprefix("RESERVATION_KIND_"))
    for name, number in work_pb2.ReservationKind.items()
    if number
}


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


def to_node(wire: rpb.Node) -> operations.Node:
    """Return a node."""
    return operations.Node(
        id=bare(wire.name),
        pool=wire.pool,
        capacity=tuple(
            (
                to_millis(change.start_time) if change.HasField("start_time") else 0,
                ResourceVector(change.amounts),
            )
            for change in wire.capacity
        ),
        state=operations.NodeState(rpb.Node.State.Name(wire.state).removeprefix("STATE_")),
        node_type=wire.node_type,
        attributes=dict(wire.attributes),
        agent=bare(wire.agent),
        agent_incarnation=wire.agent_incarnation,
        suspended_keeps=tuple(wire.suspended_keeps),
        version=wire.version,
    )


def from_node(node: operations.Node) -> rpb.Node:
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


def _from_operation(operation: operations.RowOperation, pool: str) -> rpb.Operation:
    match operation:
        case operations.BookRow(row):
            return rpb.Operation(book=rpb.BookOperation(reservation=from_row(row, pool)))
        case operations.MoveRow(reservation, version, interval):
            move = rpb.MoveOperation(
                reservation=_named(reservation), version=version, interval=from_interval(interval)
            )
            return rpb.Operation(move=move)
        case operations.ResizeRow(reservation, version, end, amounts):
            resize = rpb.ResizeOperation(
                reservation=_named(reservation),
                version=version,
                end_time=None if end is None else to_timestamp(end),
                amounts=dict(amounts or {}),
            )
            return rpb.Operation(resize=resize)
        case operations.ReleaseRow(reservation, version):
            release = rpb.ReleaseOperation(reservation=_named(reservation), version=version)
            return rpb.Operation(release=release)
        case operations.RebindRow(reservation, version, node, interval):
            rebind = rpb.RebindOperation(
                reservation=_named(reservation),
                version=version,
                node=f"nodes/{node}",
                interval=None if interval is None else from_interval(interval),
            )
            return rpb.Operation(rebind=rebind)
        case operations.DisplaceRow(reservation, version):
            displace = rpb.DisplaceOperation(reservation=_named(reservation), version=version)
            return rpb.Operation(displace=displace)


def _named(reservation: str) -> str:
    return f"reservations/{reservation}"
