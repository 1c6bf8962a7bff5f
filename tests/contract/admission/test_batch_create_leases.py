"""BatchCreateLeases: a verdict for each item, or all or none."""

from __future__ import annotations

import asyncio

import pytest
from tests.contract.admission.harness import Admission, Caller, a_lease, request_id

from tenure.admission.v1 import admission_pb2 as calls
from tenure.admission.v1 import lease_pb2 as pb
from tenure_core.errors import Invalid

BATCH = calls.BatchCreateLeasesRequest


def item(lease_id: str = "", *needs: str, **fields: object) -> calls.CreateLeaseRequest:
    """Return an item that depends on the leases with these ids."""
    dependencies = [pb.Dependency(lease=f"leases/{need}") for need in needs]
    lease = a_lease(dependencies=dependencies, **fields)
    return calls.CreateLeaseRequest(lease=lease, lease_id=lease_id)


async def reasons(user: Caller, *items: calls.CreateLeaseRequest, **options: object) -> list[str]:
    answer = await user(BATCH(requests=items, **options))
    for result in answer.results:
        assert bool(result.reason) != result.HasField("lease")
    return [result.reason for result in answer.results]


async def stored(user: Caller) -> set[str]:
    page = await user(calls.ListLeasesRequest(page_size=1_000))
    return {lease.name.removeprefix("leases/") for lease in page.leases}


async def test_each_item_has_a_verdict_in_order(admission: Admission) -> None:
    user = await admission.caller()
    await user.create(lease_id="taken")
    bad = calls.CreateLeaseRequest(lease=pb.Lease(node_count=-1))

    answer = await user(
        BATCH(requests=[item("a"), bad, item("taken"), item("b", "nothing"), item("a")])
    )

    assert [result.reason for result in answer.results] == [
        "",
        "INVALID_REQUEST",
        "LEASE_EXISTS",
        "DEPENDENCY_NOT_FOUND",
        "LEASE_EXISTS",
    ]
    for field in ("lease.node_count", "lease.duration", "lease.terms", "lease.amounts"):
        assert field in answer.results[1].message
    assert {"taken", "a"} == await stored(user)


async def test_items_may_depend_on_one_another_in_any_order(admission: Admission) -> None:
    user = await admission.caller()

    assert await reasons(user, item("c", "b", "a"), item("b", "a"), item("a")) == ["", "", ""]
    assert [each.lease for each in (await user.get("leases/c")).dependencies] == [
        "leases/b",
        "leases/a",
    ]


async def test_cycles_are_refused_and_so_is_what_depends_on_them(admission: Admission) -> None:
    user = await admission.caller()

    verdicts = await reasons(
        user,
        item("a", "b"),
        item("b", "c"),
        item("c", "a"),
        item("behind", "a"),
        item("before"),
        item("self", "self"),
    )

    cycle = "DEPENDENCY_CYCLE"
    assert [cycle, cycle, cycle, "DEPENDENCY_NOT_FOUND", "", cycle] == verdicts
    assert {"before"} == await stored(user)


async def test_an_item_that_depends_on_a_refused_one_is_refused(admission: Admission) -> None:
    user = await admission.caller()

    verdicts = await reasons(user, item("a", "nothing"), item("b", "a"), item("c", "b"))

    assert verdicts == ["DEPENDENCY_NOT_FOUND"] * 3


async def test_all_or_none_stores_none_when_one_is_bad(admission: Admission) -> None:
    user = await admission.caller()

    verdicts = await reasons(user, item("a"), item("b", "nothing"), all_or_none=True)

    assert verdicts == ["OTHER_ITEM_REFUSED", "DEPENDENCY_NOT_FOUND"]
    assert set() == await stored(user)
    assert await reasons(user, item("a"), item("b", "a"), all_or_none=True) == ["", ""]


async def test_a_repeat_returns_the_first_verdicts_and_stores_nothing_more(
    admission: Admission,
) -> None:
    user = await admission.caller()
    request = BATCH(requests=[item(), item("x", "nothing"), item()], request_id=request_id())

    answers = await asyncio.gather(*(user(request) for _ in range(5)))

    assert all(answer == answers[0] for answer in answers)
    assert [each.reason for each in answers[0].results] == ["", "DEPENDENCY_NOT_FOUND", ""]
    assert len(await stored(user)) == 2
    request.requests.pop()
    with pytest.raises(Invalid) as caught:
        await user(request)
    assert caught.value.reason == "REQUEST_ID_REUSED"


async def test_a_thousand_leases_are_stored_at_once(admission: Admission) -> None:
    user = await admission.caller()

    verdicts = await reasons(user, *(item(f"lease-{n}") for n in range(1_000)))

    assert verdicts == [""] * 1_000
    assert {f"lease-{n}" for n in range(1_000)} == await stored(user)


@pytest.mark.parametrize("differing", [0, 1, 7])
async def test_items_are_filed_under_what_each_says(admission: Admission, differing: int) -> None:
    """What all items have in common is sent to the database once; nothing may spread to others."""
    user = await admission.caller()
    same = {"project": "p", "pool": "default", "labels": {"a": "1"}, "node_count": 2}
    other = {"project": "q", "pool": "big", "labels": {"b": "2"}, "node_count": 3}
    items = [item(f"same-{n}", **same) for n in range(5)]
    items += [item(f"other-{n}", **other) for n in range(differing)]

    assert await reasons(user, *items) == [""] * len(items)

    for fields, prefix, count in ((same, "same", 5), (other, "other", differing)):
        for name in ("project", "pool", "labels"):
            page = await user(calls.ListLeasesRequest(**{name: fields[name]}))  # type: ignore[arg-type]
            names = {f"leases/{prefix}-{n}" for n in range(count)}
            assert {lease.name for lease in page.leases} == names
            assert all(lease.node_count == fields["node_count"] for lease in page.leases)


@pytest.mark.parametrize("count", [0, 1_001])
async def test_a_batch_has_one_to_a_thousand_items(admission: Admission, count: int) -> None:
    user = await admission.caller()

    with pytest.raises(Invalid) as caught:
        await user(BATCH(requests=[item()] * count))

    assert [each.field for each in caught.value.violations] == ["requests"]


async def test_items_that_only_validate_are_not_stored(admission: Admission) -> None:
    user = await admission.caller()
    dry = item("dry")
    dry.validate_only = True

    assert await reasons(user, dry, item("real")) == ["", ""]
    assert {"real"} == await stored(user)


async def test_a_batch_whose_answer_no_message_could_carry_is_refused(
    admission: Admission,
) -> None:
    user = await admission.caller()
    large = item()
    large.lease.work.environment.update({f"V{number}": "x" * 30_000 for number in range(33)})

    with pytest.raises(Invalid) as caught:
        await user(BATCH(requests=[large] * 4))

    assert [each.reason for each in caught.value.violations] == ["TOO_LARGE"]
    large.lease.work.environment.update({f"W{number}": "x" * 30_000 for number in range(3)})
    assert await reasons(user, large) == ["TOO_LARGE"]
