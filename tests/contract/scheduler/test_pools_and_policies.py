"""Pools and policies: made, read, changed and forgotten as the contract says, on both stores."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from tests.support.offered_policies import LABORATORY, offer
from tests.support.suite import until

from tenure.scheduler.v1 import pool_pb2 as ppb
from tenure.scheduler.v1 import scheduler_pb2 as spb
from tenure_core.errors import (
    AlreadyExists,
    Conflict,
    DomainError,
    Forbidden,
    Invalid,
    NotFound,
    WrongState,
)
from tenure_runtime.ids import RandomIds
from tenure_runtime.rpc.wire import to_duration


async def refused(scheduler: Any, request: Any, kind: type[DomainError], **options: Any) -> str:
    """Return the reason for which a call is refused with an error of a kind."""
    with pytest.raises(kind) as caught:
        await scheduler.call(request, **options)
    return caught.value.reason


async def make_pool(scheduler: Any, name: str, **fields: Any) -> ppb.Pool:
    request = spb.CreatePoolRequest(pool=ppb.Pool(name=f"pools/{name}", **fields))
    return (await scheduler.call(request)).pool


async def make_policy(scheduler: Any, name: str, **fields: Any) -> ppb.Policy:
    request = spb.CreatePolicyRequest(policy=ppb.Policy(name=f"policies/{name}", **fields))
    return (await scheduler.call(request)).policy


async def test_a_pool_is_made_once_read_and_led(scheduler: Any) -> None:
    made = await make_pool(scheduler, "gpu", description="with GPUs")

    assert (made.name, made.policy, made.etag) == ("pools/gpu", "policies/default", "1")
    assert made.HasField("create_time")
    read = await scheduler.call(spb.GetPoolRequest(name="pools/gpu"), caller="ann")
    assert read.pool == made
    await scheduler.leads("gpu")
    again = spb.CreatePoolRequest(pool=ppb.Pool(name="pools/gpu"))
    assert await refused(scheduler, again, AlreadyExists) == "POOL_EXISTS"


async def test_a_repeat_of_a_request_returns_the_first_answer(scheduler: Any) -> None:
    pool = spb.CreatePoolRequest(pool=ppb.Pool(name="pools/p"), request_id=RandomIds().request_id())
    policy = spb.CreatePolicyRequest(
        policy=ppb.Policy(name="policies/p"), request_id=RandomIds().request_id()
    )
    for request in (pool, policy):
        assert await scheduler.call(request) == await scheduler.call(request)
    pool.pool.description = "other content"
    policy.policy.depth = 7
    for request in (pool, policy):
        assert await refused(scheduler, request, Invalid) == "REQUEST_ID_REUSED"


async def test_a_policy_with_values_of_another_release_is_refused(scheduler: Any) -> None:
    policy = ppb.Policy(name="policies/p", backfilling=99, preemption=-1)  # type: ignore[arg-type]
    with pytest.raises(Invalid) as caught:
        await scheduler.call(spb.CreatePolicyRequest(policy=policy))
    assert [(each.field, each.reason) for each in caught.value.violations] == [
        ("policy.backfilling", "UNKNOWN"),
        ("policy.preemption", "UNKNOWN"),
    ]


async def test_lists_are_paged_by_name(scheduler: Any) -> None:
    for name in ("c", "a", "b"):
        await make_pool(scheduler, name)
        await make_policy(scheduler, name)
    for request, items in (
        (spb.ListPoolsRequest(page_size=2), "pools"),
        (spb.ListPoliciesRequest(page_size=2), "policies"),
    ):
        found: list[str] = []
        while True:
            page = await scheduler.call(request)
            names = [each.name.rpartition("/")[2] for each in getattr(page, items)]
            assert len(names) <= 2
            found += names
            if not page.next_page_token:
                break
            request.page_token = page.next_page_token
        assert found == ["a", "b", "c", "default"]


async def test_an_update_changes_what_the_mask_names_and_compares_the_etag(
    scheduler: Any,
) -> None:
    made = await make_pool(scheduler, "p", description="old")
    await make_policy(scheduler, "other")
    wanted = ppb.Pool(name="pools/p", policy="policies/other", cordoned=True, etag=made.etag)
    mask = FieldMask(paths=["policy"])
    changed = (await scheduler.call(spb.UpdatePoolRequest(pool=wanted, update_mask=mask))).pool

    assert (changed.description, changed.policy, changed.cordoned, changed.etag) == (
        "old",
        "policies/other",
        False,
        "2",
    )
    stale = spb.UpdatePoolRequest(pool=wanted, update_mask=mask)
    assert await refused(scheduler, stale, Conflict) == "ETAG_MISMATCH"
    unknown = spb.UpdatePoolRequest(pool=wanted, update_mask=FieldMask(paths=["colour"]))
    assert await refused(scheduler, unknown, Invalid) == "INVALID_REQUEST"
    gone = spb.UpdatePoolRequest(pool=ppb.Pool(name="pools/none", description="x"))
    assert await refused(scheduler, gone, NotFound) == "POOL_NOT_FOUND"
    lost = spb.UpdatePoolRequest(pool=ppb.Pool(name="pools/p", policy="policies/none"))
    assert await refused(scheduler, lost, NotFound) == "POLICY_NOT_FOUND"


async def test_a_policy_is_changed_field_by_field(scheduler: Any) -> None:
    made = await make_policy(scheduler, "p", ordering="priority", depth=50)
    wanted = ppb.Policy(name="policies/p", backfilling=ppb.Policy.BACKFILLING_OFF)
    changed = (await scheduler.call(spb.UpdatePolicyRequest(policy=wanted))).policy

    assert made.backfilling == ppb.Policy.BACKFILLING_EASY
    assert (changed.backfilling, changed.ordering, changed.depth, changed.etag) == (
        ppb.Policy.BACKFILLING_OFF,
        "priority",
        50,
        "2",
    )
    assert (await scheduler.call(spb.GetPolicyRequest(name="policies/p"))).policy == changed


async def test_two_updates_of_different_fields_at_once_both_last(scheduler: Any) -> None:
    for number in range(5):
        name = f"p{number}"
        await make_pool(scheduler, name)
        one = ppb.Pool(name=f"pools/{name}", description="said")
        two = ppb.Pool(name=f"pools/{name}", cordoned=True)
        await asyncio.gather(
            scheduler.call(
                spb.UpdatePoolRequest(pool=one, update_mask=FieldMask(paths=["description"]))
            ),
            scheduler.call(
                spb.UpdatePoolRequest(pool=two, update_mask=FieldMask(paths=["cordoned"]))
            ),
        )
        pool = (await scheduler.call(spb.GetPoolRequest(name=f"pools/{name}"))).pool
        assert (pool.description, pool.cordoned, pool.etag) == ("said", True, "3")


async def test_what_is_in_use_is_not_forgotten(scheduler: Any) -> None:
    await make_policy(scheduler, "used")
    pool = await make_pool(scheduler, "p", policy="policies/used")
    assert (
        await refused(scheduler, spb.DeletePolicyRequest(name="policies/used"), WrongState)
        == "POLICY_IN_USE"
    )
    await scheduler.plane.submit("l1", pool="p")
    assert (
        await refused(scheduler, spb.DeletePoolRequest(name="pools/p"), WrongState) == "POOL_IN_USE"
    )
    empty = await make_pool(scheduler, "empty")
    old = spb.DeletePoolRequest(name="pools/empty", etag="7")
    assert await refused(scheduler, old, Conflict) == "ETAG_MISMATCH"
    await scheduler.call(spb.DeletePoolRequest(name="pools/empty", etag=empty.etag))
    assert (
        await refused(scheduler, spb.GetPoolRequest(name="pools/empty"), NotFound)
        == "POOL_NOT_FOUND"
    )
    assert pool.policy == "policies/used"


@pytest.mark.parametrize(
    ("request_", "fields"),
    [
        (spb.CreatePoolRequest(pool=ppb.Pool(name="pools/Bad Name")), ["pool.name"]),
        (
            spb.CreatePoolRequest(pool=ppb.Pool(name="x" * 64, description="y" * 1_001)),
            ["pool.name", "pool.description"],
        ),
        (
            spb.CreatePolicyRequest(
                policy=ppb.Policy(
                    name="p",
                    ordering="whim",
                    placement="dice",
                    depth=-1,
                    backfilling=ppb.Policy.BACKFILLING_INTERMEDIATE,
                )
            ),
            ["policy.ordering", "policy.placement", "policy.promise_count", "policy.depth"],
        ),
    ],
)
async def test_all_violations_are_said_at_once_and_nothing_is_stored(
    scheduler: Any, request_: Any, fields: list[str]
) -> None:
    with pytest.raises(Invalid) as caught:
        await scheduler.call(request_)
    assert [violation.field for violation in caught.value.violations] == fields
    assert len((await scheduler.call(spb.ListPoolsRequest())).pools) == 1


async def test_users_read_and_only_operators_change(scheduler: Any) -> None:
    await scheduler.call(spb.ListPoolsRequest(), caller="ann")
    for request in (
        spb.CreatePoolRequest(pool=ppb.Pool(name="p")),
        spb.UpdatePoolRequest(pool=ppb.Pool(name="default", description="x")),
        spb.DeletePoolRequest(name="default"),
        spb.CreatePolicyRequest(policy=ppb.Policy(name="p")),
        spb.UpdatePolicyRequest(policy=ppb.Policy(name="default")),
        spb.DeletePolicyRequest(name="default"),
        spb.StepDownRequest(pool="default"),
        spb.TriggerCycleRequest(pool="default"),
    ):
        await refused(scheduler, request, Forbidden, caller="ann")


async def test_a_pool_is_planned_by_policies_that_an_installed_package_offers(
    scheduler: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered = ppb.Policy(name="policies/default", placement="last-first", admission="short-only")
    with pytest.raises(Invalid) as caught:
        await scheduler.call(spb.UpdatePolicyRequest(policy=offered))
    assert [(each.field, each.reason) for each in caught.value.violations] == [
        ("policy.placement", "UNKNOWN"),
        ("policy.admission", "UNKNOWN"),
    ]
    offer(monkeypatch, tmp_path, LABORATORY)
    stored = (await scheduler.call(spb.UpdatePolicyRequest(policy=offered))).policy
    assert (stored.placement, stored.admission) == ("last-first", "short-only")
    plane = scheduler.plane
    async with plane.agent("a1"), plane.agent("a2"):

        async def both() -> bool:
            return len(await plane.nodes()) == 2

        await until(both, 15, "both nodes are there")
        await plane.submit("short")
        await plane.until_state("short", "active")
        assert [row.node for row in await plane.rows()] == ["nodes/a2"]
        await plane.submit("long", duration=to_duration(5 * 3_600_000))
        refused_one = await plane.until_state("long", "rejected")
        assert (refused_one.reason, refused_one.message) == (
            "TOO_LONG_FOR_POOL",
            "This pool takes leases of at most four hours.",
        )
