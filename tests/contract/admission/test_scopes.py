"""What admins of projects and limited keys see and may act on."""

from __future__ import annotations

from typing import Any

import pytest
from tests.contract.admission.harness import Admission, Caller, a_lease

from tenure.admission.v1 import admission_pb2 as calls
from tenure.admission.v1 import identity_pb2 as pb
from tenure.admission.v1 import lease_pb2 as lpb
from tenure_core.errors import Forbidden, NotFound

State = lpb.Lease.State


async def holder(admission: Admission, caller: str, **fields: Any) -> Caller:
    """Return a caller with a key of its own."""
    operator = await admission.caller("operator")
    key = pb.ApiKey(**{"caller": caller, "roles": [pb.ROLE_MEMBER], **fields})
    made = await operator(pb.CreateApiKeyRequest(api_key=key))
    return await admission.bearer(made.secret)


async def listed(caller: Caller, **fields: Any) -> set[str]:
    return {lease.name for lease in (await caller(calls.ListLeasesRequest(**fields))).leases}


async def test_a_project_admin_sees_and_acts_on_the_leases_of_its_projects(
    admission: Admission,
) -> None:
    ann = await holder(admission, "ann")
    lea = await holder(admission, "lea", roles=[pb.ROLE_PROJECT_ADMIN], administers=["x", "y"])
    inside, outside = [await ann.create(a_lease(project=name)) for name in ("x", "z")]
    own = await lea.create(a_lease(project="z"))
    token = (await lea(calls.ListLeasesRequest())).resume_token

    assert await listed(lea) == {inside.name, own.name}
    assert await listed(lea, owner="ann") == {inside.name}
    assert await lea.get(inside) == inside
    explained = await lea(calls.ExplainLeaseRequest(name=inside.name))
    assert explained.lease.name == inside.name
    with pytest.raises(NotFound):
        await lea.get(outside)
    with pytest.raises(NotFound):
        await lea(calls.CancelLeaseRequest(name=outside.name))
    await ann(calls.CancelLeaseRequest(name=outside.name))
    cancelled = (await lea(calls.CancelLeaseRequest(name=inside.name))).lease
    assert cancelled.state == State.STATE_CANCELLED
    request = calls.WatchLeasesRequest(resume_token=token)
    async with lea.client.stream(lea.stub.WatchLeases, request) as stream:
        event = await stream.read()
        while not event.HasField("lease"):
            event = await stream.read()
    assert event.lease == cancelled, "the lease of another project is passed over"
    usage = await lea(calls.GetUsageRequest(project="x"))
    assert usage.usage.project == "x"
    with pytest.raises(Forbidden):
        await lea(calls.GetUsageRequest(project="z"))


async def test_members_see_nothing_of_others_also_in_the_same_project(
    admission: Admission,
) -> None:
    ann, bob = await holder(admission, "ann"), await holder(admission, "bob")
    lease = await ann.create(a_lease(project="x"))
    assert await listed(bob) == await listed(bob, owner="ann") == set()
    with pytest.raises(NotFound):
        await bob.get(lease)


async def test_a_limited_key_sees_and_makes_only_what_lies_inside(admission: Admission) -> None:
    whole = await holder(admission, "ann")
    scope = pb.KeyScope(projects=["x"], pools=["gpu"])
    limited = await holder(admission, "ann", scope=scope)
    inside = await whole.create(a_lease(project="x", pool="gpu"))
    outside = [
        await whole.create(a_lease(project="x", pool="default")),
        await whole.create(a_lease(project="y", pool="gpu")),
        await whole.create(a_lease()),
    ]

    assert await listed(limited) == {inside.name}
    assert await limited.get(inside) == inside
    for lease in outside:
        with pytest.raises(NotFound):
            await limited.get(lease)
        with pytest.raises(NotFound):
            await limited(calls.CancelLeaseRequest(name=lease.name))
        with pytest.raises(Forbidden) as caught:
            await limited.create(a_lease(project=lease.project, pool=lease.pool))
        assert caught.value.reason == "SCOPE_FORBIDDEN"
    assert (await limited.create(a_lease(project="x", pool="gpu"))).owner == "ann"


async def test_items_of_a_batch_that_lie_outside_are_refused_alone(admission: Admission) -> None:
    limited = await holder(admission, "ann", scope=pb.KeyScope(projects=["x"]))
    leases = [a_lease(project=name) for name in ("x", "y")]
    answer = await limited(
        calls.BatchCreateLeasesRequest(requests=[calls.CreateLeaseRequest(lease=e) for e in leases])
    )
    assert [result.reason for result in answer.results] == ["", "SCOPE_FORBIDDEN"]
