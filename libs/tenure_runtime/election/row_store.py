"""The SQL of the row election, and the notifications that make a hand-over quick.

Decides how the row is seized, renewed and freed, each in one statement that compares the
database's clock itself. When to do so is the elector's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from tenure_core.errors import Unavailable

from .elector import Leader

_CHANNEL: Final = "tenure_election"
_CALL_TIMEOUT_S: Final = 2.0
_SCHEMA_LOCK: Final = 0x7E401EC7  # Any number of ours: CREATE IF NOT EXISTS races with itself.

_CREATE: Final = """
CREATE SCHEMA IF NOT EXISTS election;
CREATE TABLE IF NOT EXISTS election.leader (
    scope text PRIMARY KEY,
    holder text NOT NULL,
    value text NOT NULL,
    token bigint NOT NULL,
    expires_at timestamptz NOT NULL
);
COMMENT ON TABLE election.leader IS 'who leads a scope, until when unless renewed';
"""

# Our own row may be seized again: it is there when the answer to the first try was lost.
_SEIZE: Final = """
WITH seized AS (
    INSERT INTO election.leader AS old (scope, holder, value, token, expires_at)
    VALUES ($1, $2, $3, 1, clock_timestamp() + $4 * interval '1 ms')
    ON CONFLICT (scope) DO UPDATE
    SET holder = excluded.holder, value = excluded.value, token = old.token + 1,
        expires_at = clock_timestamp() + $4 * interval '1 ms'
    WHERE old.expires_at <= clock_timestamp() OR old.holder = excluded.holder
    RETURNING token
)
SELECT token, pg_notify('tenure_election', $1) FROM seized
"""

_REMAINING: Final = """
SELECT ceil(extract(epoch FROM expires_at - clock_timestamp()) * 1000)::bigint
FROM election.leader WHERE scope = $1
"""

_RENEW: Final = """
UPDATE election.leader AS kept
SET expires_at = clock_timestamp() + $4 * interval '1 ms'
FROM unnest($2::text[], $3::bigint[]) AS held (scope, token)
WHERE kept.scope = held.scope AND kept.token = held.token AND kept.holder = $1
    AND kept.expires_at > clock_timestamp()
RETURNING kept.scope
"""

_FREE: Final = """
WITH freed AS (
    UPDATE election.leader SET expires_at = 'epoch', holder = ''
    WHERE scope = $1 AND holder = $2 RETURNING scope
)
SELECT pg_notify('tenure_election', scope) FROM freed
"""

_LEADER: Final = """
SELECT value, token FROM election.leader WHERE scope = $1 AND expires_at > clock_timestamp()
"""


class RowStore:
    """The rows, as one replica (`holder`) sees them. Every call may raise Unavailable."""

    def __init__(self, dsn: str, *, holder: str) -> None:
        self._dsn = dsn
        self._holder = holder
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._opening = asyncio.Lock()
        self._ear: asyncpg.Connection[asyncpg.Record] | None = None
        self._news: dict[str, list[asyncio.Event]] = {}

    async def close(self) -> None:
        """Close the connections, whatever state they are in."""
        if self._ear is not None:
            self._ear.terminate()
            self._ear = None
        if self._pool is not None:
            self._pool.terminate()
            self._pool = None

    async def seize(self, scope: str, value: str, ttl_ms: int) -> tuple[int | None, int]:
        """Take the scope if it is free; return (token, 0), or (None, ms until it may be free)."""
        async with self._connection() as connection:
            token = await connection.fetchval(_SEIZE, scope, self._holder, value, ttl_ms)
            if token is not None:
                return token, 0
            return None, max(0, await connection.fetchval(_REMAINING, scope) or 0)

    async def renew(self, tokens: Mapping[str, int], ttl_ms: int) -> set[str]:
        """Extend what is held (scope → token) and return the scopes that were still ours."""
        async with self._connection() as connection:
            rows = await connection.fetch(
                _RENEW, self._holder, list(tokens), list(tokens.values()), ttl_ms
            )
            return {row["scope"] for row in rows}

    async def free(self, scope: str) -> None:
        """End our hold on the scope, if there is one, and tell those who wait."""
        async with self._connection() as connection:
            await connection.fetch(_FREE, scope, self._holder)

    async def leader(self, scope: str) -> Leader | None:
        """Return who holds the scope by the database's clock."""
        async with self._connection() as connection:
            row = await connection.fetchrow(_LEADER, scope)
            return Leader(row["value"], row["token"]) if row is not None else None

    @contextmanager
    def listening(self, scope: str) -> Iterator[asyncio.Event]:
        """Give an event that is set when the scope may have changed hands."""
        news = asyncio.Event()
        self._news.setdefault(scope, []).append(news)
        try:
            yield news
        finally:
            self._news[scope].remove(news)
            if not self._news[scope]:
                del self._news[scope]

    async def wait(self, news: asyncio.Event, at_most_s: float) -> None:
        """Wait for `news`, at most `at_most_s` seconds; without notifications the time decides."""
        with suppress(TimeoutError):
            async with asyncio.timeout(at_most_s):
                with suppress(Unavailable):
                    await self._listen()
                await news.wait()

    async def _listen(self) -> None:
        """Open the connection that notifications come in on, unless it is there."""
        async with self._opening:
            if self._ear is not None and not self._ear.is_closed():
                return
            with _away():
                ear = await asyncpg.connect(self._dsn, timeout=_CALL_TIMEOUT_S)
                try:
                    await ear.add_listener(_CHANNEL, self._heard)
                except BaseException:
                    ear.terminate()
                    raise
                self._ear = ear
            # Something may have been said before we listened.
            for waiting in self._news.values():
                for news in waiting:
                    news.set()

    def _heard(self, _connection: Any, _pid: int, _channel: str, payload: object) -> None:
        for news in self._news.get(str(payload), []):
            news.set()

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[PoolConnectionProxy[asyncpg.Record]]:
        """Give a connection of our own pool; what fails in it comes out as Unavailable."""
        with _away():
            async with self._opening:
                if self._pool is None:
                    self._pool = await self._open_pool()
            async with self._pool.acquire(timeout=_CALL_TIMEOUT_S) as connection:
                yield connection

    async def _open_pool(self) -> asyncpg.Pool[asyncpg.Record]:
        pool = await asyncpg.create_pool(
            self._dsn,
            min_size=0,
            max_size=2,
            command_timeout=_CALL_TIMEOUT_S,
            timeout=_CALL_TIMEOUT_S,
        )
        try:
            async with pool.acquire() as connection, connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock($1)", _SCHEMA_LOCK)
                known = await connection.fetchval("SELECT to_regclass('election.leader')")
                if known is None:
                    await connection.execute(_CREATE)
        except BaseException:
            pool.terminate()
            raise
        return pool


@contextmanager
def _away() -> Iterator[None]:
    """Turn what a database that is away or refuses raises into Unavailable."""
    try:
        yield
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        what = f"{type(error).__name__}: {error}"
        raise Unavailable("ELECTION_STORE_UNAVAILABLE", f"the election row: {what}") from error
