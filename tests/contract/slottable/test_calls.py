"""The slot table over real gRPC and PostgreSQL: what a client sees of each call."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from tests.contract.slottable.stores import postgres_usecases
from tests.support.servers import Served, serving

from tenure.slottable.v1 import reservation_pb2 as rpb
from tenure.slottable.v1 import slottable_pb2 as spb
from tenure.slottable.v1.slottable_pb2_grpc import (
    SlotTableServiceStub,
    add_SlotTableServiceServicer_to_server,
)
from tenure.type.v1 import work_pb2
from tenure_core.errors import DomainError, Forbidden, Invalid, NotFound, Stale, WrongState
from tenure_runtime.rpc.wire import to_timestamp
from tenure_runtime.service_info import service_info
from tenure_slottable.servicer import PERMISSIONS, SERVICE, SlotTableServicer

pytestmark = pytest.mark.postgres
FAR = 4_000_000_000_000
SCOPE = "pool/p"


@pytest.fixture
async def served(database_dsn: str) -> AsyncIterator[Served]:
    async with postgres_usecases(database_dsn) as usecases:
        servicer = SlotTableServicer(usecases, service_info("slottable", "test", 0, 1))
        register = add_SlotTableServiceServicer_to_server
        async with serving(register, servicer, SERVICE, permissions=PERMISSIONS) as running:
            yield running


def a_node(name: str = "n1", cpu: int = 4_000) -> rpb.Node:
    return rpb.Node(name=f"nodes/{name}", capacity=[rpb.CapacityChange(amounts={"cpu": cpu})])


def a_booking(
    name: str, start: int, end: int, lease: str = "l1", **changes: object
) -> rpb.Operation:
    row = rpb.Reservation(
        name=f"reservations/{name}",
        node="nodes/n1",
        lease=f"leases/{lease}",
        attempt=1,
        kind=work_pb2.RESERVATION_KIND_RUN,
        amounts={"cpu": 4_000},
    )
    row.interval.start_time.CopyFrom(to_timestamp(start))
    row.interval.end_time.CopyFrom(to_timestamp(end))
    row.MergeFrom(rpb.Reservation(**changes))
    return rpb.Operation(book=rpb.BookOperation(reservation=row))


def a_plan(epoch: int, *operations: rpb.Operation, **changes: object) -> spb.SubmitPlanRequest:
    groups = [
        rpb.OperationGroup(group_id=f"g{number}", operations=[operation])
        for number, operation in enumerate(operations)
    ]
    return spb.SubmitPlanRequest(scope=SCOPE, epoch=epoch, groups=groups, **changes)


async def lead(served: Served, nodes: int = 1) -> int:
    """Acquire an epoch and create nodes n1, n2, …; return the epoch."""
    client = await served.client("service")
    stub = SlotTableServiceStub(client.channel)
    acquire = spb.AcquireEpochRequest(scope=SCOPE, holder="test")
    epoch = (await client.call(stub.AcquireEpoch, acquire)).epoch
    wanted = [a_node(f"n{number}") for number in range(1, nodes + 1)]
    request = spb.SetCapacityRequest(scope=SCOPE, epoch=epoch, nodes=wanted)
    await client.call(stub.SetCapacity, request)
    return epoch


async def refused(
    served: Served, method: str, request: object, role: str = "service"
) -> DomainError:
    client = await served.client(role)
    stub = SlotTableServiceStub(client.channel)
    with pytest.raises(DomainError) as caught:
        await client.call(getattr(stub, method), request)
    return caught.value


async def test_a_plan_is_committed_group_by_group(served: Served) -> None:
    epoch = await lead(served)
    client = await served.client("service")
    stub = SlotTableServiceStub(client.channel)
    plan = a_plan(
        epoch, a_booking("a", FAR, FAR + 10_000), a_booking("b", FAR + 5_000, FAR + 9_000, "l2")
    )

    answer = await client.call(stub.SubmitPlan, plan)

    assert [(v.group_id, v.reason) for v in answer.verdicts] == [
        ("g0", ""),
        ("g1", "CAPACITY_EXCEEDED"),
    ]
    listed = await client.call(stub.ListReservations, spb.ListReservationsRequest(pool="p"))
    assert [row.name for row in listed.reservations] == ["reservations/a"]
    assert listed.reservations[0].lease == "leases/l1"
    assert listed.revision == answer.revision


async def test_a_repeat_of_a_plan_is_answered_as_the_first(served: Served) -> None:
    epoch = await lead(served)
    client = await served.client("service")
    stub = SlotTableServiceStub(client.channel)
    name = str(uuid4())
    plan = a_plan(epoch, a_booking("a", FAR, FAR + 10_000), request_id=name)

    first = await client.call(stub.SubmitPlan, plan)
    second = await client.call(stub.SubmitPlan, plan)
    other = a_plan(epoch, a_booking("c", FAR, FAR + 10_000), request_id=name)
    reused = await refused(served, "SubmitPlan", other)

    assert second == first
    assert (type(reused), reused.reason) == (Invalid, "REQUEST_ID_REUSED")


async def test_a_leader_of_an_older_epoch_is_refused_everywhere(served: Served) -> None:
    old = await lead(served)
    new = await lead(served)
    assert new > old

    for method, request in (
        ("SubmitPlan", a_plan(old, a_booking("a", FAR, FAR + 1_000))),
        ("SetCapacity", spb.SetCapacityRequest(scope=SCOPE, epoch=old, nodes=[a_node("n9")])),
        ("RetireNode", spb.RetireNodeRequest(scope=SCOPE, epoch=old, node="nodes/n1")),
        ("UnretireNode", spb.UnretireNodeRequest(scope=SCOPE, epoch=old, node="nodes/n1")),
    ):
        error = await refused(served, method, request)
        assert (type(error), error.reason) == (Stale, "STALE_EPOCH"), method

    client = await served.client("service")
    stub = SlotTableServiceStub(client.channel)
    nodes = await client.call(stub.ListNodes, spb.ListNodesRequest(pool="p"))
    assert [(node.name, node.state) for node in nodes.nodes] == [("nodes/n1", rpb.Node.STATE_OPEN)]


async def test_all_violations_of_a_plan_are_told_at_once(served: Served) -> None:
    bad = a_booking("", FAR, FAR - 5, kind=work_pb2.RESERVATION_KIND_UNSPECIFIED)
    bad.book.reservation.kind = work_pb2.RESERVATION_KIND_UNSPECIFIED
    bad.book.reservation.amounts["Bad Kind"] = -1
    request = spb.SubmitPlanRequest(
        scope="nowhere",
        groups=[rpb.OperationGroup(group_id="g", operations=[bad, rpb.Operation()])],
    )

    error = await refused(served, "SubmitPlan", request)

    assert isinstance(error, Invalid)
    field = "groups[0].operations[0].book.reservation"
    assert {(v.field, v.reason) for v in error.violations} == {
        ("scope", "SCOPE_INVALID"),
        ("epoch", "OUT_OF_RANGE"),
        (f"{field}.name", "NAME_INVALID"),
        (f"{field}.interval.end_time", "SPAN_EMPTY"),
        (f"{field}.kind", "REQUIRED"),
        (f"{field}.amounts['Bad Kind']", "KIND_INVALID"),
        (f"{field}.amounts['Bad Kind']", "OUT_OF_RANGE"),
        ("groups[0].operations[1]", "REQUIRED"),
    }


@pytest.mark.parametrize("role", ["user", "agent"])
async def test_only_services_write(served: Served, role: str) -> None:
    error = await refused(served, "SubmitPlan", spb.SubmitPlanRequest(), role)

    assert (type(error), error.reason) == (Forbidden, "METHOD_FORBIDDEN")


async def test_reservations_and_nodes_come_in_pages(served: Served) -> None:
    epoch = await lead(served, nodes=5)
    client = await served.client("service")
    stub = SlotTableServiceStub(client.channel)
    bookings = [a_booking(f"r{n}", FAR + 10_000 * n, FAR + 10_000 * n + 1_000) for n in range(7)]
    await client.call(stub.SubmitPlan, a_plan(epoch, *bookings))

    rows, nodes, token = [], [], ""
    while True:
        request = spb.ListReservationsRequest(pool="p", page_size=3, page_token=token)
        page = await client.call(stub.ListReservations, request)
        rows.append([row.name.removeprefix("reservations/") for row in page.reservations])
        token = page.next_page_token
        if not token:
            break
    first = await client.call(stub.ListNodes, spb.ListNodesRequest(pool="p", page_size=4))
    rest = spb.ListNodesRequest(pool="p", page_size=4, page_token=first.next_page_token)
    nodes = [n.name for n in (*first.nodes, *(await client.call(stub.ListNodes, rest)).nodes)]
    foreign = await refused(
        served,
        "ListReservations",
        spb.ListReservationsRequest(pool="q", page_token=first.next_page_token),
    )

    assert rows == [["r0", "r1", "r2"], ["r3", "r4", "r5"], ["r6"]]
    assert nodes == [f"nodes/n{number}" for number in range(1, 6)]
    assert foreign.reason == "PAGE_TOKEN_MISMATCH"


async def test_a_list_over_a_span_that_ends_before_it_starts_is_refused(served: Served) -> None:
    request = spb.ListReservationsRequest(pool="p")
    request.interval.start_time.FromSeconds(20)
    request.interval.end_time.FromSeconds(10)
    error = await refused(served, "ListReservations", request)
    assert isinstance(error, Invalid)
    assert [each.field for each in error.violations] == ["interval.end_time"]


async def test_a_watch_over_the_wire_resumes_where_it_was_cut(served: Served) -> None:
    epoch = await lead(served)
    client = await served.client("service")
    stub = SlotTableServiceStub(client.channel)
    token = (
        await client.call(stub.ListReservations, spb.ListReservationsRequest(pool="p"))
    ).resume_token
    for number in range(6):
        booking = a_booking(f"r{number}", FAR + 10_000 * number, FAR + 10_000 * number + 1_000)
        await client.call(stub.SubmitPlan, a_plan(epoch, booking))

    seen: list[str] = []
    for count in (2, 4):
        request = spb.WatchReservationsRequest(pool="p", resume_token=token)
        async with client.stream(stub.WatchReservations, request, timeout_s=20) as changes:
            async for change in changes:
                token = change.resume_token
                if change.HasField("reservation"):
                    seen.append(change.reservation.name)
                    count -= 1
                if not count:
                    break

    assert seen == [f"reservations/r{number}" for number in range(6)]


async def test_earliest_start_and_availability_for_people(served: Served) -> None:
    epoch = await lead(served, nodes=2)
    service = await served.client("service")
    writer = SlotTableServiceStub(service.channel)
    await service.call(writer.SubmitPlan, a_plan(epoch, a_booking("a", FAR, FAR + 10_000)))
    client = await served.client("user")
    stub = SlotTableServiceStub(client.channel)
    demand = spb.Demand(node_count=2, amounts={"cpu": 4_000})
    question = spb.FindEarliestStartRequest(pool="p", demand=demand)
    question.duration.FromSeconds(1)
    question.not_before_time.CopyFrom(to_timestamp(FAR))
    view = spb.GetAvailabilityRequest(pool="p", demand=demand)
    view.interval.start_time.CopyFrom(to_timestamp(FAR))
    view.interval.end_time.CopyFrom(to_timestamp(FAR + 20_000))

    earliest = await client.call(stub.FindEarliestStart, question)
    free = await client.call(stub.GetAvailability, view)
    demand.node_count = 3
    question.demand.CopyFrom(demand)
    never = await client.call(stub.FindEarliestStart, question)

    assert earliest.start_time == to_timestamp(FAR + 10_000)
    assert list(earliest.nodes) == ["nodes/n1", "nodes/n2"]
    assert [window.slot_count for window in free.windows] == [1, 2]
    assert (never.HasField("start_time"), never.reason) == (False, "NEVER_FITS")


async def test_a_booked_node_is_not_retired_unless_forced(served: Served) -> None:
    epoch = await lead(served)
    client = await served.client("service")
    stub = SlotTableServiceStub(client.channel)
    await client.call(stub.SubmitPlan, a_plan(epoch, a_booking("a", FAR, FAR + 10_000)))
    gentle = spb.RetireNodeRequest(scope=SCOPE, epoch=epoch, node="nodes/n1", if_unbooked=True)

    booked = await refused(served, "RetireNode", gentle)
    gentle.if_unbooked = False
    retired = await client.call(stub.RetireNode, gentle)
    missing = await refused(
        served, "RetireNode", spb.RetireNodeRequest(scope=SCOPE, epoch=epoch, node="nodes/x")
    )

    assert (type(booked), booked.reason) == (WrongState, "NODE_BOOKED")
    assert retired.node.state == rpb.Node.STATE_RETIRED
    assert [row.displaced for row in retired.displaced_reservations] == [True]
    assert (type(missing), missing.reason) == (NotFound, "NODE_NOT_FOUND")


async def test_a_maintenance_window_comes_and_goes(served: Served) -> None:
    await lead(served)
    client = await served.client("operator")
    stub = SlotTableServiceStub(client.channel)
    window = rpb.MaintenanceWindow(pool="p", nodes=["nodes/n1"], message="new disks")
    window.interval.start_time.CopyFrom(to_timestamp(FAR))
    window.interval.end_time.CopyFrom(to_timestamp(FAR + 10_000))
    request = spb.CreateMaintenanceWindowRequest(maintenance_window=window, request_id=str(uuid4()))

    created = await client.call(stub.CreateMaintenanceWindow, request)
    repeated = await client.call(stub.CreateMaintenanceWindow, request)
    listed = await client.call(
        stub.ListMaintenanceWindows, spb.ListMaintenanceWindowsRequest(pool="p")
    )
    name = created.maintenance_window.name
    await client.call(stub.DeleteMaintenanceWindow, spb.DeleteMaintenanceWindowRequest(name=name))
    after = await client.call(
        stub.ListMaintenanceWindows, spb.ListMaintenanceWindowsRequest(pool="p")
    )

    assert repeated == created
    assert list(listed.maintenance_windows) == [created.maintenance_window]
    assert list(after.maintenance_windows) == []


async def test_the_service_says_who_it_is_and_how_far(served: Served) -> None:
    epoch = await lead(served, nodes=2)
    client = await served.client("user")
    stub = SlotTableServiceStub(client.channel)

    info = (await client.call(stub.GetServiceInfo, spb.GetServiceInfoRequest())).info
    status = await client.call(stub.GetTableStatus, spb.GetTableStatusRequest(pool="p"))

    assert (info.service, info.schema_version) == ("slottable", 1)
    assert (status.epoch, status.epoch_holder, status.node_count, status.reservation_count) == (
        epoch,
        "test",
        2,
        0,
    )
