"""What was used of a pool is stored once, bounded, and gone on from by the next leader."""

from __future__ import annotations

from collections.abc import AsyncIterator
from decimal import Decimal

import pytest
from tests.support.databases import open_test_pool

from tenure_core.admission.usage_meter import DAYS_KEPT, Account, UsageMeter
from tenure_core.errors import Stale
from tenure_core.leases.lease import BestEffort, LeaseSpec
from tenure_core.resources import ResourceVector
from tenure_core.timebase import DAY_MS, HOUR_MS
from tenure_runtime.postgres.migrate import migrate
from tenure_scheduler.ports import Claim, UsageStore
from tenure_scheduler.store.usage import MemoryUsage, PostgresUsage

DAY = 20_000
NOON = DAY * DAY_MS + 12 * HOUR_MS


@pytest.fixture
async def usage(store_kind: str, request: pytest.FixtureRequest) -> AsyncIterator[UsageStore]:
    if store_kind == "memory":
        yield MemoryUsage()
        return
    pool = await open_test_pool(request.getfixturevalue("database_dsn"), "scheduler")
    try:
        await migrate(pool, "scheduler", "tenure_scheduler")
        yield PostgresUsage(pool)
    finally:
        await pool.close()


def spec(owner: str = "ann", nodes: int = 2) -> LeaseSpec:
    amounts = ResourceVector({"cpu": 1_000})
    return LeaseSpec(owner, "lab", "main", BestEffort(), nodes, amounts, HOUR_MS)


async def test_a_leader_goes_on_from_where_the_one_before_stored(usage: UsageStore) -> None:
    first = await usage.load("main", NOON)
    first.begin("runs", spec(), NOON)
    await usage.add(Claim("main", 1), NOON, NOON + 10, first.metered(NOON + 10))
    second = await usage.load("main", NOON + 500)
    second.begin("runs", spec(), NOON)
    second.end("runs", NOON + 15)

    taken = second.metered(NOON + 15)
    await usage.add(Claim("main", 2), NOON + 10, NOON + 15, taken)
    third = await usage.load("main", NOON + 999)

    assert taken == {Account(DAY, "ann", "lab", "cpu"): 5 * 2_000}
    assert third == UsageMeter(NOON + 15, {Account(DAY, "ann", "lab", "cpu"): 15 * 2_000})
    assert await usage.load("other", 7) == UsageMeter(7)


async def test_a_leader_that_was_followed_stores_nothing(usage: UsageStore) -> None:
    account = Account(DAY, "ann", "lab", "cpu")
    await usage.add(Claim("main", 2), NOON, NOON + 10, {account: 3})

    for claim, since in ((Claim("main", 1), NOON + 10), (Claim("main", 2), NOON)):
        with pytest.raises(Stale) as caught:
            await usage.add(claim, since, NOON + 20, {account: 9})
        assert caught.value.reason == "USAGE_MOVED_ON"

    assert await usage.load("main", 0) == UsageMeter(NOON + 10, {account: 3})


async def test_days_are_split_and_old_ones_forgotten(usage: UsageStore) -> None:
    meter = UsageMeter(NOON)
    meter.begin("runs", spec(nodes=1), NOON)
    later = NOON + (DAYS_KEPT + 1) * DAY_MS
    await usage.add(Claim("main", 1), NOON, later, meter.metered(later))
    meter.take(later)

    stored = await usage.load("main", 0)

    assert stored.usage == meter.usage
    days = sorted(account.day for account in stored.usage)
    assert days == list(range(DAY + 1, DAY + DAYS_KEPT + 2))
    assert stored.usage[Account(DAY + 1, "ann", "lab", "cpu")] == 1_000 * DAY_MS


def test_what_was_used_longer_ago_counts_less_by_whole_half_lives() -> None:
    day = 1_000 * DAY_MS
    meter = UsageMeter(NOON)
    meter.usage = {
        Account(DAY, "ann", "lab", "cpu"): day,
        Account(DAY - 7, "bob", "lab", "cpu"): 2 * day,
        Account(DAY - 7, "cid", "lab", "cpu"): 4 * day,
    }
    meter.take(NOON)
    found = meter.factors({"owner": {"cid": 2}}, 7 * DAY_MS, ResourceVector({"cpu": 1_000}))

    share = Decimal(1) / DAYS_KEPT
    assert found["owner"]["ann"] == found["owner"]["bob"] == found["owner"]["cid"]
    assert abs(found["owner"]["ann"] - Decimal(2) ** -share) < Decimal("1e-20")
