"""What a leader needs from outside."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Protocol

from tenure_core.admission.usage_meter import Usage, UsageMeter
from tenure_core.leases.states import LeaseState
from tenure_core.slots.operations import Node
from tenure_core.timebase import Millis
from tenure_scheduler.entries import (
    AgentChange,
    AgentEntry,
    CapacityResult,
    Dispatch,
    DispatchVerdict,
    LeaseChange,
    LeaseEntry,
    Prediction,
    ReportChange,
    RowChange,
    SubmitGroup,
    SubmitResult,
    TableState,
    Transition,
    TransitionVerdict,
)
from tenure_scheduler.pools import Pool, PoolBook, PoolPolicy


@dataclass(frozen=True, slots=True)
class RepeatKey:
    """A request that may come again: who asked, under which id (empty for none), for what."""

    caller: str
    request_id: str
    request: bytes


@dataclass(frozen=True, slots=True)
class Claim:
    """What a leader shows with each write."""

    pool: str
    epoch: int

    @property
    def scope(self) -> str:
        """Return the scope of the pool."""
        return f"pool/{self.pool}"


class LeaseBook(Protocol):
    """Admission, as leaders use it."""

    async def fence(self, claim: Claim) -> None:
        """Have every older epoch refused. Raises Stale."""
        ...

    async def held(self, pool: str) -> tuple[list[LeaseEntry], str]:
        """Return the pool's leases that have not ended, and the token from which to watch."""
        ...

    def watch(self, pool: str, token: str) -> AsyncGenerator[LeaseChange, None]:
        """Yield the pool's lease changes after the token."""
        ...

    async def record(
        self, claim: Claim, transitions: Sequence[Transition], predictions: Sequence[Prediction]
    ) -> list[TransitionVerdict]:
        """Record transitions and predictions; a verdict each, in order. Raises Stale."""
        ...

    async def state_of(self, lease: str) -> LeaseState | None:
        """Return the state of any lease, None when it does not exist."""
        ...

    async def seal(self, lease: str, sealing_keys: Sequence[bytes]) -> list[bytes]:
        """Return a lease's secrets, sealed for each key. Raises DomainError."""
        ...


class SlotTablePort(Protocol):
    """Slottable, as leaders use it."""

    async def acquire_epoch(self, pool: str, holder: str) -> int:
        """Return an epoch larger than any before."""
        ...

    async def state(self, pool: str) -> TableState:
        """Return all of the pool."""
        ...

    def watch(self, pool: str, token: str) -> AsyncGenerator[RowChange, None]:
        """Yield the pool's changes after the token."""
        ...

    async def submit(
        self, claim: Claim, as_of: Millis, revision: int, groups: Sequence[SubmitGroup]
    ) -> SubmitResult:
        """Commit groups; a verdict each, in order. Raises Stale."""
        ...

    async def set_capacity(
        self, claim: Claim, nodes: Sequence[Node], *, cordoned: bool
    ) -> CapacityResult:
        """Create or replace nodes. Raises Stale."""
        ...


class Fleet(Protocol):
    """The registry, as leaders use it."""

    async def fence(self, claim: Claim) -> None:
        """Have every older epoch refused. Raises Stale."""
        ...

    async def agents(self, pool: str) -> tuple[list[AgentEntry], str]:
        """Return the pool's agents, and the token from which to watch."""
        ...

    def watch_agents(self, pool: str, token: str) -> AsyncGenerator[AgentChange, None]:
        """Yield the pool's agent changes after the token."""
        ...

    async def reports(self, pool: str) -> tuple[list[ReportChange], str]:
        """Return the last report of each allocation, and the token from which to watch."""
        ...

    def watch_reports(self, pool: str, token: str) -> AsyncGenerator[ReportChange, None]:
        """Yield the pool's reports after the token."""
        ...

    async def dispatch(self, claim: Claim, commands: Sequence[Dispatch]) -> list[DispatchVerdict]:
        """Store commands for delivery; a verdict each, in order. Raises Stale."""
        ...


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The three services that a leader works with."""

    leases: LeaseBook
    slots: SlotTablePort
    fleet: Fleet


class UsageStore(Protocol):
    """Where it is kept what was used of each pool, for fair share."""

    async def load(self, pool: str, now: Millis) -> UsageMeter:
        """Return what is stored; a pool that was never metered begins at `now`."""
        ...

    async def add(self, claim: Claim, since: Millis, until: Millis, usage: Usage) -> None:
        """Store what was used from `since`, up to where it is stored, to `until`.

        Raises Stale USAGE_MOVED_ON when another leader stored meanwhile.
        """
        ...


class PoolStore(Protocol):
    """Where pools and policies are kept."""

    async def book(self) -> PoolBook:
        """Return all pools and policies."""
        ...

    async def create_pool(self, pool: Pool, repeat: RepeatKey) -> Pool:
        """Store a new pool. Raises AlreadyExists POOL_EXISTS, NotFound POLICY_NOT_FOUND."""
        ...

    async def update_pool(self, pool: Pool, expected: int | None) -> Pool:
        """Replace a pool and count its version up.

        Raises NotFound, Conflict ETAG_MISMATCH when it is not at version `expected`.
        """
        ...

    async def delete_pool(self, pool: str, expected: int | None) -> None:
        """Forget a pool. Raises as `update_pool`."""
        ...

    async def create_policy(self, policy: PoolPolicy, repeat: RepeatKey) -> PoolPolicy:
        """Store a new policy. Raises AlreadyExists POLICY_EXISTS."""
        ...

    async def update_policy(self, policy: PoolPolicy, expected: int | None) -> PoolPolicy:
        """Replace a policy and count its version up. Raises as `update_pool`."""
        ...

    async def delete_policy(self, policy: str, expected: int | None) -> None:
        """Forget a policy. Raises as `update_pool`, and WrongState POLICY_IN_USE."""
        ...

    async def note_step_down(self, pool: str, epoch: int) -> None:
        """Note in the audit trail that a caller ends a leadership, before it ends."""
        ...
