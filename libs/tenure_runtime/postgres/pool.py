"""Opens connection pools with limits that fit a small machine, waiting for the server to come up.

Decides pool sizes, timeouts and the session settings of every connection. What is run on them is
left to `transaction`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import asyncpg

from tenure_core.errors import Unavailable
from tenure_runtime.telemetry import metrics
from tenure_runtime.telemetry.instruments import observed
from tenure_runtime.telemetry.logging import get_logger

if TYPE_CHECKING:
    Pool = asyncpg.Pool[asyncpg.Record]
else:
    Pool = asyncpg.Pool

# Seen while a server starts, stops or recovers: worth waiting for.
_COMING_UP = (
    OSError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.ConnectionDoesNotExistError,
)


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """Where the database is and how much of it one process may use."""

    dsn: str
    schema: str
    size_min: int = 1
    size_max: int = 8
    wait_s: float = 30.0
    command_timeout_s: float = 30.0


async def open_pool(
    options: PoolOptions, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> Pool:
    """Return a pool whose connections see only `schema`.

    Waits up to `wait_s` for a server that is still starting, then raises Unavailable
    DATABASE_UNAVAILABLE. A transaction left idle is ended by the server after a minute: it would
    hold back every change feed.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + options.wait_s
    pause_s = 0.05
    while True:
        try:
            return await _create(options)
        except _COMING_UP as error:
            if loop.time() + pause_s > end:
                raise Unavailable(
                    "DATABASE_UNAVAILABLE",
                    f"PostgreSQL did not answer within {options.wait_s:g} s: {error}",
                ) from error
            get_logger().info("database.awaited", schema=options.schema, error=str(error))
        await sleep(pause_s)
        pause_s = min(1.0, pause_s * 2)


@contextmanager
def observed_pool(pool: Pool) -> Iterator[None]:
    """Show a pool's connections to those who read metrics, while the block runs."""

    def look() -> None:
        size, idle = pool.get_size(), pool.get_idle_size()
        metrics.CONNECTIONS.set(size - idle, "used")
        metrics.CONNECTIONS.set(idle, "idle")
        metrics.CONNECTIONS_MAX.set(pool.get_max_size())

    with observed(look):
        yield


async def _as_it_is(_connection: object) -> None:
    """Leave the session of a released connection alone.

    asyncpg has ended an open transaction and forgotten listeners by then. By default it also sends
    `RESET ALL` and the like after every transaction; whoever changes settings of a session or takes
    a lock beyond a transaction undoes that by itself (`migrate` does).
    """


async def _create(options: PoolOptions) -> Pool:
    pool = await asyncpg.create_pool(
        options.dsn,
        min_size=options.size_min,
        max_size=options.size_max,
        command_timeout=options.command_timeout_s,
        timeout=10,
        max_inactive_connection_lifetime=0,
        reset=_as_it_is,
        server_settings={
            "search_path": options.schema,
            "application_name": f"tenure-{options.schema}",
            "idle_in_transaction_session_timeout": "60000",
            "timezone": "UTC",
            # Plans of short statements on a small machine gain nothing from compilation.
            "jit": "off",
        },
    )
    assert pool is not None
    return pool
