"""The fan-out to watchers: bounded memory, bookmarks, and an end for all."""

from __future__ import annotations

import asyncio

import pytest

from tenure_core.errors import Stale, Unavailable
from tenure_runtime.rpc.draining import Draining
from tenure_runtime.rpc.watch import IDLE, Fanout, WatcherTooSlow


async def take(watcher, count: int) -> list[object]:
    items = []
    async for item in watcher:
        items.append(item)
        if len(items) == count:
            break
    return items


async def test_every_watcher_gets_what_it_wants_from_its_subscription_on() -> None:
    fanout: Fanout[int] = Fanout(Draining())
    fanout.publish(0)
    with fanout.subscribe() as all_of_it, fanout.subscribe(lambda n: n % 2 == 0) as even:
        for number in range(1, 7):
            fanout.publish(number)
        assert await take(all_of_it, 6) == [1, 2, 3, 4, 5, 6]
        assert await take(even, 3) == [2, 4, 6]
    assert len(fanout) == 0


async def test_a_slow_watcher_is_cut_off_alone_and_holds_nothing() -> None:
    fanout: Fanout[int] = Fanout(Draining(), queue_limit=3)
    with fanout.subscribe() as slow, fanout.subscribe() as quick:
        for number in range(5):
            fanout.publish(number)
            assert await take(quick, 1) == [number]
        assert len(slow._items) == 0
        with pytest.raises(WatcherTooSlow):
            await take(slow, 1)


async def test_an_idle_watcher_is_told_so_again_and_again() -> None:
    fanout: Fanout[int] = Fanout(Draining(), bookmark_s=0.01)
    with fanout.subscribe() as watcher:
        assert await take(watcher, 2) == [IDLE, IDLE]
        fanout.publish(1)
        assert (await take(watcher, 1)) == [1]


async def test_a_stop_ends_all_watchers_after_what_they_had() -> None:
    draining = Draining()
    fanout: Fanout[int] = Fanout(draining)
    with fanout.subscribe() as watcher, fanout.subscribe() as idle:
        waiting = asyncio.ensure_future(take(idle, 1))
        await asyncio.sleep(0)
        fanout._watchers.discard(idle)
        fanout.publish(1)
        draining.begin()
        assert await take(watcher, 1) == [1]
        for each in (waiting, take(watcher, 1)):
            with pytest.raises(Unavailable) as caught:
                await each
            assert caught.value.reason == "SERVER_DRAINING"


async def test_all_present_watchers_can_be_ended_and_later_ones_are_not() -> None:
    fanout: Fanout[int] = Fanout(Draining())
    with fanout.subscribe() as present:
        fanout.end(Stale("RESUME_TOKEN_EXPIRED", "List again."))
        with pytest.raises(Stale):
            await take(present, 1)
    with fanout.subscribe() as later:
        fanout.publish(1)
        assert await take(later, 1) == [1]
