"""A watch goes on by itself over cuts, and says plainly when it cannot."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from datetime import timedelta

import pytest
from tests.contract.client.cutting_proxy import cutting_proxy

from tenure.client import (
    LeaseState,
    Unavailable,
    WatchExpired,
    connect_async,
)
from tenure_core.errors import Invalid
from tenure_runtime.postgres.changefeed import ChangeFeed
from tenure_runtime.postgres.pool import PoolOptions, open_pool


async def leases_at(plane, count, label):
    """Make leases far ahead, one after another; return their ids in order."""
    return [
        (
            await plane.submit(
                cpu=0.1, start=timedelta(hours=30), duration="1m", labels={"watch": label}
            )
        ).id
        for _ in range(count)
    ]


async def created(changes, count, label):
    """Return the ids of the first `count` leases of a label that a watch shows, once each."""
    seen = []
    async with asyncio.timeout(30), aclosing(changes):
        async for change in changes:
            lease = change.lease
            if lease.labels.get("watch") == label and lease.state is LeaseState.PENDING:
                seen.append(lease.id)
            if len(seen) == count:
                return seen
    raise AssertionError("the watch ended")


async def test_a_watch_over_cuts_misses_nothing_and_repeats_nothing(suite):
    address = suite.suite.state.address("admission")
    async with (
        connect_async(suite.folder) as writer,
        cutting_proxy(address) as proxy,
        connect_async(suite.folder, addresses={"admission": proxy.address}) as reader,
    ):
        token = await reader.token()
        watching = asyncio.create_task(created(reader.watch(token=token), 12, "cuts"))
        made = []
        for _ in range(4):
            made += await leases_at(writer, 3, "cuts")
            await proxy.cut()
        assert await watching == made
        assert proxy.accepted > 2
        for lease_id in made:
            await writer.cancel(lease_id)


async def test_a_watch_without_a_token_starts_now(suite):
    async with connect_async(suite.folder) as plane:
        (before,) = await leases_at(plane, 1, "now")
        changes = plane.watch(pool="default")
        watching = asyncio.create_task(created(changes, 2, "now"))
        made = []
        while not watching.done():
            made += await leases_at(plane, 1, "now")
            await asyncio.sleep(0.05)
        seen = watching.result()
        assert before not in seen
        # Those made before the watch stood are not shown; none in between is missing.
        assert made[made.index(seen[0]) :][:2] == seen
        for lease_id in [before, *made]:
            await plane.cancel(lease_id)


async def test_one_lease_is_watched_to_its_end(suite):
    async with connect_async(suite.folder) as plane:
        lease = await plane.submit(cpu=0.1, start=timedelta(hours=31), duration="1m")
        states = []

        async def follow():
            async with aclosing(plane.watch(lease_id=lease.id, relist=True)) as changes:
                async for change in changes:
                    states.append(change.lease.state)
                    if change.lease.ended:
                        return

        following = asyncio.create_task(follow())
        await lease.wait(LeaseState.SCHEDULED, within_s=30)
        await lease.cancel()
        async with asyncio.timeout(30):
            await following
        assert states[-1] is LeaseState.CANCELLED


async def test_a_token_that_makes_no_sense_ends_the_watch(suite):
    async with connect_async(suite.folder) as plane:
        with pytest.raises(Invalid) as raised:
            await anext(plane.watch(token="nonsense"))
        assert raised.value.reason == "RESUME_TOKEN_INVALID"


async def expire(suite):
    """Forget all changes, as admission does with those of the day before."""
    pool = await open_pool(PoolOptions(suite.dsn(), "admission", size_max=2))
    try:
        feed = await ChangeFeed.open(pool, "leases")
        await feed.trim(0)
    finally:
        await pool.close()


async def test_changes_that_were_missed_are_said_or_listed_again(suite):
    async with connect_async(suite.folder) as plane:
        token = await plane.token()
        made = await leases_at(plane, 2, "expired")
        # Settled, so that there is nothing else that would come from a watch.
        for lease_id in made:
            await (await plane.lease(lease_id)).wait(LeaseState.SCHEDULED, within_s=30)
        await expire(suite)

        with pytest.raises(WatchExpired) as raised:
            await anext(plane.watch(token=token))
        assert raised.value.reason == "RESUME_TOKEN_EXPIRED"

        listed = set()
        async with (
            asyncio.timeout(30),
            aclosing(plane.watch(token=token, relist=True)) as changes,
        ):
            async for change in changes:
                if change.lease.labels.get("watch") != "expired":
                    continue
                if not change.listed:
                    # What comes after the list is a change again.
                    assert change.lease.id == made[0]
                    assert change.lease.state is LeaseState.CANCELLING
                    break
                listed.add(change.lease.id)
                if listed == set(made):
                    await plane.cancel(made[0])
                    listed.add("cancelled")
        assert listed == {*made, "cancelled"}
        await plane.cancel(made[1])


async def test_nobody_there_raises_after_patience(suite):
    async with (
        cutting_proxy(suite.suite.state.address("admission")) as proxy,
        connect_async(suite.folder, addresses={"admission": proxy.address}) as plane,
    ):
        proxy.refusing = True
        with pytest.raises(Unavailable):
            async with asyncio.timeout(20):
                await anext(plane.watch(patience_s=0.5))


async def test_a_stopped_watch_leaves_nothing_behind(suite):
    async with connect_async(suite.folder) as plane:
        # Of nobody, so that no lease of another test ends the wait.
        changes = plane.watch(owner="nobody")
        reading = asyncio.create_task(anext(changes))
        await asyncio.sleep(0.1)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await changes.aclose()
