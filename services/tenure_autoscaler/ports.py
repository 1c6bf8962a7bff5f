"""What the autoscaler's use cases need of the outside."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Protocol

from tenure_autoscaler.records import FleetBook, FleetMemory, GroupClaim, MachineRecord
from tenure_autoscaler.values import (
    ApplicationOrder,
    Booking,
    Decision,
    Group,
    GroupChange,
    Machine,
    MachineChange,
    PoolView,
    RequestMark,
    SeenAgent,
    SeenApplication,
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


class FleetStore(Protocol):
    """What is written down about fleets; every write compares the epoch in its transaction."""

    async def open_book(self, group: str) -> FleetBook:
        """Return all that is written down about a group's fleet, at one moment."""
        ...

    async def all_records(self) -> list[MachineRecord]:
        """Return the newest record of each machine of every group, by machine."""
        ...

    async def fence(self, claim: GroupClaim) -> None:
        """Let nobody with a smaller epoch write any more. Raises Stale STALE_EPOCH."""
        ...

    async def write(
        self,
        claim: GroupClaim,
        records: Sequence[MachineRecord],
        memory: FleetMemory | None = None,
        decision: Decision | None = None,
    ) -> int:
        """Store records, and memory and decision if given; return the decision's number.

        Raises Stale STALE_EPOCH.
        """
        ...

    async def order(
        self,
        claim: GroupClaim,
        records: Sequence[MachineRecord],
        memory: FleetMemory,
        decision: Decision,
        *,
        besides: int,
    ) -> int:
        """Store new orders with their decision, all or nothing; return the decision's number.

        `besides` machines of ours exist without a record. Raises Stale STALE_EPOCH, WrongState
        CAP_REACHED (live records and those besides would be more than the group's largest size,
        as it is in this transaction) and MACHINE_TAKEN.
        """
        ...

    async def tell_results(
        self, claim: GroupClaim, number: int, results: Sequence[tuple[str, str]]
    ) -> None:
        """Add what came of a decision. Raises Stale STALE_EPOCH."""
        ...


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

    async def booked(self, pool: str, now_ms: Millis) -> tuple[Booking, ...] | None:
        """Return what is booked in a pool from now on, None when nobody could be asked."""
        ...


class Nodes(Protocol):
    """The slot table, as far as it knows nodes. Raises Stale, Unavailable."""

    async def acquire_epoch(self, group: str, holder: str) -> int:
        """Return an epoch of the group larger than any before."""
        ...

    async def retire(self, claim: GroupClaim, node: str) -> bool:
        """Close a node unless it is booked; say whether it is closed. A node unknown is."""
        ...

    async def offer(self, claim: GroupClaim, group: Group, nodes: Mapping[str, Millis]) -> None:
        """Have nodes bookable, each from an instant on, though there is no machine for it yet.

        A node that an agent backs is left as it is.
        """
        ...

    async def unretire(self, claim: GroupClaim, node: str) -> None:
        """Open a node again if it is closed; nothing for a node unknown."""
        ...


class Applications(Protocol):
    """The registry, as far as it knows applications. Raises Stale, Unavailable."""

    async def fence(self, claim: GroupClaim) -> None:
        """Let nobody with a smaller epoch give orders any more."""
        ...

    async def reports(self, agents: Sequence[str]) -> list[SeenApplication]:
        """Return what is known of the applications on agents."""
        ...

    async def order(self, claim: GroupClaim, orders: Sequence[ApplicationOrder]) -> None:
        """Say what applications shall be, over what was said before."""
        ...


class Occupancy(Protocol):
    """The registry, asked anew."""

    async def running(self, agent: str) -> tuple[str, int]:
        """Return an agent's incarnation ("" when it is not there) and its slots not yet ended.

        An agent that is lost is not there. Raises Unavailable.
        """
        ...
