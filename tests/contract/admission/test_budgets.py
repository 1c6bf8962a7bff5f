"""Budgets over periods: charged ahead with the booking, settled when it ends, proven by sums."""

from __future__ import annotations

from typing import Any

import pytest
from tests.contract.admission.harness import (
    Admission,
    Caller,
    State,
    a_lease,
    charged,
    record,
    transition,
)

from tenure.admission.v1 import admission_pb2 as calls
from tenure.admission.v1 import lease_pb2 as pb
from tenure.admission.v1 import quota_pb2 as qpb
from tenure_admission.upkeep import Upkeep
from tenure_core.errors import Invalid
from tenure_core.timebase import DAY_MS, HOUR_MS

NEXT_NOON_S = 20_000 * 86_400 + 43_200
"""Noon of a day far enough ahead that the clock is set to it."""


@pytest.fixture
async def noon(admission: Admission) -> Admission:
    """Admission at noon of a day."""
    admission.clock.ahead_ms += NEXT_NOON_S * 1_000 - admission.clock.now_ms()
    return admission


async def budget(admission: Admission, cpu_hours: int, **fields: Any) -> calls.SetQuotaResponse:
    operator = await admission.caller("operator")
    fields.setdefault("project", "lab")
    quota = qpb.Quota(
        name="quotas/b",
        budgets={"cpu": cpu_hours * 1_000},
        period=qpb.Quota.PERIOD_DAY,
        **fields,
    )
    answer: calls.SetQuotaResponse = await operator(calls.SetQuotaRequest(quota=quota))
    return answer


async def one(admission: Admission, name: str, cpu: int = 1) -> pb.Lease:
    user = await admission.caller()
    lease = a_lease(project="lab", node_count=1, amounts={"cpu": cpu * 1_000})
    return await user.create(lease, lease_id=name)


def booked(lease: pb.Lease, start_s: int, hours: int) -> calls.TransitionRequest:
    step = transition(lease, State.STATE_SCHEDULED, version=lease.version, attempt=1)
    return charged(step, hours * 3_600, start_s=start_s)


async def used(admission: Admission) -> tuple[int, int]:
    """Return core-hours charged in the present period, in thousandths, and the limit."""
    user = await admission.caller("operator")
    answer = await user(calls.GetUsageRequest(project="lab"))
    [found] = answer.usage.budgets
    return found.charged, found.limit


async def verified(admission: Admission) -> list[qpb.UsageDrift]:
    operator = await admission.caller("operator")
    return list((await operator(calls.VerifyUsageRequest())).drifts)


async def end(leader: Caller, lease: pb.Lease) -> None:
    [verdict] = await record(leader, transition(lease, State.STATE_FAILED, version=2, attempt=1))
    assert verdict.reason == ""


async def test_a_booking_is_charged_ahead_and_what_is_not_used_comes_back(noon: Admission) -> None:
    leader = await noon.caller("service")
    await budget(noon, 10)
    first, second = await one(noon, "first"), await one(noon, "second")
    now_s = noon.clock.now_ms() // 1_000

    [charged_ahead] = await record(leader, booked(first, now_s, 8))
    [refused] = await record(leader, booked(second, now_s, 3))
    ahead = await used(noon)
    noon.clock.ahead_ms += 2 * HOUR_MS
    await end(leader, first)
    left = await used(noon)
    [granted] = await record(leader, booked(second, now_s + 7_200, 3))

    assert charged_ahead.reason == ""
    assert refused.reason == "QUOTA_EXCEEDED"
    assert "allows project lab 10 cpu-hours a day; 8 are charged in the day from" in refused.message
    assert "asks for 3 in it" in refused.message
    excess = refused.quota_excess
    assert (excess.used, excess.asked, excess.limit, excess.budget) == (8_000, 3_000, 10_000, True)
    assert ahead == (8_000, 10_000)
    assert 2_000 <= left[0] <= 2_002
    assert granted.reason == ""
    assert await verified(noon) == []


async def test_a_span_over_midnight_is_split_and_the_next_day_begins_anew(noon: Admission) -> None:
    leader = await noon.caller("service")
    await budget(noon, 10)
    first, second, third = [await one(noon, name) for name in ("first", "second", "third")]
    now_s = noon.clock.now_ms() // 1_000

    verdicts = await record(
        leader,
        booked(first, now_s + 10 * 3_600, 6),
        booked(second, now_s, 9),
        booked(third, now_s + 12 * 3_600, 7),
    )
    today = await used(noon)
    noon.clock.ahead_ms += 13 * HOUR_MS
    await end(leader, first)
    tomorrow = await used(noon)

    # The first is charged two hours today and four tomorrow.
    assert [verdict.reason for verdict in verdicts] == ["", "QUOTA_EXCEEDED", "QUOTA_EXCEEDED"]
    assert today[0] == 2_000
    assert 1_000 <= tomorrow[0] <= 1_002
    assert await verified(noon) == []


async def test_lowering_a_budget_breaks_nothing_and_says_what_waits(noon: Admission) -> None:
    leader, user = await noon.caller("service"), await noon.caller()
    first, second = await one(noon, "first"), await one(noon, "second")
    now_s = noon.clock.now_ms() // 1_000
    await record(leader, booked(first, now_s, 8))

    lowered = await budget(noon, 5)
    [same] = await record(leader, transition(first, State.STATE_ACTIVE, version=2, attempt=1))
    explained = await user(calls.ExplainLeaseRequest(name=second.name))

    assert list(lowered.usage.held_back_leases) == [second.name]
    assert same.reason != "QUOTA_EXCEEDED"
    blocks = [each.reason for each in explained.predicates if each.blocks]
    assert blocks == ["QUOTA_EXCEEDED"]


async def test_what_is_wrong_with_a_budget_is_said(admission: Admission) -> None:
    operator = await admission.caller("operator")
    wrong = qpb.Quota(name="quotas/b", owner="ann", budgets={"held_leases": 1, "cpu": -1})
    with pytest.raises(Invalid) as refused:
        await operator(calls.SetQuotaRequest(quota=wrong))

    assert {(each.field, each.reason) for each in refused.value.violations} == {
        ("quota.budgets[held_leases]", "KIND_INVALID"),
        ("quota.budgets[cpu]", "OUT_OF_RANGE"),
    }


async def test_what_was_spent_long_ago_is_forgotten_with_its_sums(stored: Admission) -> None:
    stored.clock.ahead_ms += NEXT_NOON_S * 1_000 - stored.clock.now_ms()
    leader = await stored.caller("service")
    lease = await one(stored, "old")
    await record(leader, booked(lease, stored.clock.now_ms() // 1_000, 60))
    stored.clock.ahead_ms += 2 * DAY_MS
    await end(leader, lease)
    upkeep = Upkeep(stored.store, stored.store.quotas, stored.clock, 0, 0)

    kept = await upkeep.forget_spent()
    stored.clock.ahead_ms += 99 * DAY_MS
    some = await upkeep.forget_spent()
    drifts = await verified(stored)
    stored.clock.ahead_ms += 99 * DAY_MS
    rest = await upkeep.forget_spent()

    assert (kept, some > 0, rest > 0) == (0, True, True)
    assert drifts == await verified(stored) == []


async def test_a_sum_that_was_written_by_hand_is_found(stored: Admission) -> None:
    stored.clock.ahead_ms += NEXT_NOON_S * 1_000 - stored.clock.now_ms()
    leader = await stored.caller("service")
    lease = await one(stored, "one")
    await record(leader, booked(lease, stored.clock.now_ms() // 1_000, 1))
    stored.clock.ahead_ms += HOUR_MS
    await end(leader, lease)
    await stored.store._pool.execute("UPDATE spending SET used = used + 1 WHERE name = 'lab'")

    [drift] = await verified(stored)

    assert (drift.dimension, drift.name, drift.resource) == ("project", "lab", "cpu on day 20000")
    assert drift.stored == drift.recomputed + 1
