"""Leases that are held until confirmed, by a leader on real neighbours."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.control_plane import ControlPlane, control_plane, leading
from tests.support.suite import until

from tenure.admission.v1 import admission_pb2 as apb
from tenure.admission.v1 import admission_pb2_grpc as agrpc
from tenure.admission.v1 import lease_pb2 as lpb
from tenure.admission.v1 import quota_pb2 as qpb
from tenure_core.errors import WrongState
from tenure_runtime.clocks import SystemClock
from tenure_runtime.rpc.wire import to_duration, to_timestamp

ALL = {"cpu": 4_000}


def wanted(hold_ms: int, *, start_in_ms: int = 4_000) -> dict[str, Any]:
    start = to_timestamp(SystemClock().now_ms() + start_in_ms)
    return {
        "terms": lpb.Terms(advance=lpb.AdvanceTerms(start_time=start)),
        "amounts": ALL,
        "duration": to_duration(60_000),
        "hold_duration": to_duration(hold_ms),
    }


async def confirm(plane: ControlPlane, *leases: str) -> None:
    client = await plane.client("admission", "ann")
    stub: Any = agrpc.AdmissionServiceStub(client.channel)
    request = apb.ConfirmLeasesRequest(names=[f"leases/{lease}" for lease in leases])
    await client.call(stub.ConfirmLeases, request)


async def test_a_hold_that_nobody_confirms_vanishes_and_leaves_its_room_to_others() -> None:
    async with control_plane() as plane, plane.agent(), leading(await plane.neighbours()):
        await plane.submit("held", **wanted(1_500))
        await plane.until_state("held", "scheduled")
        await plane.until_booked(1)

        over = await plane.until_state("held", "cancelled")

        assert over.reason == "HOLD_EXPIRED"
        late_ms = over.end_time.ToMilliseconds() - over.hold_expire_time.ToMilliseconds()
        assert 0 <= late_ms < 1_000
        assert not over.HasField("charge_interval")
        assert await plane.rows() == []
        with pytest.raises(WrongState):
            await confirm(plane, "held")
        await plane.submit("other", **wanted(60_000, start_in_ms=120_000))
        await plane.until_state("other", "scheduled")


async def test_a_confirmed_lease_starts_at_its_time() -> None:
    async with control_plane() as plane, plane.agent(), leading(await plane.neighbours()):
        await plane.submit("taken", **wanted(1_500, start_in_ms=2_500))
        await plane.until_state("taken", "scheduled")
        await confirm(plane, "taken")
        assert (await plane.until_state("taken", "active")).attempt == 1


async def test_a_hold_expires_although_its_leader_is_gone() -> None:
    async with control_plane() as plane, plane.agent() as agent:
        async with leading(await plane.neighbours()):
            await plane.submit("held", **wanted(1_500))
            await plane.until_state("held", "scheduled")
        async with leading(await plane.neighbours()):
            over = await plane.until_state("held", "cancelled")
        assert over.reason == "HOLD_EXPIRED"
        assert await plane.rows() == []
        assert agent.commands == []


async def ask(plane: ControlPlane, **change: Any) -> lpb.PendingChange:
    """Ask for a change of Ann's lease `wide` and return what its leader decided."""
    client = await plane.client("admission", "ann")
    stub: Any = agrpc.AdmissionServiceStub(client.channel)
    request = apb.UpdateLeaseRequest(lease=lpb.Lease(name="leases/wide", **change))
    await client.call(stub.UpdateLease, request)
    wait = apb.WaitLeaseRequest(name="leases/wide", until_change_decided=True)
    decided: lpb.PendingChange = (await client.call(stub.WaitLease, wait)).lease.pending_change
    return decided


async def until_nodes(plane: ControlPlane, count: int) -> None:
    """Wait until the pool has so many nodes."""

    async def are_there() -> bool:
        return len(await plane.nodes()) == count

    await until(are_there, 10.0, "the nodes are there")


GRANTED, REFUSED = lpb.PendingChange.VERDICT_GRANTED, lpb.PendingChange.VERDICT_REFUSED


async def test_a_booking_gives_up_slots_and_others_get_them() -> None:
    async with control_plane() as plane, plane.agent(), leading(await plane.neighbours()):
        fields = {**wanted(60_000, start_in_ms=120_000), "amounts": {"cpu": 1_000}}
        await plane.submit("wide", **fields, node_count=4)
        before = await plane.until_state("wide", "scheduled")
        assert (await ask(plane, node_count=1)).verdict == GRANTED

        lease = await plane.lease("wide")
        assert (lease.state, lease.node_count) == (lpb.Lease.STATE_SCHEDULED, 1)
        assert list(lease.placements) == list(before.placements[:1])
        await plane.submit("other", **fields, node_count=3)
        await plane.until_state("other", "scheduled")
        await plane.until_booked(4)


async def test_a_booking_gets_as_many_more_slots_as_fit_beside_it() -> None:
    async with control_plane() as plane, plane.agent(), leading(await plane.neighbours()):
        fields = {**wanted(60_000, start_in_ms=120_000), "amounts": {"cpu": 1_000}}
        await plane.submit("wide", **fields, node_count=1)
        before = await plane.until_state("wide", "scheduled")
        rows = await plane.until_booked(1)

        refused = await ask(plane, node_count=5)
        assert (refused.verdict, refused.reason) == (REFUSED, "CAPACITY_EXCEEDED")
        assert list(refused.counter_offers) == [lpb.CounterOffer(node_count=4)]
        assert await plane.rows() == rows
        lease = await plane.lease("wide")
        assert (lease.node_count, lease.placements) == (1, before.placements)

        assert (await ask(plane, node_count=4)).verdict == GRANTED
        lease = await plane.lease("wide")
        assert (lease.state, lease.attempt, lease.node_count) == (lpb.Lease.STATE_SCHEDULED, 1, 4)
        assert lease.charge_interval == before.charge_interval
        assert [place.rank for place in lease.placements] == [0, 1, 2, 3]
        assert lease.placements[0] == before.placements[0]
        held = await plane.rows()
        assert sorted(row.rank for row in held) == [0, 1, 2, 3]
        assert [row for row in held if row.rank == 0] == rows


async def test_slots_that_a_limit_refuses_are_given_back() -> None:
    async with control_plane() as plane, plane.agent(), leading(await plane.neighbours()):
        fields = {**wanted(60_000, start_in_ms=120_000), "amounts": {"cpu": 1_000}}
        await plane.submit("wide", **fields, node_count=1)
        before = await plane.until_state("wide", "scheduled")
        rows = await plane.until_booked(1)
        operator = await plane.client("admission", "ops")
        stub: Any = agrpc.AdmissionServiceStub(operator.channel)
        quota = qpb.Quota(name="quotas/q", owner="ann", limits={"cpu": 2_000})
        await operator.call(stub.SetQuota, apb.SetQuotaRequest(quota=quota))

        refused = await ask(plane, node_count=3)
        assert (refused.verdict, refused.reason) == (REFUSED, "QUOTA_EXCEEDED")
        assert await plane.rows() == rows
        lease = await plane.lease("wide")
        assert (lease.node_count, lease.placements) == (1, before.placements)
        assert (await ask(plane, node_count=2)).verdict == GRANTED
        assert len(await plane.rows()) == 2


async def test_slots_that_are_to_be_spread_are_added_on_other_nodes_only() -> None:
    async with control_plane() as plane, plane.agent(), leading(await plane.neighbours()):
        fields = {**wanted(60_000, start_in_ms=120_000), "amounts": {"cpu": 1_000}}
        await plane.submit("wide", **fields, node_count=1, spread=True)
        await plane.until_state("wide", "scheduled")

        refused = await ask(plane, node_count=2)
        assert (refused.verdict, refused.reason) == (REFUSED, "CAPACITY_EXCEEDED")
        assert list(refused.counter_offers) == []
        async with plane.agent("a2"):
            await until_nodes(plane, 2)
            assert (await ask(plane, node_count=2)).verdict == GRANTED
            assert [place.node for place in (await plane.lease("wide")).placements] == [
                "nodes/a1",
                "nodes/a2",
            ]
