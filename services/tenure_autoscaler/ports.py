"""What the autoscaler's use cases need of the outside."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from tenure_autoscaler.values import (
    Decision,
    Group,
    GroupChange,
    Machine,
    MachineChange,
    PoolView,
    RequestMark,
    SeenAgent,
)
from tenure_core.timebase import Millis


class GroupStore(Protocol):
    """Groups as they are stored."""

    async def create_group(self, group: Group, mark: RequestMark) -> Group:
        """Store a new group, once for each request.

        Raises AlreadyExists GROUP_EXISTS, Invalid REQUEST_ID_REUSED.
        """
        ...

    async def get_group(self, group: str) -> Group:
        """Return a group. Raises NotFound GROUP_NOT_FOUND."""
        ...

    async def list_groups(self, after: str, limit: int) -> list[Group]:
        """Return groups by id after one."""
        ...

    async def change_group(self, group: str, change: GroupChange, version: int | None) -> Group:
        """Store new values. Raises NotFound, Conflict ETAG_MISMATCH, Invalid for sizes."""
        ...

    async def delete_group(self, group: str, version: int | None) -> None:
        """Forget a group. Raises NotFound, Conflict, WrongState GROUP_IN_USE."""
        ...


class MachineStore(Protocol):
    """Machines as they were last seen, and their changes."""

    async def sync_machines(self, seen: Sequence[Machine]) -> int:
        """Store what differs from what is stored, with its changes; return how many differ."""
        ...

    async def list_machines(
        self, group: str, pool: str, after: str, limit: int
    ) -> tuple[list[Machine], str]:
        """Return machines by id after one, and the token of what was seen. "" means any."""
        ...

    def watch_machines(self, token: str) -> AsyncGenerator[MachineChange, None]:
        """Yield each change after the token ("": from now on), and bookmarks when idle."""
        ...


class DecisionStore(Protocol):
    """Decisions, newest first."""

    async def add_decision(self, decision: Decision) -> bool:
        """Store a decision unless the subject's last one says the same; say whether it was."""
        ...

    async def list_decisions(self, subject: str, before: int, limit: int) -> list[Decision]:
        """Return decisions with numbers below `before` (0: all), newest first."""
        ...

    async def forget(self, retention_ms: Millis) -> int:
        """Forget decisions older than the retention, but for each subject's last."""
        ...


class Store(GroupStore, MachineStore, DecisionStore, Protocol):
    """All of it; both stores pass one suite (tests/contract/autoscaler)."""


class Fleet(Protocol):
    """The registry, as a list that is kept current."""

    def agents(self) -> Sequence[SeenAgent] | None:
        """Return all agents; None while the registry was never heard."""
        ...


class Demand(Protocol):
    """The scheduler and slottable."""

    async def view(self, pool: str, now_ms: Millis) -> PoolView:
        """Return what is known of a pool's demand; never raises for a neighbour that is away."""
        ...
