"""The leaders of this replica: one candidate for each pool that exists, and who leads elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tenure_core.errors import Unavailable
from tenure_runtime.election.elector import Elector
from tenure_scheduler.leader import PoolLeader
from tenure_scheduler.pools import PoolBook
from tenure_scheduler.ports import PoolStore
from tenure_scheduler.usecases import LeaderFact


class ReplicaLeaders:
    """Runs for every pool. `group` owns the candidates' tasks."""

    def __init__(
        self,
        store: PoolStore,
        elector: Elector,
        *,
        election: str,
        group: asyncio.TaskGroup,
        make: Callable[[str], PoolLeader],
    ) -> None:
        """`make` returns this replica's candidate for a pool."""
        self._store = store
        self._elector = elector
        self._election = election
        self._group = group
        self._make = make
        self._book = PoolBook()
        self._leaders: dict[str, tuple[PoolLeader, asyncio.Task[None]]] = {}

    def of(self, pool: str) -> PoolLeader | None:
        """Return this replica's part in leading a pool."""
        known = self._leaders.get(pool)
        return known[0] if known is not None else None

    def all(self) -> list[PoolLeader]:
        """Return this replica's parts in leading pools."""
        return [leader for leader, _ in self._leaders.values()]

    def now(self) -> PoolBook:
        """Return the pools and policies as last read."""
        return self._book

    async def refresh(self) -> None:
        """Read pools and policies anew; run for new pools, withdraw from those that are gone."""
        self._book = await self._store.book()
        for pool in sorted(set(self._book.pools) - set(self._leaders)):
            leader = self._make(pool)
            self._leaders[pool] = (leader, self._group.create_task(leader.run()))
        for pool in sorted(set(self._leaders) - set(self._book.pools)):
            self._leaders.pop(pool)[1].cancel()

    async def fact(self, pool: str) -> LeaderFact:
        """Return who leads a pool: this replica's own word, or what it published elsewhere."""
        leader = self.of(pool)
        epoch = leader.reign.claim.epoch if leader is not None and leader.reign else 0
        try:
            present = await self._elector.leader(f"pool/{pool}")
        except Unavailable:
            present = None
        if present is None:
            return LeaderFact("", "", 0, self._election)
        holder, _, address = present.value.partition("@")
        return LeaderFact(holder, address, epoch, self._election)

    async def close(self) -> None:
        """Withdraw from every pool."""
        tasks = [task for _, task in self._leaders.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
