"""Pools and policies in memory: the same contract as PostgreSQL's."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from tenure_core.errors import AlreadyExists, Conflict, Invalid, NotFound, Violation, WrongState
from tenure_scheduler.pools import DEFAULT, Pool, PoolBook, PoolPolicy
from tenure_scheduler.ports import RepeatKey

Kind = TypeVar("Kind", Pool, PoolPolicy)


class MemoryPoolStore:
    """The store of `tenure_scheduler.ports` in memory."""

    def __init__(self) -> None:
        self._pools = {DEFAULT: Pool(DEFAULT)}
        self._policies = {DEFAULT: PoolPolicy(DEFAULT)}
        self._answers: dict[tuple[str, str], tuple[bytes, Pool | PoolPolicy]] = {}

    async def book(self) -> PoolBook:
        """Return all pools and policies."""
        return PoolBook(dict(self._pools), dict(self._policies))

    async def create_pool(self, pool: Pool, repeat: RepeatKey) -> Pool:
        """Store a new pool."""
        known = self._known(repeat)
        if isinstance(known, Pool):
            return known
        self._policy_exists(pool.policy)
        if pool.id in self._pools:
            raise AlreadyExists("POOL_EXISTS", f"There is a pool {pool.id} already.")
        self._pools[pool.id] = replace(pool, version=1)
        return self._remember(repeat, self._pools[pool.id])

    async def update_pool(self, pool: Pool, expected: int | None) -> Pool:
        """Replace a pool and count its version up."""
        version = _version(self._pools.get(pool.id), pool.id, expected, "POOL_NOT_FOUND")
        self._policy_exists(pool.policy)
        self._pools[pool.id] = replace(pool, version=version + 1)
        return self._pools[pool.id]

    async def delete_pool(self, pool: str, expected: int | None) -> None:
        """Forget a pool."""
        _version(self._pools.get(pool), pool, expected, "POOL_NOT_FOUND")
        del self._pools[pool]

    async def create_policy(self, policy: PoolPolicy, repeat: RepeatKey) -> PoolPolicy:
        """Store a new policy."""
        known = self._known(repeat)
        if isinstance(known, PoolPolicy):
            return known
        if policy.id in self._policies:
            raise AlreadyExists("POLICY_EXISTS", f"There is a policy {policy.id} already.")
        self._policies[policy.id] = replace(policy, version=1)
        return self._remember(repeat, self._policies[policy.id])

    async def update_policy(self, policy: PoolPolicy, expected: int | None) -> PoolPolicy:
        """Replace a policy and count its version up."""
        known = self._policies.get(policy.id)
        version = _version(known, policy.id, expected, "POLICY_NOT_FOUND")
        self._policies[policy.id] = replace(policy, version=version + 1)
        return self._policies[policy.id]

    async def delete_policy(self, policy: str, expected: int | None) -> None:
        """Forget a policy."""
        _version(self._policies.get(policy), policy, expected, "POLICY_NOT_FOUND")
        used = next((pool.id for pool in self._pools.values() if pool.policy == policy), None)
        if used is not None:
            raise WrongState("POLICY_IN_USE", f"Pool {used} is planned by policy {policy}.")
        del self._policies[policy]

    async def note_step_down(self, pool: str, epoch: int) -> None:
        """Keep no audit trail."""

    def _policy_exists(self, policy: str) -> None:
        if policy not in self._policies:
            raise NotFound("POLICY_NOT_FOUND", f"There is no policy {policy}.", policy=policy)

    def _known(self, repeat: RepeatKey) -> Pool | PoolPolicy | None:
        answered = self._answers.get((repeat.caller, repeat.request_id))
        if not repeat.request_id or answered is None:
            return None
        if answered[0] != repeat.request:
            violation = Violation("request_id", "REQUEST_ID_REUSED", "was used for other content")
            raise Invalid([violation], "REQUEST_ID_REUSED")
        return answered[1]

    def _remember(self, repeat: RepeatKey, answer: Kind) -> Kind:
        if repeat.request_id:
            self._answers[repeat.caller, repeat.request_id] = (repeat.request, answer)
        return answer


def _version(known: Pool | PoolPolicy | None, name: str, expected: int | None, reason: str) -> int:
    if known is None:
        raise NotFound(reason, f"There is no {name}.", name=name)
    if expected not in (None, known.version):
        raise Conflict("ETAG_MISMATCH", f"{name} was changed meanwhile; read it again.", name=name)
    return known.version
