"""SetQuota, DeleteQuota, ListQuotas, GetUsage, VerifyUsage: limits by call, and what they do."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.contract.admission.harness import (
    Admission,
    Caller,
    State,
    a_lease,
    charged,
    record,
    request_id,
    transition,
)

from tenure.admission.v1 import admission_pb2 as calls
from tenure.admission.v1 import lease_pb2 as pb
from tenure.admission.v1 import quota_pb2 as qpb
from tenure_admission.store.fullness import SHARES, fullness
from tenure_core.errors import Conflict, Exhausted, Forbidden, Invalid, NotFound
from tenure_runtime.postgres.transaction import run

PERCENT = [f"{share}%" for share in SHARES]

FAR = 2_000_000_000
"""An instant far ahead, in seconds."""


def a_quota(name: str = "quotas/ann", **fields: Any) -> qpb.Quota:
    given: dict[str, Any] = {"owner": "user", "limits": {"cpu": 2_000}, **fields}
    if "project" in given:
        del given["owner"]
    return qpb.Quota(name=name, **given)


async def put(operator: Caller, quota: qpb.Quota, **fields: Any) -> calls.SetQuotaResponse:
    answer: calls.SetQuotaResponse = await operator(calls.SetQuotaRequest(quota=quota, **fields))
    return answer


def valid(quota: qpb.Quota, start_s: int, end_s: int) -> qpb.Quota:
    quota.valid_interval.start_time.FromSeconds(start_s)
    quota.valid_interval.end_time.FromSeconds(end_s)
    return quota


def booking(lease: pb.Lease, start_s: int, seconds: int = 100) -> calls.TransitionRequest:
    step = transition(lease, State.STATE_SCHEDULED, version=lease.version, attempt=1)
    return charged(step, seconds, start_s=start_s)


def now_of(admission: Admission) -> int:
    return admission.clock.now_ms() // 1_000


async def usage(caller: Caller, **subject: str) -> dict[str, qpb.ResourceUsage]:
    answer: calls.GetUsageResponse = await caller(calls.GetUsageRequest(**subject))
    return {each.resource: each for each in answer.usage.resources}


async def test_a_quota_is_set_listed_replaced_and_deleted(admission: Admission) -> None:
    operator = await admission.caller("operator")

    first = (await put(operator, a_quota())).quota
    [listed] = (await operator(calls.ListQuotasRequest())).quotas
    second = (await put(operator, a_quota(limits={"memory": 5, "held_leases": 1}))).quota
    deleted = await operator(calls.DeleteQuotaRequest(name="quotas/ann", etag=second.etag))

    assert listed == first
    assert (first.name, first.owner, dict(first.limits)) == ("quotas/ann", "user", {"cpu": 2_000})
    assert dict(second.limits) == {"memory": 5, "held_leases": 1}
    assert second.create_time == first.create_time
    assert second.etag not in ("", first.etag)
    assert deleted.quota == second
    assert list((await operator(calls.ListQuotasRequest())).quotas) == []


async def test_an_old_etag_changes_nothing_also_after_the_quota_was_deleted_and_set_anew(
    admission: Admission,
) -> None:
    operator = await admission.caller("operator")
    first = (await put(operator, a_quota())).quota
    await operator(calls.DeleteQuotaRequest(name="quotas/ann"))
    for method in (
        lambda: put(operator, a_quota(etag=first.etag)),
        lambda: operator(calls.DeleteQuotaRequest(name="quotas/none")),
    ):
        with pytest.raises((Conflict, NotFound)):
            await method()

    second = (await put(operator, a_quota())).quota
    with pytest.raises(Conflict) as stale:
        await put(operator, a_quota(etag=first.etag))
    with pytest.raises(Conflict):
        await operator(calls.DeleteQuotaRequest(name="quotas/ann", etag=first.etag))

    assert stale.value.reason == "ETAG_MISMATCH"
    assert dict(stale.value.metadata) == {"name": "quotas/ann", "etag": second.etag}
    assert list((await operator(calls.ListQuotasRequest())).quotas) == [second]


async def test_a_repeated_request_does_nothing_more(admission: Admission) -> None:
    operator = await admission.caller("operator")
    first, again = request_id(), request_id()
    set_once = await put(operator, a_quota(), request_id=first)
    changed = await put(operator, a_quota(limits={"cpu": 9}))
    assert (await put(operator, a_quota(), request_id=first)).quota == set_once.quota
    with pytest.raises(Invalid) as reused:
        await put(operator, a_quota(limits={"cpu": 1}), request_id=first)
    gone = calls.DeleteQuotaRequest(name="quotas/ann", request_id=again)
    deleted = await operator(gone)
    await put(operator, a_quota(limits={"cpu": 7}))

    assert reused.value.reason == "REQUEST_ID_REUSED"
    assert deleted.quota == changed.quota
    assert await operator(gone) == deleted
    [left] = (await operator(calls.ListQuotasRequest())).quotas
    assert dict(left.limits) == {"cpu": 7}


async def test_everything_that_is_wrong_is_said_at_once(admission: Admission) -> None:
    operator = await admission.caller("operator")
    wrong = qpb.Quota(name="ann", limits={"CPU": 1, "memory": -1})
    valid(wrong, 20, 10)
    with pytest.raises(Invalid) as refused:
        await put(operator, wrong, request_id="x")
    with pytest.raises(Invalid) as nobody:
        await put(operator, qpb.Quota(name="quotas/x", owner=""))

    assert {(each.field, each.reason) for each in refused.value.violations} == {
        ("quota.name", "NAME_INVALID"),
        ("request_id", "REQUEST_ID_INVALID"),
        ("quota.subject", "REQUIRED"),
        ("quota.limits[CPU]", "KIND_INVALID"),
        ("quota.limits[memory]", "OUT_OF_RANGE"),
        ("quota.valid_interval", "INTERVAL_EMPTY"),
    }
    assert [(each.field, each.reason) for each in nobody.value.violations] == [
        ("quota.owner", "REQUIRED"),
        ("quota.limits", "REQUIRED"),
    ]


async def test_lists_come_in_pages_and_by_subject(admission: Admission) -> None:
    operator = await admission.caller("operator")
    for number in range(5):
        await put(operator, a_quota(f"quotas/u{number}"))
    await put(operator, a_quota("quotas/p", project="user"))

    names: list[str] = []
    request = calls.ListQuotasRequest(page_size=2, owner="user")
    while True:
        page = await operator(request)
        names += [quota.name for quota in page.quotas]
        if not page.next_page_token:
            break
        request = calls.ListQuotasRequest(
            page_size=2, owner="user", page_token=page.next_page_token
        )
    of_project = await operator(calls.ListQuotasRequest(project="user"))

    assert names == [f"quotas/u{number}" for number in range(5)]
    assert [quota.name for quota in of_project.quotas] == ["quotas/p"]


async def test_users_see_their_own_quotas_and_usage_and_change_none(admission: Admission) -> None:
    operator, user = await admission.caller("operator"), await admission.caller()
    mine = (await put(operator, a_quota())).quota
    await put(operator, a_quota("quotas/bob", owner="bob"))
    await put(operator, a_quota("quotas/p", project="default"))

    assert list((await user(calls.ListQuotasRequest())).quotas) == [mine]
    assert list((await user(calls.ListQuotasRequest(owner="bob"))).quotas) == []
    assert list((await user(calls.ListQuotasRequest(project="default"))).quotas) == []
    assert (await usage(user))["cpu"].limit == 2_000
    for request in (
        calls.GetUsageRequest(owner="bob"),
        calls.GetUsageRequest(project="default"),
        calls.SetQuotaRequest(quota=a_quota()),
        calls.DeleteQuotaRequest(name="quotas/ann"),
        calls.VerifyUsageRequest(),
    ):
        with pytest.raises(Forbidden):
            await user(request)
    assert (await usage(operator, owner="bob"))["cpu"].limit == 2_000


async def test_usage_says_what_is_used_now_and_later_and_what_the_ledger_has(
    admission: Admission,
) -> None:
    operator, user = await admission.caller("operator"), await admission.caller()
    leader = await admission.caller("service")
    now_s = now_of(admission)
    await put(operator, a_quota(limits={"cpu": 9_000, "waiting_leases": 50}))
    leases = [await user.create(a_lease(node_count=count)) for count in (1, 2, 3, 4)]
    steps = [
        booking(leases[0], now_s - 10),
        booking(leases[1], FAR),
        booking(leases[2], FAR + 50),
    ]
    assert [verdict.reason for verdict in await record(leader, *steps)] == ["", "", ""]

    found = await usage(user)

    cpu = found["cpu"]
    assert (cpu.used, cpu.peak, cpu.peak_time.seconds, cpu.charged, cpu.limit, cpu.quota) == (
        1_000,
        5_000,
        FAR + 50,
        6_000,
        9_000,
        "quotas/ann",
    )
    assert not cpu.HasField("over_time")
    assert {name: each.used for name, each in found.items()} == {
        "cpu": 1_000,
        "held_leases": 1,
        "open_leases": 4,
        "waiting_leases": 1,
    }
    assert found["waiting_leases"].limit == 50
    assert not found["open_leases"].HasField("limit")
    assert cpu == (await usage(operator, owner="user"))["cpu"]


async def test_lowering_a_quota_breaks_nothing_and_says_what_waits(admission: Admission) -> None:
    operator, user = await admission.caller("operator"), await admission.caller()
    leader = await admission.caller("service")
    now_s = now_of(admission)
    runs, small, large = [await user.create(a_lease(node_count=n)) for n in (3, 1, 2)]
    await record(leader, booking(runs, now_s - 10))

    answer = await put(operator, a_quota(limits={"cpu": 4_000}))
    lower = await put(operator, a_quota(limits={"cpu": 1_000}))

    [cpu] = [each for each in lower.usage.resources if each.resource == "cpu"]
    assert list(answer.usage.held_back_leases) == [large.name]
    assert list(lower.usage.held_back_leases) == [small.name, large.name]
    assert (cpu.used, cpu.limit) == (3_000, 1_000)
    assert cpu.over_time.seconds >= now_s
    assert (await user.get(runs)).state == State.STATE_SCHEDULED
    goes_on = transition(runs, State.STATE_STARTING, version=2, attempt=1)
    assert [v.reason for v in await record(leader, goes_on)] == [""]
    [waits] = await record(leader, booking(small, now_s))
    assert (waits.reason, waits.quota_excess.used) == ("QUOTA_EXCEEDED", 3_000)


async def test_what_was_refused_is_charged_once_others_have_ended(admission: Admission) -> None:
    operator, user = await admission.caller("operator"), await admission.caller()
    leader = await admission.caller("service")
    await put(operator, a_quota(limits={"held_leases": 1}))
    first, second = await user.create(), await user.create()

    taken = await record(leader, booking(first, FAR))
    full = await record(leader, booking(second, FAR))
    await record(leader, transition(first, State.STATE_QUEUED, version=2, attempt=1))
    free = await record(leader, booking(second, FAR))

    assert [v.reason for v in (*taken, *full, *free)] == ["", "QUOTA_EXCEEDED", ""]


async def test_a_quota_for_a_span_counts_there_in_place_of_the_others(
    admission: Admission,
) -> None:
    operator, user = await admission.caller("operator"), await admission.caller()
    leader = await admission.caller("service")
    await put(operator, a_quota(limits={"cpu": 1_000}))
    await put(operator, valid(a_quota("quotas/more", limits={"cpu": 3_000}), FAR, FAR + 1_000))
    await put(operator, valid(a_quota("quotas/less", limits={"cpu": 0}), FAR + 500, FAR + 600))
    leases = {
        name: await user.create(a_lease(node_count=count))
        for name, count in {"inside": 3, "before": 2, "across": 2, "closed": 1}.items()
    }

    verdicts = await record(
        leader,
        booking(leases["inside"], FAR),
        booking(leases["before"], FAR - 200),
        booking(leases["across"], FAR + 950),
        booking(leases["closed"], FAR + 450),
    )

    assert [(v.reason, v.quota_excess.quota, v.quota_excess.time.seconds) for v in verdicts] == [
        ("", "", 0),
        ("QUOTA_EXCEEDED", "quotas/ann", FAR - 200),
        ("QUOTA_EXCEEDED", "quotas/ann", FAR + 1_000),
        ("QUOTA_EXCEEDED", "quotas/less", FAR + 500),
    ]


async def test_limits_on_waiting_leases_refuse_creations_and_not_what_holds(
    admission: Admission,
) -> None:
    operator, user = await admission.caller("operator"), await admission.caller()
    leader = await admission.caller("service")
    await put(operator, a_quota(limits={"waiting_leases": 2}))
    answers = await asyncio.gather(*(user.create() for _ in range(9)), return_exceptions=True)
    waiting = [answer for answer in answers if isinstance(answer, pb.Lease)]
    [refused, *_] = [answer for answer in answers if isinstance(answer, Exhausted)]
    batch = calls.BatchCreateLeasesRequest(
        requests=[calls.CreateLeaseRequest(lease=a_lease()) for _ in range(2)]
    )
    await record(leader, booking(waiting[0], FAR))

    items = (await user(batch)).results

    assert len(waiting) == 2
    assert refused.reason == "LEASE_LIMIT_REACHED"
    assert dict(refused.metadata) == {
        "quota": "quotas/ann",
        "dimension": "owner",
        "name": "user",
        "resource": "waiting_leases",
        "limit": "2",
        "used": "2",
    }
    assert [item.reason for item in items] == ["", "LEASE_LIMIT_REACHED"]


async def test_an_explanation_names_the_quota_what_is_used_and_what_would_help(
    admission: Admission,
) -> None:
    operator, user = await admission.caller("operator"), await admission.caller()
    leader = await admission.caller("service")
    await put(operator, a_quota("quotas/team", project="default", limits={"cpu": 2_000}))
    runs, waits, never = [await user.create(a_lease(node_count=n)) for n in (1, 2, 3)]
    await record(leader, booking(runs, now_of(admission) - 10))
    request = calls.RecordTransitionsRequest(scope="pool/default", epoch=1)
    for lease in (waits, never):
        request.predictions.add(lease=lease.name, reason="QUOTA_EXCEEDED", message="Old news.")
    await leader(request)

    async def obstacle(lease: pb.Lease) -> qpb.QuotaExcess | Any:
        answer = await user(calls.ExplainLeaseRequest(name=lease.name))
        [found] = answer.obstacles
        assert found.message in answer.sentences
        return found

    first, second = await obstacle(waits), await obstacle(never)
    assert (first.reason, first.subject) == ("QUOTA_EXCEEDED", "quotas/team")
    assert first.message.startswith(
        "Quota team allows project default cpu=2 at a time; 1 is charged at "
    )
    assert first.message.endswith("and this lease asks for 2.")
    assert first.remedy == "It starts once other leases of project default end."
    assert "asks for more than the quota allows" in second.remedy
    await operator(calls.DeleteQuotaRequest(name="quotas/team"))
    assert (await obstacle(waits)).message == "Old news."


async def test_verify_finds_an_account_that_someone_changed_by_hand(stored: Admission) -> None:
    operator, user = await stored.caller("operator"), await stored.caller()
    leader = await stored.caller("service")
    lease = await user.create()
    await record(leader, booking(lease, FAR))
    right = await operator(calls.VerifyUsageRequest())
    await stored.store._pool.execute(
        "UPDATE usage SET amount = 7 WHERE dimension = 'owner' AND resource = 'cpu'"
    )

    wrong = await operator(calls.VerifyUsageRequest())

    assert list(right.drifts) == []
    assert right.verify_time.seconds > 0
    assert list(wrong.drifts) == [
        qpb.UsageDrift(dimension="owner", name="user", resource="cpu", stored=7, recomputed=1_000)
    ]


async def test_a_quota_waits_for_charges_that_are_being_decided(stored: Admission) -> None:
    """A charge decided without the quota must be seen by whoever decides with it."""
    operator = await stored.caller("operator")
    async with stored.store._pool.acquire() as connection, connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock_shared(709460, 0)")
        setting = asyncio.create_task(put(operator, a_quota()))
        async with asyncio.timeout(10):
            while not await stored.store._pool.fetchval(
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            ):
                await asyncio.sleep(0.01)
        assert not setting.done()
        assert list((await operator(calls.ListQuotasRequest())).quotas) == []
    assert (await setting).quota.name == "quotas/ann"


async def test_limits_are_counted_by_the_share_that_is_charged_of_them(stored: Admission) -> None:
    operator, user = await stored.caller("operator"), await stored.caller()
    leader = await stored.caller("service")
    await put(operator, a_quota(limits={"cpu": 1_200, "held_leases": 1, "open_leases": 5}))
    over = a_quota("quotas/then", limits={"cpu": 1})
    await put(operator, valid(over, FAR + 10_000, FAR + 20_000))
    lease = await user.create(a_lease())
    await record(leader, booking(lease, FAR))

    found = await run(stored.store._pool, fullness)

    assert found == {
        **{("owner", share): count for share, count in zip(PERCENT, (2, 2, 1, 1), strict=True)},
        **{("project", share): 0 for share in PERCENT},
    }


async def test_a_quota_may_count_in_spans_of_every_week_by_the_clocks_of_a_zone(
    admission: Admission,
) -> None:
    operator, user = await admission.caller("operator"), await admission.caller()
    leader = await admission.caller("service")
    night = a_quota(project="lab", limits={"cpu": 1_000}, time_zone="Europe/Berlin")
    for day in range(1, 8):
        span = night.weekly_spans.add(day=day)
        span.start_offset.FromSeconds(20 * 3_600)
        span.duration.FromSeconds(10 * 3_600)
    stored = (await put(operator, night)).quota
    # Noon of a day in winter: 20:00 in Berlin is 19:00 UTC.
    noon = 23_717 * 86_400 + 43_200
    wanted = [a_lease(project="lab", node_count=2, amounts={"cpu": 1_000}) for _ in range(3)]
    by_day, into_night, next_day = [await user.create(lease) for lease in wanted]

    verdicts = await record(
        leader,
        booking(by_day, noon, 7 * 3_600),
        booking(into_night, noon + 7 * 3_600 - 1, 2),
        booking(next_day, noon + 17 * 3_600, 3_600),
    )
    [listed] = (await operator(calls.ListQuotasRequest())).quotas

    assert listed == stored
    assert list(stored.weekly_spans) == list(night.weekly_spans)
    assert stored.time_zone == "Europe/Berlin"
    assert [verdict.reason for verdict in verdicts] == ["", "QUOTA_EXCEEDED", ""]
    assert verdicts[1].quota_excess.time.seconds == noon + 7 * 3_600


async def test_what_is_wrong_with_weekly_spans_is_said(admission: Admission) -> None:
    operator = await admission.caller("operator")
    wrong = a_quota(time_zone="Mars/Olympus")
    span = wrong.weekly_spans.add(day=8)
    span.start_offset.FromSeconds(86_400)
    span.duration.FromSeconds(59)

    with pytest.raises(Invalid) as refused:
        await put(operator, wrong)

    assert {(each.field, each.reason) for each in refused.value.violations} == {
        ("quota.weekly_spans[0].day", "OUT_OF_RANGE"),
        ("quota.weekly_spans[0].start_offset", "OUT_OF_RANGE"),
        ("quota.weekly_spans[0].duration", "OUT_OF_RANGE"),
        ("quota.time_zone", "NAME_INVALID"),
    }
