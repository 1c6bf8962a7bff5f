"""GetLease and ListLeases: who sees what, filters, pages, and the token to watch from."""

from __future__ import annotations

import pytest
from tests.contract.admission.harness import Admission, Caller, State, a_lease

from tenure.admission.v1 import admission_pb2 as calls
from tenure_core.errors import Invalid, NotFound

LIST = calls.ListLeasesRequest


async def ids(caller: Caller, **filters: object) -> list[str]:
    """Return the ids of all pages, in order."""
    found: list[str] = []
    request = LIST(**filters)
    while True:
        page = await caller(request)
        found += [lease.name.removeprefix("leases/") for lease in page.leases]
        request.page_token = page.next_page_token
        if not page.next_page_token:
            return found


async def fill(admission: Admission) -> Caller:
    """Store some leases a second apart: u0, u1, u2 of the user, o0, o1 of the operator."""
    user, operator = await admission.caller(), await admission.caller("operator")
    for owner, lease_id, fields in (
        (user, "u0", {"project": "p", "labels": {"a": "1"}}),
        (operator, "o0", {"pool": "big", "labels": {"a": "1", "b": "2"}}),
        (user, "u1", {"pool": "big"}),
        (operator, "o1", {"project": "p", "labels": {"a": "2"}}),
        (user, "u2", {"labels": {"b": "2"}}),
    ):
        await owner.create(a_lease(**fields), lease_id=lease_id)
        admission.clock.ahead_ms += 1_000
    await user(calls.CancelLeaseRequest(name="leases/u1"))
    return operator


async def test_leases_are_listed_newest_first(admission: Admission) -> None:
    operator = await fill(admission)

    assert await ids(operator) == ["u2", "o1", "u1", "o0", "u0"]
    assert await ids(operator, page_size=2) == ["u2", "o1", "u1", "o0", "u0"]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"owner": "user"}, ["u2", "u1", "u0"]),
        ({"project": "p"}, ["o1", "u0"]),
        ({"pool": "big"}, ["u1", "o0"]),
        ({"states": [State.STATE_CANCELLED]}, ["u1"]),
        ({"states": [State.STATE_CANCELLED, State.STATE_PENDING], "pool": "big"}, ["u1", "o0"]),
        ({"labels": {"a": "1"}}, ["o0", "u0"]),
        ({"labels": {"a": "1", "b": "2"}}, ["o0"]),
        ({"owner": "operator", "labels": {"a": "2"}, "project": "p"}, ["o1"]),
        ({"owner": "nobody"}, []),
    ],
)
async def test_only_what_matches_every_filter_is_listed(
    admission: Admission, filters: dict[str, object], expected: list[str]
) -> None:
    operator = await fill(admission)

    assert expected == await ids(operator, page_size=1, **filters)


async def test_leases_are_listed_by_the_span_of_their_creation(admission: Admission) -> None:
    operator = await fill(admission)
    second = await operator.get("leases/o0")
    fourth = await operator.get("leases/o1")
    request = LIST()
    request.create_interval.start_time.CopyFrom(second.create_time)
    request.create_interval.end_time.CopyFrom(fourth.create_time)

    page = await operator(request)

    assert [lease.name for lease in page.leases] == ["leases/u1", "leases/o0"]


async def test_users_see_their_own_leases_only(admission: Admission) -> None:
    operator = await fill(admission)
    user, service = await admission.caller(), await admission.caller("service")

    assert await ids(user) == ["u2", "u1", "u0"]
    assert await ids(user, owner="operator") == []
    with pytest.raises(NotFound) as caught:
        await user.get("leases/o0")
    assert caught.value.reason == "LEASE_NOT_FOUND"
    assert (await operator.get("leases/u0")).owner == "user"
    assert len(await ids(service)) == 5


async def test_a_page_is_of_50_by_default_and_of_1000_at_most(admission: Admission) -> None:
    user = await admission.caller()
    items = [calls.CreateLeaseRequest(lease=a_lease()) for _ in range(600)]
    for _ in range(2):
        await user(calls.BatchCreateLeasesRequest(requests=items))

    assert len((await user(LIST())).leases) == 50
    assert len((await user(LIST(page_size=5_000))).leases) == 1_000
    assert len(set(await ids(user, page_size=5_000))) == 1_200


async def test_pages_are_stable_while_leases_are_added(admission: Admission) -> None:
    operator = await fill(admission)
    first = await operator(LIST(page_size=2))
    await operator.create(lease_id="newer")

    second = await operator(LIST(page_size=2, page_token=first.next_page_token))

    assert [lease.name for lease in second.leases] == ["leases/u1", "leases/o0"]


async def test_a_page_token_fits_its_own_filters_only(admission: Admission) -> None:
    operator = await fill(admission)
    token = (await operator(LIST(page_size=1))).next_page_token

    with pytest.raises(Invalid) as caught:
        await operator(LIST(page_size=1, page_token=token, pool="big"))
    assert caught.value.reason == "PAGE_TOKEN_MISMATCH"
    with pytest.raises(Invalid) as caught:
        await operator(LIST(page_token="nonsense"))
    assert caught.value.reason == "PAGE_TOKEN_INVALID"


async def test_every_bad_filter_is_told_at_once(admission: Admission) -> None:
    user = await admission.caller()
    request = LIST(page_size=-1, owner="x" * 64, states=[99], labels={"k" * 64: ""})
    request.create_interval.start_time.FromSeconds(2)
    request.create_interval.end_time.FromSeconds(1)

    with pytest.raises(Invalid) as caught:
        await user(request)

    assert {"page_size", "owner", "states[0]", f"labels[{'k' * 64}]", "create_interval"} == {
        each.field for each in caught.value.violations
    }


@pytest.mark.parametrize("name", ["", "leases/", "x", "leases/UP", "nodes/x", "leases/a/b"])
async def test_a_name_is_leases_and_an_id(admission: Admission, name: str) -> None:
    user = await admission.caller()

    with pytest.raises(Invalid) as caught:
        await user.get(name)

    assert [(v.field, v.reason) for v in caught.value.violations] == [("name", "NAME_INVALID")]


async def test_a_page_of_large_leases_is_shorter(admission: Admission) -> None:
    """A page that no message could carry would hide all leases behind it."""
    user = await admission.caller()
    variables = {f"V{number}": "x" * 30_000 for number in range(33)}
    for number in range(5):
        lease = a_lease()
        lease.work.environment.update(variables)
        await user.create(lease, lease_id=f"large-{number}")
        admission.clock.ahead_ms += 1_000

    page = await user(LIST(page_size=100))

    assert len(page.leases) == 3
    assert await ids(user, page_size=100) == [f"large-{number}" for number in (4, 3, 2, 1, 0)]
