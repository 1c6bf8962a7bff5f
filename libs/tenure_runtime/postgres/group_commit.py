"""Coalesces many single calls into one transaction: one durable flush serves them all.

Decides which calls share a commit: all that wait when the last commit ends, up to a limit, each key
once; while calls come in crowds, those too that come within a few milliseconds. One that fails by a
DomainError fails alone; one that makes the transaction fail is found by halving. What is done with
the items is left to `apply`, which the service writes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from tenure_core.errors import DomainError, Exhausted, Unavailable
from tenure_runtime.postgres.pool import Pool
from tenure_runtime.postgres.transaction import Transaction, run
from tenure_runtime.telemetry import metrics
from tenure_runtime.telemetry.tracing import current_traceparent, span

Item = TypeVar("Item")
Result = TypeVar("Result")
Apply = Callable[[Transaction, Sequence[Item]], Awaitable[Sequence[Result | DomainError]]]

_LULL_S: Final = 0.002
"""A group is not held open any longer when nothing came for this long."""


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """How many items one transaction takes, how many may wait, how many transactions at once.

    `gather_s` is how long a group is held open while more keep coming. A call that comes alone
    after one that came alone never waits for others.
    """

    batch_max: int = 256
    pending_max: int = 10_000
    workers: int = 1
    gather_s: float = 0.0


@dataclass(slots=True)
class _Waiting(Generic[Item, Result]):
    item: Item
    key: Hashable
    traceparent: str
    answer: asyncio.Future[Result]


class GroupCommit(Generic[Item, Result]):
    """Runs `apply(tx, items)` for many `submit(item)`. `run()` belongs in a TaskGroup.

    `apply` returns a result or a DomainError for each item, in order, and must be repeatable: it is
    called again after a serialization failure. It runs outside the callers' contexts, so an item
    carries who asks and until when. Items with equal `key` never share a transaction.
    """

    def __init__(
        self,
        pool: Pool,
        apply: Apply[Item, Result],
        *,
        name: str,
        key: Callable[[Item], Hashable] | None = None,
        limits: GroupLimits | None = None,
    ) -> None:
        self._pool = pool
        self._apply = apply
        self._name = name
        self._key = key
        self._limits = limits or GroupLimits()
        self._waiting: deque[_Waiting[Item, Result]] = deque()
        self._arrived = asyncio.Event()
        self._stopped = False
        self._last_size = 0

    async def submit(self, item: Item) -> Result:
        """Return the item's result once it is committed, or raise the error it got.

        Raises Exhausted OVERLOADED when too many wait, Unavailable SERVER_DRAINING after `run`
        ended. Cancelling a call takes its item out unless its transaction has begun.
        """
        if self._stopped:
            raise _stopping()
        if len(self._waiting) >= self._limits.pending_max:
            raise Exhausted(
                "OVERLOADED",
                f"{self._limits.pending_max} calls are waiting already.",
                retry_after_ms=200,
                limit=self._limits.pending_max,
            )
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        key = self._key(item) if self._key else object()
        self._waiting.append(_Waiting(item, key, current_traceparent(), answer))
        self._arrived.set()
        return await answer

    async def run(self) -> None:
        """Commit groups until cancelled; then fail what still waits."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._limits.workers):
                    group.create_task(self._work())
        finally:
            self._stopped = True
            for waiting in self._waiting:
                _fail(waiting, _stopping())
            self._waiting.clear()

    async def _work(self) -> None:
        while True:
            await self._gather()
            batch = self._take()
            if not batch:
                self._arrived.clear()
                await self._arrived.wait()
                continue
            self._last_size = len(batch)
            try:
                await self._commit(batch)
            except asyncio.CancelledError:
                for waiting in batch:
                    _fail(waiting, _stopping())
                raise

    async def _gather(self) -> None:
        """Hold the next group open while more keep coming: a commit costs much, an item little."""
        if not self._waiting or max(self._last_size, len(self._waiting)) == 1:
            return
        clock = asyncio.get_running_loop().time
        end, before = clock() + self._limits.gather_s, 0
        while before < len(self._waiting) < self._limits.batch_max and clock() < end:
            before = len(self._waiting)
            await asyncio.sleep(_LULL_S)

    def _take(self) -> list[_Waiting[Item, Result]]:
        """Take the next batch: in order, each key once, without what was cancelled."""
        batch: list[_Waiting[Item, Result]] = []
        later: list[_Waiting[Item, Result]] = []
        keys: set[Hashable] = set()
        while self._waiting and len(batch) < self._limits.batch_max:
            waiting = self._waiting.popleft()
            if waiting.answer.done():
                continue
            if waiting.key in keys:
                later.append(waiting)
                continue
            keys.add(waiting.key)
            batch.append(waiting)
        self._waiting.extendleft(reversed(later))
        return batch

    async def _commit(self, batch: Sequence[_Waiting[Item, Result]]) -> None:
        """Commit a batch; halve one that fails, until the item that makes it fail is alone."""

        async def use_case(tx: Transaction) -> Sequence[Result | DomainError]:
            outcomes = await self._apply(tx, [waiting.item for waiting in batch])
            assert len(outcomes) == len(batch), "one outcome for each item"
            return outcomes

        links = [waiting.traceparent for waiting in batch]
        try:
            with span(f"{self._name}.commit", links=links, group_size=len(batch)):
                outcomes = await run(self._pool, use_case)
        except Unavailable as error:
            for waiting in batch:
                _fail(waiting, error)
        except Exception as error:  # noqa: BLE001 - handed to the caller whose item it was
            if len(batch) == 1:
                _fail(batch[0], error)
                return
            middle = len(batch) // 2
            await self._commit(batch[:middle])
            await self._commit(batch[middle:])
        else:
            metrics.GROUPS.add(1, self._name)
            metrics.GROUP_SIZE.add(len(batch), self._name)
            for waiting, outcome in zip(batch, outcomes, strict=True):
                if isinstance(outcome, DomainError):
                    _fail(waiting, outcome)
                elif not waiting.answer.done():
                    waiting.answer.set_result(outcome)


def _fail(waiting: _Waiting[Item, Result], error: Exception) -> None:
    if not waiting.answer.done():
        waiting.answer.set_exception(error)


def _stopping() -> Unavailable:
    return Unavailable("SERVER_DRAINING", "The server is stopping; try another replica.")
