"""The slot table on the wire: unpack, validate, one use case, pack."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, Final

import grpc
from google.protobuf.message import Message

from tenure.slottable.v1 import slottable_pb2 as spb
from tenure.slottable.v1 import slottable_pb2_grpc
from tenure.type.v1 import service_info_pb2
from tenure_core.timebase import DAY_MS
from tenure_runtime.ids import RandomIds
from tenure_runtime.rpc.identity import Permissions, Role, current_identity
from tenure_runtime.rpc.paging import decode_page_token, encode_page_token, page_size
from tenure_runtime.rpc.wire import bare, span_to_millis, to_interval, to_millis, to_timestamp
from tenure_runtime.telemetry.tracing import span_in_each
from tenure_slottable import convert, validation
from tenure_slottable.ports import RowFilter
from tenure_slottable.repeats import PlanRepeat, WindowRepeat
from tenure_slottable.usecases import LeaderClaim, SlotTableUseCases, pool_of_scope

SERVICE: Final = "tenure.slottable.v1.SlotTableService"
OVER_COMMITS_MAX: Final = 1_000
_EVERYONE: Final = (Role.USER, Role.OPERATOR, Role.SERVICE)
_LEADERS: Final = (Role.SERVICE,)
_OPERATORS: Final = (Role.OPERATOR, Role.SERVICE)
PERMISSIONS: Final = Permissions.of(
    SERVICE,
    {
        "GetAvailability": _EVERYONE,
        "FindEarliestStart": _EVERYONE,
        "SubmitPlan": _LEADERS,
        "ListReservations": _OPERATORS,
        "WatchReservations": _OPERATORS,
        "ListNodes": _EVERYONE,
        "SetCapacity": _LEADERS,
        "RetireNode": _LEADERS,
        "UnretireNode": _LEADERS,
        "AcquireEpoch": _LEADERS,
        "CreateMaintenanceWindow": _OPERATORS,
        "ListMaintenanceWindows": _EVERYONE,
        "DeleteMaintenanceWindow": _OPERATORS,
        "GetTableStatus": _EVERYONE,
        "VerifyOccupancy": _OPERATORS,
        "GetServiceInfo": _EVERYONE,
    },
)
Context = grpc.aio.ServicerContext[Any, Any]


class SlotTableServicer(slottable_pb2_grpc.SlotTableServiceServicer):
    """Every call of the contract."""

    def __init__(self, usecases: SlotTableUseCases, info: service_info_pb2.ServiceInfo) -> None:
        self._usecases = usecases
        self._info = info

    async def GetAvailability(
        self, request: spb.GetAvailabilityRequest, context: Context
    ) -> spb.GetAvailabilityResponse:
        """Say how many slots of a shape are free, over a span."""
        validation.check_demand(request)
        span = to_interval(request.interval) if request.HasField("interval") else None
        demand = convert.to_demand(request.demand)
        return convert.from_availability(
            await self._usecases.availability(request.pool, demand, span, DAY_MS)
        )

    async def FindEarliestStart(
        self, request: spb.FindEarliestStartRequest, context: Context
    ) -> spb.FindEarliestStartResponse:
        """Find the first instant from which a shape is free."""
        validation.check_demand(request)
        after = to_millis(request.not_before_time) if request.HasField("not_before_time") else None
        result = await self._usecases.earliest_start(
            request.pool, convert.to_demand(request.demand), span_to_millis(request.duration), after
        )
        return convert.from_earliest_start(result)

    async def SubmitPlan(
        self, request: spb.SubmitPlanRequest, context: Context
    ) -> spb.SubmitPlanResponse:
        """Commit a leader's plan."""
        validation.check_plan(request)
        repeat = PlanRepeat(_caller(), request.request_id, _arguments(request))
        with span_in_each("slottable.commit_group") as note:
            for group in request.groups:
                note(group.trace_parent, group=group.group_id, operations=len(group.operations))
            result = await self._usecases.submit_plan(
                LeaderClaim(request.scope, request.epoch),
                [convert.to_group(group) for group in request.groups],
                repeat,
            )
        return convert.from_plan_result(result, pool_of_scope(request.scope))

    async def ListReservations(
        self, request: spb.ListReservationsRequest, context: Context
    ) -> spb.ListReservationsResponse:
        """Return reservations, a page at a time."""
        arguments = _arguments(request)
        size = page_size(request.page_size, default=100, maximum=5_000)
        cursor = decode_page_token(request.page_token, arguments)
        if request.HasField("interval"):
            validation.check_span(request.interval)
        span = to_interval(request.interval) if request.HasField("interval") else None
        listing = await self._usecases.rows(
            RowFilter(
                request.pool,
                bare(request.node),
                bare(request.lease),
                span,
                after=str(cursor[0]) if cursor else "",
                limit=size + 1,
            )
        )
        page = listing.rows[:size]
        more = len(listing.rows) > size
        return spb.ListReservationsResponse(
            reservations=map(convert.from_stored, page),
            next_page_token=encode_page_token([page[-1].row.id], arguments) if more else "",
            resume_token=listing.token,
            as_of=to_timestamp(listing.at),
            revision=listing.revision,
        )

    async def WatchReservations(
        self, request: spb.WatchReservationsRequest, context: Context
    ) -> AsyncIterator[spb.WatchReservationsResponse]:
        """Stream each change after the resume token."""
        watching: Any = self._usecases.watch(request.pool, request.resume_token)
        async with aclosing(watching) as changes:
            async for change in changes:
                yield convert.from_change(change)

    async def ListNodes(
        self, request: spb.ListNodesRequest, context: Context
    ) -> spb.ListNodesResponse:
        """Return nodes, a page at a time."""
        arguments = _arguments(request)
        size = page_size(request.page_size, default=100, maximum=5_000)
        cursor = decode_page_token(request.page_token, arguments)
        nodes = await self._usecases.nodes(
            request.pool,
            str(cursor[0]) if cursor else "",
            size + 1,
            include_retired=request.include_retired,
        )
        more = len(nodes) > size
        return spb.ListNodesResponse(
            nodes=map(convert.from_node, nodes[:size]),
            next_page_token=encode_page_token([nodes[size - 1].id], arguments) if more else "",
        )

    async def SetCapacity(
        self, request: spb.SetCapacityRequest, context: Context
    ) -> spb.SetCapacityResponse:
        """Create nodes or replace their capacity."""
        validation.check_capacity(request)
        result = await self._usecases.set_capacity(
            LeaderClaim(request.scope, request.epoch),
            [convert.to_node(node) for node in request.nodes],
            cordoned=request.cordoned,
            pool=request.pool,
        )
        pool = pool_of_scope(request.scope) or request.pool
        return convert.from_nodes_result(result, pool)

    async def RetireNode(
        self, request: spb.RetireNodeRequest, context: Context
    ) -> spb.RetireNodeResponse:
        """Close a node for good."""
        validation.check_node_claim(request.scope, request.epoch, request.node)
        claim = LeaderClaim(request.scope, request.epoch)
        result = await self._usecases.retire_node(
            claim, bare(request.node), if_unbooked=request.if_unbooked
        )
        [node] = result.nodes
        return spb.RetireNodeResponse(
            node=convert.from_node(node),
            displaced_reservations=convert.from_rows(result.displaced, node.pool),
        )

    async def UnretireNode(
        self, request: spb.UnretireNodeRequest, context: Context
    ) -> spb.UnretireNodeResponse:
        """Open a retired node again."""
        validation.check_node_claim(request.scope, request.epoch, request.node)
        claim = LeaderClaim(request.scope, request.epoch)
        result = await self._usecases.unretire_node(claim, bare(request.node))
        [node] = result.nodes
        return spb.UnretireNodeResponse(node=convert.from_node(node))

    async def AcquireEpoch(
        self, request: spb.AcquireEpochRequest, context: Context
    ) -> spb.AcquireEpochResponse:
        """Return an epoch larger than any before."""
        validation.check_scope(request.scope)
        epoch = await self._usecases.acquire_epoch(request.scope, request.holder)
        return spb.AcquireEpochResponse(epoch=epoch)

    async def CreateMaintenanceWindow(
        self, request: spb.CreateMaintenanceWindowRequest, context: Context
    ) -> spb.CreateMaintenanceWindowResponse:
        """Take nodes out of use for a span."""
        validation.check_window(request.maintenance_window)
        arguments = _arguments(request)
        name = request.request_id or RandomIds().request_id()
        window = convert.to_window(request.maintenance_window, name)
        displaced = await self._usecases.create_window(
            window,
            WindowRepeat(_caller(), request.request_id, arguments),
            validate_only=request.validate_only,
        )
        return spb.CreateMaintenanceWindowResponse(
            maintenance_window=convert.from_window(window),
            displaced_reservations=convert.from_rows(displaced, window.pool),
        )

    async def ListMaintenanceWindows(
        self, request: spb.ListMaintenanceWindowsRequest, context: Context
    ) -> spb.ListMaintenanceWindowsResponse:
        """Return maintenance windows, a page at a time."""
        arguments = _arguments(request)
        size = page_size(request.page_size, default=100, maximum=1_000)
        cursor = decode_page_token(request.page_token, arguments)
        after = str(cursor[0]) if cursor else ""
        windows = await self._usecases.windows(request.pool, after, size + 1)
        more = len(windows) > size
        return spb.ListMaintenanceWindowsResponse(
            maintenance_windows=map(convert.from_window, windows[:size]),
            next_page_token=encode_page_token([windows[size - 1].id], arguments) if more else "",
        )

    async def DeleteMaintenanceWindow(
        self, request: spb.DeleteMaintenanceWindowRequest, context: Context
    ) -> spb.DeleteMaintenanceWindowResponse:
        """End or forget a maintenance window."""
        await self._usecases.delete_window(bare(request.name))
        return spb.DeleteMaintenanceWindowResponse()

    async def GetTableStatus(
        self, request: spb.GetTableStatusRequest, context: Context
    ) -> spb.GetTableStatusResponse:
        """Say how far a pool's table is."""
        validation.check_pools([request.pool])
        status = await self._usecases.status(request.pool)
        return spb.GetTableStatusResponse(
            revision=status.revision,
            as_of=to_timestamp(status.at),
            epoch=status.epoch.epoch,
            epoch_holder=status.epoch.holder,
            node_count=status.nodes,
            reservation_count=status.reservations,
        )

    async def VerifyOccupancy(
        self, request: spb.VerifyOccupancyRequest, context: Context
    ) -> spb.VerifyOccupancyResponse:
        """Compare what is held with what there is."""
        return convert.from_occupancy(
            await self._usecases.occupancy(request.pool, OVER_COMMITS_MAX)
        )

    async def GetServiceInfo(
        self, request: spb.GetServiceInfoRequest, context: Context
    ) -> spb.GetServiceInfoResponse:
        """Say which program answers."""
        return spb.GetServiceInfoResponse(info=self._info)


def _caller() -> str:
    return current_identity().name


def _arguments(request: Message) -> bytes:
    """Return the request's bytes without what differs between repeats and pages."""
    plain = type(request)()
    plain.CopyFrom(request)
    for field in ("request_id", "page_size", "page_token"):
        if field in plain.DESCRIPTOR.fields_by_name:
            plain.ClearField(field)
    return plain.SerializeToString(deterministic=True)
