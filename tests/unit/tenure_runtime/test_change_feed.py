"""Change feeds over a real PostgreSQL: nothing missed, nothing repeated, or a plain refusal."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import asyncpg
import pytest
from tests.support.databases import open_test_pool

from tenure_core.errors import Invalid, Stale, Unavailable
from tenure_runtime.postgres.changefeed import Change, ChangeFeed, NewChange
from tenure_runtime.postgres.feedhub import Bookmark, FeedHub
from tenure_runtime.postgres.migrate import migrate_components, migrations_of
from tenure_runtime.postgres.pool import Pool
from tenure_runtime.postgres.position import Position, parse_token
from tenure_runtime.postgres.transaction import Transaction, run
from tenure_runtime.rpc.draining import Draining

pytestmark = pytest.mark.postgres


@pytest.fixture
async def pool(database_dsn: str) -> AsyncIterator[Pool]:
    pool = await open_test_pool(database_dsn, "feeding", size_max=20)
    await migrate_components(pool, "feeding", {"runtime": migrations_of("tenure_runtime.postgres")})
    await pool.execute("CREATE TABLE items (name text PRIMARY KEY)")
    yield pool
    await pool.close()


@pytest.fixture
async def feed(pool: Pool) -> ChangeFeed:
    return await ChangeFeed.open(pool, "items")


async def add(pool: Pool, feed: ChangeFeed, *names: str) -> None:
    async def use_case(tx: Transaction) -> None:
        await append(tx, feed, *names)

    await run(pool, use_case)


async def append(tx: Transaction, feed: ChangeFeed, *names: str) -> None:
    await tx.executemany("INSERT INTO items VALUES ($1)", [(name,) for name in names])
    await feed.append(tx, [NewChange(name, "added", name.encode()) for name in names])


async def read_all(feed: ChangeFeed, after: Position) -> tuple[list[str], Position]:
    names: list[str] = []
    while True:
        page = await feed.read(after, limit=3)
        names += [change.key for change in page.changes]
        after = page.position
        if not page.more:
            return names, after


async def test_changes_come_in_order_and_in_pages(pool: Pool, feed: ChangeFeed) -> None:
    start = await feed.now()
    await add(pool, feed, "a", "b")
    await add(pool, feed, "c", "d", "e")
    page = await feed.read(start, limit=3)
    assert [(c.key, c.kind, c.payload) for c in page.changes] == [
        ("a", "added", b"a"),
        ("b", "added", b"b"),
        ("c", "added", b"c"),
    ]
    assert page.more
    rest = await feed.read(page.position.token(), limit=3)
    assert [change.key for change in rest.changes] == ["d", "e"]
    assert not rest.more


async def test_a_rolled_back_change_never_appears(pool: Pool, feed: ChangeFeed) -> None:
    start = await feed.now()

    async def fails(tx: Transaction) -> None:
        await append(tx, feed, "lost")
        raise Unavailable("NO", "No.")

    with pytest.raises(Unavailable):
        await run(pool, fails)
    await add(pool, feed, "kept")
    assert (await read_all(feed, start))[0] == ["kept"]


async def test_a_late_commit_is_not_missed(pool: Pool, feed: ChangeFeed) -> None:
    """The first to take a number commits last; a reader by sequence alone would skip it."""
    position = await feed.now()
    async with pool.acquire() as slow:
        transaction = slow.transaction()
        await transaction.start()
        await append(Transaction(slow), feed, "late")
        await add(pool, feed, "early")
        page = await feed.read(position)
        assert (page.changes, page.unsettled) == ((), True)
        await transaction.commit()
    assert (await read_all(feed, page.position))[0] == ["late", "early"]


async def test_readers_see_everything_once_under_random_commits(
    pool: Pool, feed: ChangeFeed
) -> None:
    start = await feed.now()
    rng = random.Random(7)
    seen: list[str] = []
    writing = True

    async def writer(number: int) -> None:
        for n in range(15):

            async def use_case(tx: Transaction, n: int = n) -> None:
                await append(tx, feed, f"{number}-{n}a")
                await asyncio.sleep(rng.uniform(0, 0.01))
                await append(tx, feed, f"{number}-{n}b")

            await run(pool, use_case)

    async def reader() -> None:
        position = start
        while True:
            last = not writing
            names, position = await read_all(feed, position)
            seen.extend(names)
            if last and not names:
                return
            await asyncio.sleep(0.001)

    async with asyncio.TaskGroup() as group:
        reading = group.create_task(reader())
        async with asyncio.TaskGroup() as writers:
            for number in range(8):
                writers.create_task(writer(number))
        writing = False
        await reading
    assert sorted(seen) == sorted(
        f"{w}-{n}{half}" for w in range(8) for n in range(15) for half in "ab"
    )


async def test_a_watch_after_a_list_repeats_nothing_of_the_list(
    pool: Pool, feed: ChangeFeed
) -> None:
    """While an older transaction runs, the list shows younger ones: they must not come again."""
    async with pool.acquire() as slow:
        transaction = slow.transaction()
        await transaction.start()
        await append(Transaction(slow), feed, "late")
        await add(pool, feed, "listed")

        async def list_all(tx: Transaction) -> tuple[list[str], str]:
            names = [row[0] for row in await tx.fetch("SELECT name FROM items")]
            return names, (await feed.position(tx)).token()

        names, token = await run(pool, list_all, isolation="repeatable_read", readonly=True)
        await transaction.commit()
    await add(pool, feed, "after")
    assert names == ["listed"]
    assert (await read_all(feed, parse_token(token)))[0] == ["late", "after"]


async def test_a_feed_that_grows_too_long_loses_its_oldest_changes(
    pool: Pool, feed: ChangeFeed
) -> None:
    start = await feed.now()
    for name in "abcde":
        await add(pool, feed, name)
    page = await feed.read(start, limit=3)
    assert await feed.trim(86_400_000, kept_max=5) == 0
    assert await feed.trim(86_400_000, kept_max=2) == 3
    assert (await read_all(feed, page.position))[0] == ["d", "e"]


async def test_a_trimmed_token_is_refused_and_a_younger_one_is_not(
    pool: Pool, feed: ChangeFeed
) -> None:
    start = await feed.now()
    await add(pool, feed, "a")
    await add(pool, feed, "b")
    page = await feed.read(start)
    await add(pool, feed, "young")
    await pool.execute(
        "UPDATE changes SET created_at = now() - interval '1 hour' WHERE key IN ('a', 'b')"
    )
    assert await feed.trim(60_000) == 2
    assert await feed.trim(60_000) == 0
    with pytest.raises(Stale) as caught:
        await feed.read(start)
    assert caught.value.reason == "RESUME_TOKEN_EXPIRED"
    assert (await read_all(feed, page.position))[0] == ["young"]


async def test_a_restored_database_has_another_incarnation(pool: Pool, feed: ChangeFeed) -> None:
    """Transaction ids of another server mean nothing here: old tokens end, new changes flow."""
    await add(pool, feed, "before")
    start = await feed.now()
    await pool.execute("UPDATE feeds SET home = 'another server'")
    await pool.execute("UPDATE changes SET tx = 9000000000")
    reopened = await ChangeFeed.open(pool, "items")
    with pytest.raises(Stale):
        await reopened.read(start)
    fresh = await reopened.now()
    assert fresh.incarnation != start.incarnation
    await add(pool, reopened, "after")
    assert (await read_all(reopened, fresh))[0] == ["after"]
    assert (await ChangeFeed.open(pool, "items")).incarnation == fresh.incarnation


async def test_a_restore_under_a_running_process_ends_its_watches(
    pool: Pool, feed: ChangeFeed
) -> None:
    token = (await feed.now()).token()
    async with following(feed, Draining(), poll_s=0.05) as hub, asyncio.timeout(20):
        await listening(pool, 1)
        watch = asyncio.ensure_future(collect(hub, token, 1))
        await pool.execute("UPDATE feeds SET home = 'another server'")
        await pool.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query ILIKE 'listen%'"
            " AND datname = current_database() AND pid <> pg_backend_pid()"
        )
        with pytest.raises(Stale) as caught:
            await watch
        assert caught.value.reason == "RESUME_TOKEN_EXPIRED"
        fresh = (await feed.now()).token()
        await add(pool, feed, "after")
        assert await collect(hub, fresh, 1) == ["after"]


@pytest.mark.parametrize("token", ["x", "", "bnVsbA", "WzEsMiwzLDRd", "é", "W10" * 5000])
async def test_what_is_no_token_is_invalid(feed: ChangeFeed, token: str) -> None:
    with pytest.raises(Invalid) as caught:
        await feed.read(token)
    assert caught.value.reason == "RESUME_TOKEN_INVALID"


async def test_a_forged_snapshot_is_invalid(feed: ChangeFeed) -> None:
    for snapshot in ("1:2", "a:b:c", "1:2:x", "1:1:';--", "5:3:", "-1:-2:", "9" * 400 + ":1:"):
        with pytest.raises(Invalid):
            await feed.read(Position(feed.incarnation, 1, 1, snapshot).token())


@asynccontextmanager
async def following(feed: ChangeFeed, draining: Draining, **options) -> AsyncIterator[FeedHub]:
    hub = FeedHub(feed, draining, **options)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(feed.run()), group.create_task(hub.run())]
        try:
            yield hub
        finally:
            for task in tasks:
                task.cancel()


async def collect(hub: FeedHub, token: str, count: int) -> list[str]:
    names = []
    async with asyncio.timeout(30), aclosing(hub.watch(token)) as items:
        async for item in items:
            if isinstance(item, Change):
                names.append(item.key)
            if len(names) == count:
                return names
    raise AssertionError("a watch ends with an error only")


async def test_a_watch_joins_what_was_stored_to_what_comes(pool: Pool, feed: ChangeFeed) -> None:
    token = (await feed.now()).token()
    await add(pool, feed, "before")
    async with following(feed, Draining()) as hub, asyncio.TaskGroup() as group:
        watches = [group.create_task(collect(hub, token, 4)) for _ in range(5)]
        for name in ("one", "two", "three"):
            await add(pool, feed, name)
    assert [watch.result() for watch in watches] == [["before", "one", "two", "three"]] * 5


async def test_watchers_that_reconnect_miss_nothing_and_repeat_nothing(
    pool: Pool, feed: ChangeFeed
) -> None:
    rng = random.Random(11)
    token = (await feed.now()).token()
    expected = [f"n{n:03}" for n in range(120)]

    async def write() -> None:
        for name in expected:
            await add(pool, feed, name)

    async def watch(hub: FeedHub) -> list[str]:
        names: list[str] = []
        resume = token
        while len(names) < len(expected):
            until = len(names) + rng.randrange(1, 12)
            async with aclosing(hub.watch(resume)) as items:
                async for item in items:
                    resume = item.position.token()
                    if isinstance(item, Change):
                        names.append(item.key)
                    if len(names) >= min(until, len(expected)):
                        break
        return names

    async with following(feed, Draining(), poll_s=0.05) as hub, asyncio.TaskGroup() as group:
        watches = [group.create_task(watch(hub)) for _ in range(4)]
        group.create_task(write())
    assert [each.result() for each in watches] == [expected] * 4


async def test_another_process_is_woken_without_waiting_for_the_poll(
    pool: Pool, database_dsn: str
) -> None:
    """Two feeds with a pool each stand for two processes; polling would come far too late."""
    writer_pool = await open_test_pool(database_dsn, "feeding")
    ours, theirs = await ChangeFeed.open(pool, "items"), await ChangeFeed.open(writer_pool, "items")
    token = (await ours.now()).token()
    try:
        async with (
            asyncio.timeout(10),
            following(ours, Draining(), poll_s=60) as hub,
            following(theirs, Draining(), poll_s=60),
            asyncio.TaskGroup() as group,
        ):
            watch = group.create_task(collect(hub, token, 1))
            await listening(pool, 2)
            await add(writer_pool, theirs, "told")
            assert await watch == ["told"]
    finally:
        await writer_pool.close()


async def listening(pool: Pool, count: int) -> None:
    """Return once `count` sessions have run LISTEN (and perhaps NOTIFY since)."""
    sql = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND pid <> pg_backend_pid() AND (query ILIKE 'listen%' OR query LIKE '%pg_notify%')"
    )
    while await pool.fetchval(sql) < count:
        await asyncio.sleep(0.01)


async def test_a_feed_outlives_the_loss_of_its_connections(pool: Pool, feed: ChangeFeed) -> None:
    token = (await feed.now()).token()
    async with (
        asyncio.timeout(20),
        following(feed, Draining(), poll_s=0.2) as hub,
        asyncio.TaskGroup() as group,
    ):
        watch = group.create_task(collect(hub, token, 2))
        await add(pool, feed, "before")
        await listening(pool, 1)
        admin = await asyncpg.connect(pool._connect_args[0])
        await admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        await admin.close()
        while True:
            try:
                await add(pool, feed, "after")
                break
            except Unavailable:
                await asyncio.sleep(0.01)
        assert await watch == ["before", "after"]


async def test_an_idle_watch_gets_bookmarks_that_resume(pool: Pool, feed: ChangeFeed) -> None:
    token = (await feed.now()).token()
    await add(pool, feed, "a")
    async with following(feed, Draining(), bookmark_s=0.05) as hub:
        async with aclosing(hub.watch(token)) as items:
            first, second = await anext(items), await anext(items)
        assert isinstance(first, Change)
        assert isinstance(second, Bookmark)
        await add(pool, feed, "b")
        assert await collect(hub, second.position.token(), 1) == ["b"]


async def test_unwanted_changes_still_move_the_bookmark(pool: Pool, feed: ChangeFeed) -> None:
    token = (await feed.now()).token()
    async with (
        following(feed, Draining(), bookmark_s=0.05) as hub,
        aclosing(hub.watch(token, lambda change: False)) as items,
    ):
        assert isinstance(await anext(items), Bookmark)
        await add(pool, feed, "unwanted")
        while True:
            mark = await anext(items)
            assert isinstance(mark, Bookmark)
            if mark.position.order > parse_token(token).order:
                break
    assert (await feed.read(mark.position)).changes == ()


async def test_a_watch_among_many_unwanted_changes_still_gets_bookmarks(
    pool: Pool, feed: ChangeFeed
) -> None:
    token = (await feed.now()).token()
    async with (
        following(feed, Draining(), bookmark_s=0.05) as hub,
        aclosing(hub.watch(token, lambda change: False)) as items,
        asyncio.timeout(10),
    ):
        mark = asyncio.ensure_future(anext(items))
        number = 0
        while not mark.done():
            number += 1
            await add(pool, feed, f"unwanted-{number}")
        bookmark = await mark
        assert isinstance(bookmark, Bookmark)
        assert bookmark.position.order > parse_token(token).order


async def test_a_watch_that_falls_behind_goes_on_from_the_database(
    pool: Pool, feed: ChangeFeed
) -> None:
    """More changes in one transaction than a queue holds: memory stays bounded, none is lost."""
    token = (await feed.now()).token()
    names = [f"n{n:04}" for n in range(1_500)]
    async with (
        following(feed, Draining(), queue_limit=5) as hub,
        aclosing(hub.watch(token)) as items,
    ):
        await add(pool, feed, "first")
        assert (await anext(items)).key == "first"
        await add(pool, feed, *names)
        assert await collect(hub, token, 1_501) == ["first", *names]
        assert [(await anext(items)).key for _ in names] == names


async def test_tokens_of_a_watch_remember_what_its_list_showed(
    pool: Pool, feed: ChangeFeed
) -> None:
    """A watch that resumes halfway through what the list's snapshot covered repeats nothing."""
    async with following(feed, Draining(), poll_s=0.05) as hub, pool.acquire() as slow:
        transaction = slow.transaction()
        await transaction.start()
        await append(Transaction(slow), feed, "late")
        await add(pool, feed, "listed")
        token = (await feed.now()).token()
        await transaction.commit()
        await add(pool, feed, "after")
        async with aclosing(hub.watch(token)) as items:
            first = await anext(items)
        assert first.key == "late"
        assert await collect(hub, first.position.token(), 1) == ["after"]


async def test_a_hub_that_began_late_hides_nothing_from_older_tokens(
    pool: Pool, feed: ChangeFeed
) -> None:
    """The hub begins while a younger transaction is visible and an older one still runs."""
    token = (await feed.now()).token()
    async with pool.acquire() as slow:
        transaction = slow.transaction()
        await transaction.start()
        await append(Transaction(slow), feed, "late")
        await add(pool, feed, "visible")
        async with following(feed, Draining(), poll_s=0.05) as hub:
            watch = asyncio.ensure_future(collect(hub, token, 2))
            while len(hub._fanout) == 0:
                await asyncio.sleep(0.01)
            await transaction.commit()
            assert await watch == ["late", "visible"]


async def test_a_stop_ends_watches_at_once(pool: Pool, feed: ChangeFeed) -> None:
    draining = Draining()
    token = (await feed.now()).token()
    async with following(feed, draining) as hub, asyncio.timeout(5):
        watch = asyncio.ensure_future(collect(hub, token, 1))
        while len(hub._fanout) == 0:
            await asyncio.sleep(0.01)
        draining.begin()
        with pytest.raises(Unavailable) as caught:
            await watch
    assert caught.value.reason == "SERVER_DRAINING"
