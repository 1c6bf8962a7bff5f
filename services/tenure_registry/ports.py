"""What the registry's use cases need of the outside."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from typing import Protocol

from tenure_core.agents.agent import Agent
from tenure_core.agents.states import AgentState
from tenure_core.agents.work import Allocation, Report, Slot
from tenure_core.errors import DomainError
from tenure_core.timebase import Millis
from tenure_registry.values import (
    AgentChange,
    ApplicationOrder,
    Dispatch,
    Dispatched,
    LogRequest,
    Opened,
    Opening,
    Outgoing,
    ReportChange,
    ReportGroup,
    StateChange,
    StoredApplication,
)

MakeLost = Callable[[Allocation, str], Report]
"""Makes the registry's own terminal report; the second argument is the session that was voided."""


class SessionStore(Protocol):
    """Who has which session, and what an agent must be told."""

    async def open_session(self, opening: Opening) -> Opened:
        """Give an agent a new session in place of any other, and return what it must know."""
        ...

    async def pending(self, agents: Collection[str]) -> list[Outgoing]:
        """Return the commands of these agents that are neither answered nor void, in order."""
        ...

    async def superseded(self, sessions: Mapping[str, str]) -> list[Agent]:
        """Return the agents whose present session is another than the one given."""
        ...

    async def change_states(self, changes: Sequence[StateChange]) -> None:
        """Store ALIVE and SUSPECT, each only if the session is still the agent's."""
        ...


class LossStore(Protocol):
    """What losing agents does, and which replica watches whom."""

    async def declare_lost(self, sessions: Mapping[str, str], replica: str) -> list[str]:
        """Lose these agents (by id, with their sessions) in one transaction; return those lost.

        State LOST, session void, commands without an answer void, a LOST report for each live
        allocation with on_loss STOP. An agent that has another session by now, or is watched by
        another replica, is left alone.
        """
        ...

    async def end_abandoned(self) -> int:
        """Write LOST for allocations whose agent came back with a new disk a loss time ago."""
        ...

    async def renew_replica(self, replica: str, alive_ms: Millis) -> list[Agent]:
        """Say that a replica lives, and return agents that it now watches instead of dead ones.

        A replica is dead when it was not renewed for `alive_ms` by the database's clock.
        """
        ...

    async def watched_by(self, replica: str) -> list[Agent]:
        """Return the agents with a session that a replica watches."""
        ...

    async def leave_replica(self, replica: str) -> None:
        """Say that a replica is gone, so that others watch its agents at once."""
        ...


class AgentStore(Protocol):
    """Agents as they are stored."""

    async def get_agent(self, agent: str) -> tuple[Agent, list[Allocation]]:
        """Return an agent and its live allocations. Raises NotFound AGENT_NOT_FOUND."""
        ...

    async def list_agents(
        self, pool: str, states: Collection[AgentState], after: str, limit: int
    ) -> tuple[list[Agent], str]:
        """Return agents by id after one, at most `limit`, and the token of what was seen.

        Empty `pool` or `states` mean all.
        """
        ...

    async def set_flags(self, agent: str, *, cordoned: bool, draining: bool) -> Agent:
        """Store both flags. Raises NotFound AGENT_NOT_FOUND."""
        ...

    def watch_agents(self, token: str, pool: str) -> AsyncGenerator[AgentChange, None]:
        """Yield each change after the token ("": from now on), and bookmarks when idle."""
        ...


class WorkStore(Protocol):
    """Commands, reports and the allocations that they move."""

    async def dispatch(self, dispatch: Dispatch) -> Dispatched:
        """Store commands. Raises Stale STALE_EPOCH; compared in the same transaction."""
        ...

    async def record(self, group: ReportGroup) -> None:
        """Store reports, each once; groups of many agents share a transaction."""
        ...

    async def last_reports(
        self, pool: str, after: Slot | None, limit: int
    ) -> tuple[list[Report], str]:
        """Return the last report of each allocation by slot, and the token of what was seen."""
        ...

    def watch_reports(self, token: str, pool: str) -> AsyncGenerator[ReportChange, None]:
        """Yield each report stored after the token ("": from now on), and bookmarks."""
        ...

    async def find_allocation(self, lease: str, attempt: int, rank: int) -> Allocation:
        """Return one allocation; attempt 0 is the last. Raises NotFound ALLOCATION_NOT_FOUND."""
        ...


class ApplicationStore(Protocol):
    """Applications of elastic groups: their last reports, and what they shall be."""

    async def application_reported(self, agent: str, session: str, report: bytes) -> bytes | None:
        """Store a report and return the order for the agent's incarnation, if there is one.

        A report of a session that is not the agent's present one is dropped.
        """
        ...

    async def applications(self, agents: Collection[str]) -> list[StoredApplication]:
        """Return what is known of the applications on agents, by agent."""
        ...

    async def order_applications(
        self, scope: str, epoch: int, orders: Sequence[ApplicationOrder]
    ) -> None:
        """Store a leader's orders over those before. Raises Stale STALE_EPOCH."""
        ...


class Upkeep(Protocol):
    """Epochs, and forgetting what is old."""

    async def fence(self, scope: str, epoch: int) -> int:
        """Raise a scope's epoch and return it. Raises Stale STALE_EPOCH for an older one."""
        ...

    async def forget(self, retention_ms: Millis) -> int:
        """Forget reports, ended allocations and answered commands older than the retention."""
        ...


class Store(SessionStore, LossStore, AgentStore, WorkStore, ApplicationStore, Upkeep, Protocol):
    """All of it; the memory and the PostgreSQL store pass one suite (tests/contract/registry)."""


class Ids(Protocol):
    """Makes names that no one else has made."""

    def short(self, length: int = 12) -> str:
        """Return an id of so many letters."""
        ...


class Notices(Protocol):
    """Tells other replicas to look at agents whose sessions they have."""

    def tell(self, replica: str, agents: Collection[str]) -> None:
        """Have a replica look at these agents soon; never waits, may be lost."""
        ...


class AgentLink(Protocol):
    """One agent's open stream, as the use cases see it. Nothing here waits."""

    def deliver(self, session: str, outgoing: Sequence[Outgoing]) -> None:
        """Send commands, in order."""
        ...

    def request_log(self, request: LogRequest) -> None:
        """Ask for a log, or end the request of that id."""
        ...

    def redirect(self, delay_ms: Millis) -> None:
        """Tell the agent to connect anew after a while."""
        ...

    def end(self, error: DomainError) -> None:
        """End the stream with an error."""
        ...
