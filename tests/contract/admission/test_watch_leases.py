"""WatchLeases: every change once and in order, over reconnections, and the right to see it."""

from __future__ import annotations

import asyncio
from collections import defaultdict

import pytest
from tests.contract.admission.harness import Admission, Caller, State, a_lease, on_postgres

from tenure.admission.v1 import admission_pb2 as calls
from tenure_core.errors import Invalid, Stale, Unavailable

WATCH = calls.WatchLeasesRequest
Event = calls.WatchLeasesResponse


async def listed(caller: Caller) -> calls.ListLeasesResponse:
    answer: calls.ListLeasesResponse = await caller(calls.ListLeasesRequest(page_size=1_000))
    return answer


async def read(caller: Caller, request: calls.WatchLeasesRequest, count: int) -> list[Event]:
    """Return the next `count` changes, bookmarks left out."""
    events: list[Event] = []
    async with (
        asyncio.timeout(20),
        caller.client.stream(caller.stub.WatchLeases, request) as stream,
    ):
        while len(events) < count:
            event = await stream.read()
            assert event is not None
            if event.HasField("lease"):
                events.append(event)
    return events


def seen(events: list[Event]) -> list[tuple[str, int]]:
    return [(event.lease.name.removeprefix("leases/"), event.lease.version) for event in events]


async def test_what_changes_after_a_list_is_streamed_once_and_in_order(
    admission: Admission,
) -> None:
    user = await admission.caller()
    await user.create(lease_id="before")
    token = (await listed(user)).resume_token
    await user.create(lease_id="a")
    await user(calls.CancelLeaseRequest(name="leases/before"))
    await user.create(lease_id="b")

    events = await read(user, WATCH(resume_token=token), 3)

    assert seen(events) == [("a", 1), ("before", 2), ("b", 1)]
    assert events[1].lease.state == State.STATE_CANCELLED
    assert events[1].lease == await user.get("leases/before")
    again = await read(user, WATCH(resume_token=events[0].resume_token), 2)
    assert events[1:] == again


async def test_without_a_token_a_watch_starts_now_and_says_where(admission: Admission) -> None:
    user = await admission.caller()
    await user.create(lease_id="before")

    async with user.client.stream(user.stub.WatchLeases, WATCH()) as stream:
        bookmark = await stream.read()
        assert bookmark is not None and not bookmark.HasField("lease")
        await user.create(lease_id="after")
        event = await stream.read()

    assert event is not None
    assert seen([event]) == [("after", 1)]
    assert seen(await read(user, WATCH(resume_token=bookmark.resume_token), 1)) == [("after", 1)]


async def test_a_watch_passes_only_what_is_asked_for_and_may_be_seen(admission: Admission) -> None:
    user, operator = await admission.caller(), await admission.caller("operator")
    token = (await listed(user)).resume_token
    await user.create(a_lease(pool="big"), lease_id="u-big")
    await operator.create(a_lease(pool="big"), lease_id="o-big")
    await operator.create(lease_id="o")
    await user.create(lease_id="u")

    async def ids(caller: Caller, count: int, **filters: str) -> list[str]:
        events = await read(caller, WATCH(resume_token=token, **filters), count)
        return [lease_id for lease_id, _ in seen(events)]

    assert await ids(user, 2) == ["u-big", "u"]
    assert await ids(operator, 4) == ["u-big", "o-big", "o", "u"]
    assert await ids(operator, 2, pool="big") == ["u-big", "o-big"]
    assert await ids(operator, 2, owner="operator") == ["o-big", "o"]
    assert await ids(operator, 1, owner="operator", pool="big") == ["o-big"]
    assert await ids(operator, 1, name="leases/o") == ["o"]


async def test_reconnecting_watchers_miss_nothing_and_repeat_nothing_while_writers_write(
    admission: Admission,
) -> None:
    """Many writers at once; a watcher that reconnects after every few events sees each version."""
    user = await admission.caller()
    token = (await listed(user)).resume_token
    writers, rounds = 8, 6

    async def write(number: int) -> None:
        for turn in range(rounds):
            lease = await user.create(lease_id=f"w{number}-{turn}")
            await user(calls.UpdateLeaseRequest(lease={"name": lease.name, "priority": turn + 1}))
            await user(calls.CancelLeaseRequest(name=lease.name))

    async def follow() -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        resume = token
        while left := writers * rounds * 3 - len(found):
            events = await read(user, WATCH(resume_token=resume), min(left, 1 + len(found) % 6))
            resume = events[-1].resume_token
            found += seen(events)
        return found

    async with asyncio.TaskGroup() as group:
        following = group.create_task(follow())
        for number in range(writers):
            group.create_task(write(number))

    versions: dict[str, list[int]] = defaultdict(list)
    for lease_id, version in following.result():
        versions[lease_id].append(version)
    assert writers * rounds == len(versions)
    assert {(1, 2, 3)} == {tuple(each) for each in versions.values()}


async def test_a_list_and_a_watch_from_it_are_the_whole_book_while_writers_write(
    admission: Admission,
) -> None:
    """List at any moment, watch from its token: together every lease, none twice."""
    user = await admission.caller()
    count = 60

    async def write() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                group.create_task(user.create(lease_id=f"n{number}"))

    writing = asyncio.create_task(write())
    for _ in range(5):
        page = await listed(user)
        known = [lease.name.removeprefix("leases/") for lease in page.leases]
        rest = await read(user, WATCH(resume_token=page.resume_token), count - len(known))
        assert sorted(f"n{number}" for number in range(count)) == sorted(
            known + [lease_id for lease_id, _ in seen(rest)]
        )
    await writing


async def test_a_token_of_what_was_trimmed_must_list_again(admission: Admission) -> None:
    user = await admission.caller()
    token = (await listed(user)).resume_token
    async with user.client.stream(user.stub.WatchLeases, WATCH()) as stream:
        await stream.read()
        await user.create()
        await stream.read()
    # What a running transaction may still precede is not trimmed: wait until it is settled.
    async with asyncio.timeout(10):
        while not await admission.store.trim_feed(0):
            await asyncio.sleep(0.02)
    later = (await listed(user)).resume_token

    with pytest.raises(Stale) as caught:
        await read(user, WATCH(resume_token=token), 1)
    assert caught.value.reason == "RESUME_TOKEN_EXPIRED"
    await user.create(lease_id="next")
    assert seen(await read(user, WATCH(resume_token=later), 1)) == [("next", 1)]


@pytest.mark.parametrize("token", ["nonsense", "e30", "x" * 5_000])
async def test_what_is_no_token_is_refused(admission: Admission, token: str) -> None:
    user = await admission.caller()

    with pytest.raises(Invalid) as caught:
        await read(user, WATCH(resume_token=token), 1)

    assert [each.field for each in caught.value.violations] == ["resume_token"]


async def test_a_stopping_server_tells_its_watchers(admission: Admission) -> None:
    user = await admission.caller()

    async with user.client.stream(user.stub.WatchLeases, WATCH()) as stream:
        await stream.read()
        admission.draining.begin()
        with pytest.raises(Unavailable) as caught:
            await stream.read()

    assert caught.value.reason == "SERVER_DRAINING"


@pytest.mark.postgres
async def test_a_watch_goes_on_at_another_replica(stored: Admission, database_dsn: str) -> None:
    """Two replicas on one database: what one wrote, the other streams, from the other's token."""
    user = await stored.caller()
    token = (await listed(user)).resume_token
    async with on_postgres(database_dsn, like=stored.served) as second:
        elsewhere = await second.caller()
        await user.create(lease_id="here")
        await elsewhere.create(lease_id="there")
        first = await read(user, WATCH(resume_token=token), 1)

        rest = await read(elsewhere, WATCH(resume_token=first[0].resume_token), 1)

        assert seen(first + rest) == [("here", 1), ("there", 1)]
        # A wait at one replica ends by a change made at the other.
        waiting = asyncio.create_task(
            elsewhere(calls.WaitLeaseRequest(name="leases/here", states=[State.STATE_CANCELLED]))
        )
        await asyncio.sleep(0)
        await user(calls.CancelLeaseRequest(name="leases/here"))
        assert (await waiting).lease.state == State.STATE_CANCELLED
