"""The registry's store in PostgreSQL: one schema, two feeds, hellos and reports in groups."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing
from typing import Final

from tenure_core.agents.agent import Agent
from tenure_core.agents.states import AgentState
from tenure_core.agents.work import Allocation, Report, Slot
from tenure_core.timebase import Millis
from tenure_registry.ports import MakeLost
from tenure_registry.refusals import allocation_not_found
from tenure_registry.store import postgres_agents, postgres_commands
from tenure_registry.store import postgres_sessions as sessions
from tenure_registry.store.postgres_applications import PostgresApplications
from tenure_registry.store.postgres_reports import forget, record
from tenure_registry.store.rows import (
    agent_of,
    agent_of_payload,
    allocation_of,
    report_of,
    report_of_payload,
)
from tenure_registry.values import (
    AgentChange,
    Dispatch,
    Dispatched,
    Opened,
    Opening,
    Outgoing,
    ReportChange,
    ReportGroup,
    StateChange,
)
from tenure_runtime.postgres.changefeed import ChangeFeed
from tenure_runtime.postgres.feedhub import Bookmark, FeedHub
from tenure_runtime.postgres.group_commit import GroupCommit
from tenure_runtime.postgres.pool import Pool
from tenure_runtime.postgres.transaction import Transaction, run
from tenure_runtime.rpc.draining import Draining

SCHEMA: Final = "registry"
FORGET_ROUNDS: Final = 50
FEED_RETENTION_MS: Final[Millis] = 3_600_000


class PostgresStore(PostgresApplications):
    """Open it with `await PostgresStore.open(...)`, and run `run()` in a TaskGroup."""

    def __init__(
        self, pool: Pool, agents: FeedHub, reports: FeedHub, make_lost: MakeLost, loss_ms: Millis
    ) -> None:
        super().__init__(pool)
        self._agents = agents
        self._reports = reports
        self._make_lost = make_lost
        self._loss_ms = loss_ms
        self._hellos: GroupCommit[Opening, Opened] = GroupCommit(
            pool, self._apply_hellos, name="registry.hello", key=lambda item: item.claim.agent
        )
        self._records: GroupCommit[ReportGroup, None] = GroupCommit(
            pool, self._apply_reports, name="registry.report"
        )

    @classmethod
    async def open(
        cls, pool: Pool, draining: Draining, make_lost: MakeLost, loss_ms: Millis
    ) -> PostgresStore:
        """Return the store of a schema that is migrated."""
        agents = FeedHub(await ChangeFeed.open(pool, "agents"), draining, queue_limit=20_000)
        reports = FeedHub(await ChangeFeed.open(pool, "reports"), draining, queue_limit=20_000)
        return cls(pool, agents, reports, make_lost, loss_ms)

    async def run(self) -> None:
        """Follow the feeds and commit groups until cancelled."""
        async with asyncio.TaskGroup() as group:
            for hub in (self._agents, self._reports):
                group.create_task(hub.feed.run())
                group.create_task(hub.run())
            group.create_task(self._hellos.run())
            group.create_task(self._records.run())

    async def _apply_hellos(self, tx: Transaction, items: Sequence[Opening]) -> Sequence[Opened]:
        return await sessions.open_sessions(
            tx, self._agents.feed, self._reports.feed, self._make_lost, items
        )

    async def _apply_reports(self, tx: Transaction, items: Sequence[ReportGroup]) -> Sequence[None]:
        return await record(tx, self._reports.feed, items)

    async def open_session(self, opening: Opening) -> Opened:
        """See `SessionStore`; hellos that come at once share a transaction."""
        return await self._hellos.submit(opening)

    async def pending(self, agents: Collection[str]) -> list[Outgoing]:
        """See `SessionStore`."""

        async def use_case(tx: Transaction) -> list[Outgoing]:
            return await postgres_commands.pending(tx, agents)

        return await run(self._pool, use_case, readonly=True)

    async def superseded(self, given: Mapping[str, str]) -> list[Agent]:
        """See `SessionStore`."""

        async def use_case(tx: Transaction) -> list[Agent]:
            return await postgres_agents.superseded(tx, given)

        return await run(self._pool, use_case, readonly=True)

    async def change_states(self, changes: Sequence[StateChange]) -> None:
        """See `SessionStore`."""

        async def use_case(tx: Transaction) -> None:
            await sessions.change_states(tx, self._agents.feed, changes)

        await run(self._pool, use_case)

    async def declare_lost(self, given: Mapping[str, str], replica: str) -> list[str]:
        """See `LossStore`."""

        async def use_case(tx: Transaction) -> list[str]:
            return await sessions.declare_lost(
                tx, self._agents.feed, self._reports.feed, self._make_lost, given, replica
            )

        return await run(self._pool, use_case)

    async def end_abandoned(self) -> int:
        """See `LossStore`."""

        async def use_case(tx: Transaction) -> int:
            return await sessions.end_abandoned(
                tx, self._reports.feed, self._make_lost, self._loss_ms
            )

        return await run(self._pool, use_case)

    async def renew_replica(self, replica: str, alive_ms: Millis) -> list[Agent]:
        """See `LossStore`."""

        async def use_case(tx: Transaction) -> list[Agent]:
            return await sessions.renew_replica(tx, replica, alive_ms)

        return await run(self._pool, use_case)

    async def watched_by(self, replica: str) -> list[Agent]:
        """See `LossStore`."""
        rows = await self._pool.fetch(
            "SELECT * FROM agents WHERE replica = $1 AND session <> ''", replica
        )
        return [agent_of(row) for row in rows]

    async def leave_replica(self, replica: str) -> None:
        """See `LossStore`."""
        await self._pool.execute("DELETE FROM replicas WHERE replica = $1", replica)

    async def get_agent(self, agent: str) -> tuple[Agent, list[Allocation]]:
        """See `AgentStore`."""

        async def use_case(tx: Transaction) -> tuple[Agent, list[Allocation]]:
            return await postgres_agents.get_agent(tx, agent)

        return await run(self._pool, use_case, isolation="repeatable_read", readonly=True)

    async def list_agents(
        self, pool: str, states: Collection[AgentState], after: str, limit: int
    ) -> tuple[list[Agent], str]:
        """See `AgentStore`."""

        async def use_case(tx: Transaction) -> tuple[list[Agent], str]:
            position = await self._agents.feed.position(tx)
            agents = await postgres_agents.list_agents(tx, pool, states, after, limit)
            return agents, position.token()

        return await run(self._pool, use_case, isolation="repeatable_read", readonly=True)

    async def set_flags(self, agent: str, *, cordoned: bool, draining: bool) -> Agent:
        """See `AgentStore`; flags that are so already are no change."""

        async def use_case(tx: Transaction) -> Agent:
            flags = (cordoned, draining)
            return await postgres_agents.set_flags(tx, self._agents.feed, agent, flags)

        return await run(self._pool, use_case)

    async def watch_agents(self, token: str, pool: str) -> AsyncGenerator[AgentChange, None]:
        """See `AgentStore`."""
        start = token or (await self._agents.feed.now()).token()
        changes = self._agents.watch(start, lambda change: not pool or change.kind == pool)
        async with aclosing(changes):
            async for change in changes:
                where = change.position.token()
                if isinstance(change, Bookmark):
                    yield AgentChange(None, where)
                else:
                    yield AgentChange(agent_of_payload(change.payload), where)

    async def dispatch(self, dispatch: Dispatch) -> Dispatched:
        """See `WorkStore`."""

        async def use_case(tx: Transaction) -> Dispatched:
            return await postgres_commands.dispatch(tx, dispatch)

        return await run(self._pool, use_case)

    async def record(self, group: ReportGroup) -> None:
        """See `WorkStore`; reports that come at once share a transaction."""
        await self._records.submit(group)

    async def last_reports(
        self, pool: str, after: Slot | None, limit: int
    ) -> tuple[list[Report], str]:
        """See `WorkStore`."""

        async def use_case(tx: Transaction) -> tuple[list[Report], str]:
            position = await self._reports.feed.position(tx)
            rows = await tx.fetch(
                "SELECT * FROM allocations WHERE pool = $1 AND body IS NOT NULL"
                " AND (lease, attempt, rank) > ($2, $3, $4)"
                " ORDER BY lease, attempt, rank LIMIT $5",
                pool,
                *(after or ("", 0, 0)),
                limit,
            )
            return [report_of(row) for row in rows], position.token()

        return await run(self._pool, use_case, isolation="repeatable_read", readonly=True)

    async def watch_reports(self, token: str, pool: str) -> AsyncGenerator[ReportChange, None]:
        """See `WorkStore`."""
        start = token or (await self._reports.feed.now()).token()
        changes = self._reports.watch(start, lambda change: change.kind == pool)
        async with aclosing(changes):
            async for change in changes:
                where = change.position.token()
                if isinstance(change, Bookmark):
                    yield ReportChange(None, where)
                else:
                    report, recorded_ms = report_of_payload(change.payload)
                    yield ReportChange(report, where, recorded_ms)

    async def find_allocation(self, lease: str, attempt: int, rank: int) -> Allocation:
        """See `WorkStore`."""
        row = await self._pool.fetchrow(
            "SELECT * FROM allocations WHERE lease = $1 AND rank = $3"
            " AND ($2 = 0 OR attempt = $2) ORDER BY attempt DESC LIMIT 1",
            lease,
            attempt,
            rank,
        )
        if row is None:
            raise allocation_not_found(lease, attempt, rank)
        return allocation_of(row)

    async def fence(self, scope: str, epoch: int) -> int:
        """See `Upkeep`."""

        async def use_case(tx: Transaction) -> int:
            await postgres_commands.raise_epoch(tx, scope, epoch)
            return epoch

        return await run(self._pool, use_case)

    async def forget(self, retention_ms: Millis) -> int:
        """See `Upkeep`; some thousand rows of each table at a time, and some hundred thousand."""

        async def use_case(tx: Transaction) -> int:
            return await forget(tx, retention_ms)

        for hub in (self._agents, self._reports):
            await hub.feed.trim(FEED_RETENTION_MS)
        total = 0
        for _ in range(FORGET_ROUNDS):
            forgotten = await run(self._pool, use_case)
            total += forgotten
            if not forgotten:
                break
        return total
