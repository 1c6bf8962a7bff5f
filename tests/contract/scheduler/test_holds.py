"""Leases that are held until confirmed, by a leader on real neighbours."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.control_plane import ControlPlane, control_plane, leading

from tenure.admission.v1 import admission_pb2 as apb
from tenure.admission.v1 import admission_pb2_grpc as agrpc
from tenure.admission.v1 import lease_pb2 as lpb
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
        assert len(await plane.rows()) == 1

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


async def test_a_booking_gives_up_slots_and_others_get_them() -> None:
    async with control_plane() as plane, plane.agent(), leading(await plane.neighbours()):
        client = await plane.client("admission", "ann")
        stub: Any = agrpc.AdmissionServiceStub(client.channel)
        fields = {**wanted(60_000, start_in_ms=120_000), "amounts": {"cpu": 1_000}}
        await plane.submit("wide", **fields, node_count=4)
        before = await plane.until_state("wide", "scheduled")

        async def ask(**change: Any) -> lpb.PendingChange:
            request = apb.UpdateLeaseRequest(lease=lpb.Lease(name="leases/wide", **change))
            await client.call(stub.UpdateLease, request)
            wait = apb.WaitLeaseRequest(name="leases/wide", until_change_decided=True)
            change_: lpb.PendingChange = (
                await client.call(stub.WaitLease, wait)
            ).lease.pending_change
            return change_

        refused = await ask(node_count=5)
        assert (refused.verdict, refused.reason) == (
            lpb.PendingChange.VERDICT_REFUSED,
            "NOT_CHANGEABLE",
        )
        assert (await plane.lease("wide")).placements == before.placements
        assert (await ask(node_count=1)).verdict == lpb.PendingChange.VERDICT_GRANTED

        lease = await plane.lease("wide")
        assert (lease.state, lease.node_count) == (lpb.Lease.STATE_SCHEDULED, 1)
        assert list(lease.placements) == list(before.placements[:1])
        await plane.submit("other", **fields, node_count=3)
        await plane.until_state("other", "scheduled")
        assert len(await plane.rows()) == 4
