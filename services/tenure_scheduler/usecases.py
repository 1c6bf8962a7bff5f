"""What the scheduler does for callers: pools and policies, and questions to a pool's leader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from tenure_core.errors import Conflict, NotFound, Unavailable, WrongState
from tenure_core.leases.lease import LeaseSpec
from tenure_core.policies.bundle import Policies
from tenure_core.timebase import Millis
from tenure_scheduler import questions
from tenure_scheduler.cycle import CycleResult
from tenure_scheduler.leader import PoolLeader, Reign
from tenure_scheduler.pools import Pool, PoolBook, PoolPolicy
from tenure_scheduler.ports import PoolStore, RepeatKey
from tenure_scheduler.questions import DemandEntry, Outlook, QueueEntry, StartPrediction, WhatIf

Versioned = TypeVar("Versioned", Pool, PoolPolicy)


@dataclass(frozen=True, slots=True)
class LeaderFact:
    """Who leads a pool; an empty address when nobody does."""

    holder: str
    address: str
    epoch: int
    election: str


class Leaders(Protocol):
    """The leaders of this replica, and who leads elsewhere."""

    def of(self, pool: str) -> PoolLeader | None:
        """Return this replica's part in leading a pool."""
        ...

    async def fact(self, pool: str) -> LeaderFact:
        """Return who leads a pool, wherever."""
        ...

    def now(self) -> PoolBook:
        """Return the pools and policies as last read."""
        ...

    async def refresh(self) -> None:
        """Read pools and policies anew, and run for those that are new."""
        ...


class SchedulerUseCases:
    """The use cases of one replica."""

    def __init__(
        self,
        store: PoolStore,
        leaders: Leaders,
        in_use: Callable[[str], Awaitable[bool]],
    ) -> None:
        """`in_use` says whether a pool has nodes or leases that have not ended."""
        self._store = store
        self._leaders = leaders
        self._in_use = in_use

    # Pools and policies

    async def create_pool(self, pool: Pool, repeat: RepeatKey) -> Pool:
        """Store a new pool and run for its leadership."""
        created = await self._store.create_pool(pool, repeat)
        await self._leaders.refresh()
        return created

    async def pool(self, name: str) -> Pool:
        """Return a pool. Raises NotFound POOL_NOT_FOUND."""
        return _pool(await self._store.book(), name)

    async def pools(self, after: str, limit: int) -> Sequence[Pool]:
        """Return pools by id."""
        book = await self._store.book()
        return [book.pools[name] for name in sorted(book.pools) if name > after][:limit]

    async def update_pool(
        self, name: str, change: Callable[[Pool], Pool], expected: int | None
    ) -> Pool:
        """Replace a pool."""
        updated = await _updated(lambda: self.pool(name), change, self._store.update_pool, expected)
        await self._leaders.refresh()
        return updated

    async def delete_pool(self, name: str, expected: int | None) -> None:
        """Forget a pool that has no nodes and no leases. Raises WrongState POOL_IN_USE."""
        _pool(await self._store.book(), name)
        if await self._in_use(name):
            raise WrongState("POOL_IN_USE", f"Pool {name} has nodes or leases.", pool=name)
        await self._store.delete_pool(name, expected)
        await self._leaders.refresh()

    async def create_policy(self, policy: PoolPolicy, repeat: RepeatKey) -> PoolPolicy:
        """Store a new policy."""
        return await self._store.create_policy(policy, repeat)

    async def policy(self, name: str) -> PoolPolicy:
        """Return a policy. Raises NotFound POLICY_NOT_FOUND."""
        policy = (await self._store.book()).policies.get(name)
        if policy is None:
            raise NotFound("POLICY_NOT_FOUND", f"There is no policy {name}.", policy=name)
        return policy

    async def policies(self, after: str, limit: int) -> Sequence[PoolPolicy]:
        """Return policies by id."""
        book = await self._store.book()
        return [book.policies[name] for name in sorted(book.policies) if name > after][:limit]

    async def update_policy(
        self, name: str, change: Callable[[PoolPolicy], PoolPolicy], expected: int | None
    ) -> PoolPolicy:
        """Replace a policy; leaders plan by it from their next cycle on."""
        updated = await _updated(
            lambda: self.policy(name), change, self._store.update_policy, expected
        )
        await self._leaders.refresh()
        return updated

    async def delete_policy(self, name: str, expected: int | None) -> None:
        """Forget a policy that no pool uses."""
        await self._store.delete_policy(name, expected)

    # Questions

    async def queue(self, pool: str, limit: int) -> tuple[Sequence[QueueEntry], int, Millis]:
        """Return the head of a pool's queue, how many wait, and when that was so."""
        reign = await self._reign(pool)
        entries = questions.queue(reign, self._policies(pool))
        return entries[:limit], len(entries), reign.clock.now_ms()

    async def predict(
        self, pool: str, leases: Sequence[str]
    ) -> tuple[Sequence[StartPrediction], Millis]:
        """Return when waiting leases start if nothing else comes."""
        reign = await self._reign(pool)
        return questions.predict(reign, self._policies(pool), leases), reign.clock.now_ms()

    async def what_if(self, pool: str, spec: LeaseSpec) -> WhatIf:
        """Return what would become of a lease."""
        reign = await self._reign(pool)
        return questions.what_if(reign, self._policies(pool), spec)

    async def outlook(
        self, pool: str, lease: str, node_count_max: int | None, duration_ms_max: Millis | None
    ) -> tuple[Outlook, Millis]:
        """Return where a waiting lease stands. Raises WrongState LEASE_NOT_WAITING."""
        reign = await self._reign(pool)
        policies = self._policies(pool)
        found = questions.outlook(reign, policies, lease, node_count_max, duration_ms_max)
        if found is None:
            text = f"leases/{lease} does not wait in pool {pool}."
            raise WrongState("LEASE_NOT_WAITING", text, lease=lease, pool=pool)
        return found, reign.clock.now_ms()

    async def trigger(self, pool: str) -> CycleResult:
        """Run a cycle now."""
        await self._reign(pool)
        leader = self._leaders.of(pool)
        result = None if leader is None else await leader.trigger()
        if result is None:
            raise await self._not_leader(pool)
        return result

    async def leader(self, pool: str) -> LeaderFact:
        """Return who leads a pool."""
        await self._known(pool)
        return await self._leaders.fact(pool)

    async def step_down(self, pool: str) -> None:
        """Hand a pool's leadership over."""
        reign = await self._reign(pool)
        leader = self._leaders.of(pool)
        if leader is not None:
            await self._store.note_step_down(pool, reign.claim.epoch)
            leader.step_down()

    async def watch_demand(
        self, pool: str
    ) -> AsyncGenerator[tuple[tuple[DemandEntry, ...], Millis], None]:
        """Yield a pool's unmet demand now and whenever it has changed after a cycle."""
        last: tuple[DemandEntry, ...] | None = None
        while True:
            reign = await self._reign(pool)
            turned = reign.turned
            present = questions.demand(reign)
            if present != last:
                last = present
                yield present, reign.clock.now_ms()
            try:
                async with asyncio.timeout(5):
                    await turned.wait()
            except TimeoutError:
                continue

    async def _known(self, pool: str) -> None:
        if pool not in self._leaders.now().pools:
            _pool(await self._store.book(), pool)

    async def _reign(self, pool: str) -> Reign:
        await self._known(pool)
        leader = self._leaders.of(pool)
        if leader is None or leader.reign is None:
            raise await self._not_leader(pool)
        return leader.reign

    async def _not_leader(self, pool: str) -> Unavailable:
        fact = await self._leaders.fact(pool)
        where = f"{fact.address} leads it" if fact.address else "nobody leads it at present"
        return Unavailable(
            "NOT_LEADER",
            f"This replica does not lead pool {pool}; {where}.",
            retry_after_ms=200,
            leader=fact.address,
        )

    def _policies(self, pool: str) -> Policies:
        return policies_of(self._leaders.now(), pool)


async def _updated(
    read: Callable[[], Awaitable[Versioned]],
    change: Callable[[Versioned], Versioned],
    store: Callable[[Versioned, int | None], Awaitable[Versioned]],
    expected: int | None,
) -> Versioned:
    """Change what is stored, at version `expected`, or (None) at whichever it is by then.

    Always compared: of two changes at once of different fields, neither may undo the other.
    """
    while True:
        present = await read()
        try:
            return await store(change(present), present.version if expected is None else expected)
        except Conflict:
            if expected is not None:
                raise


def policies_of(book: PoolBook, pool: str) -> Policies:
    """Return what the planner of a pool is told; the defaults for a pool that is gone."""
    known = book.pools.get(pool)
    policy = book.policies.get(known.policy) if known is not None else None
    return (policy or PoolPolicy("default")).bundle(falls_back=True)


def is_cordoned(book: PoolBook, pool: str) -> bool:
    """Say whether a pool takes no new leases."""
    known = book.pools.get(pool)
    return known is not None and known.cordoned


def _pool(book: PoolBook, name: str) -> Pool:
    pool = book.pools.get(name)
    if pool is None:
        raise NotFound("POOL_NOT_FOUND", f"There is no pool {name}.", pool=name)
    return pool
