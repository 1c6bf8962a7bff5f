"""Runs a use case in one transaction, and again from the start when PostgreSQL asks for it.

Decides what is repeated (serialization failures and deadlocks, bounded), and that what must happen
only after the commit (waking watchers) happens then. Begin, check, write, request id and change
feed belong inside; a network call never does.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import asyncpg

from tenure_core.errors import Unavailable
from tenure_runtime.postgres.pool import Pool
from tenure_runtime.telemetry import metrics

if TYPE_CHECKING:
    Record = asyncpg.Record
    Connection = asyncpg.Connection[Record] | asyncpg.pool.PoolConnectionProxy[Record]
else:
    Record = asyncpg.Record
    Connection = Any

Result = TypeVar("Result")
Isolation = Literal["read_committed", "repeatable_read", "serializable"]

ATTEMPTS_MAX: Final = 10
_ACQUIRE_TIMEOUT_S: Final = 10.0
_CHANCE: Final = random.Random()  # noqa: S311 - spreads retries, protects nothing
_AGAIN: Final = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)
# The server went away, or is going. asyncpg's InternalClientError is what a session that was ended
# while idle may answer to its next statement.
_AWAY: Final = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    asyncpg.InternalClientError,
)


class Transaction:
    """An open transaction: statements to run in it, and what to do once it is committed."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._after: list[Callable[[], None]] = []

    async def fetch(self, sql: str, *arguments: object) -> list[Record]:
        """Return all rows."""
        return await self.connection.fetch(sql, *arguments)

    async def fetchrow(self, sql: str, *arguments: object) -> Record | None:
        """Return the first row, or None."""
        return await self.connection.fetchrow(sql, *arguments)

    async def fetchval(self, sql: str, *arguments: object) -> Any:
        """Return the first column of the first row, or None."""
        return await self.connection.fetchval(sql, *arguments)

    async def execute(self, sql: str, *arguments: object) -> str:
        """Run a statement and return its tag (`UPDATE 1`)."""
        return await self.connection.execute(sql, *arguments)

    async def executemany(self, sql: str, arguments: Iterable[Sequence[object]]) -> None:
        """Run a statement once for each set of arguments, in one round trip."""
        await self.connection.executemany(sql, arguments)

    def after_commit(self, action: Callable[[], None]) -> None:
        """Do something once the transaction is committed; not at all when it is not."""
        self._after.append(action)

    def committed(self) -> None:
        """Do what was to be done after the commit; `run` calls this."""
        for action in self._after:
            action()


async def run(
    pool: Pool,
    use_case: Callable[[Transaction], Awaitable[Result]],
    *,
    isolation: Isolation = "read_committed",
    readonly: bool = False,
    one_statement: bool = False,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    rng: random.Random | None = None,
) -> Result:
    """Run `use_case` in a transaction and return its result once that is committed.

    With `one_statement` it runs no more than one statement: PostgreSQL makes a transaction of that
    by itself, and two round trips are saved.

    Serialization failures and deadlocks repeat the whole use case, at most 10 times with jittered
    pauses; then Unavailable TRANSACTION_CONTENTION. A server that is away, or no free connection
    within 10 s, is Unavailable DATABASE_UNAVAILABLE: whether a commit under way then took effect is
    not known, which is why requests carry ids.
    """
    for attempt in range(1, ATTEMPTS_MAX + 1):
        try:
            if one_statement:
                return await _alone(pool, use_case)
            return await _once(pool, use_case, isolation, readonly)
        except _AGAIN as error:
            metrics.TRANSACTION_RETRIES.add(1)
            if attempt == ATTEMPTS_MAX:
                raise Unavailable(
                    "TRANSACTION_CONTENTION",
                    "Too many writers at once; trying again may help.",
                    retry_after_ms=100,
                ) from error
        except (*_AWAY, asyncpg.InterfaceError) as error:
            if not is_away(error):
                raise
            raise Unavailable(
                "DATABASE_UNAVAILABLE", "The database is away or too busy."
            ) from error
        await sleep((rng or _CHANCE).uniform(0, 0.002 * 2**attempt))
    raise AssertionError("the last attempt returns or raises")


def is_away(error: BaseException) -> bool:
    """Say whether an error means that the server or the connection is gone, rather than a bug."""
    if isinstance(error, asyncpg.InterfaceError):
        # The same class also tells of wrong arguments and of misuse.
        return not isinstance(error, ValueError) and "clos" in str(error)
    return isinstance(error, _AWAY)


async def _once(
    pool: Pool,
    use_case: Callable[[Transaction], Awaitable[Result]],
    isolation: Isolation,
    readonly: bool,
) -> Result:
    async with _acquired(pool) as connection:
        transaction = Transaction(connection)
        async with connection.transaction(isolation=isolation, readonly=readonly):
            result = await use_case(transaction)
    transaction.committed()
    return result


async def _alone(pool: Pool, use_case: Callable[[Transaction], Awaitable[Result]]) -> Result:
    async with _acquired(pool) as connection:
        transaction = Transaction(connection)
        result = await use_case(transaction)
    transaction.committed()
    return result


@asynccontextmanager
async def _acquired(pool: Pool) -> AsyncIterator[Connection]:
    started = time.perf_counter()
    try:
        # The pool's own timeout makes a task of each acquisition.
        async with asyncio.timeout(_ACQUIRE_TIMEOUT_S):
            connection = await pool.acquire()
    finally:
        metrics.CONNECTION_WAIT.record((time.perf_counter() - started) * 1_000)
    try:
        yield connection
    finally:
        await pool.release(connection)
