"""Agents as PostgreSQL has them: reading, listing, flags."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from tenure_core.agents.agent import Agent
from tenure_core.agents.states import AgentState
from tenure_core.agents.work import Allocation
from tenure_registry.refusals import agent_not_found
from tenure_registry.store.rows import agent_of, agent_payload, allocation_of
from tenure_runtime.audit import trail
from tenure_runtime.postgres.changefeed import ChangeFeed, NewChange
from tenure_runtime.postgres.transaction import Transaction


async def get_agent(tx: Transaction, agent: str) -> tuple[Agent, list[Allocation]]:
    """Return an agent and its live allocations. Raises NotFound AGENT_NOT_FOUND."""
    row = await tx.fetchrow("SELECT * FROM agents WHERE agent = $1", agent)
    if row is None:
        raise agent_not_found(agent)
    rows = await tx.fetch(
        "SELECT * FROM allocations WHERE live AND agent = $1 ORDER BY lease, attempt, rank", agent
    )
    return agent_of(row), [allocation_of(each) for each in rows]


async def list_agents(
    tx: Transaction, pool: str, states: Collection[AgentState], after: str, limit: int
) -> list[Agent]:
    """Return agents by id after one; an empty pool or no states mean all."""
    rows = await tx.fetch(
        "SELECT * FROM agents WHERE agent > $1 AND ($2 = '' OR pool = $2)"
        " AND (cardinality($3::text[]) = 0 OR state = ANY($3)) ORDER BY agent LIMIT $4",
        after,
        pool,
        [state.value for state in states],
        limit,
    )
    return [agent_of(row) for row in rows]


async def set_flags(
    tx: Transaction, feed: ChangeFeed, agent: str, flags: tuple[bool, bool]
) -> Agent:
    """Store (cordoned, draining) unless they are so. Raises NotFound AGENT_NOT_FOUND."""
    row = await tx.fetchrow(
        "UPDATE agents a SET cordoned = $2, draining = $3"
        " FROM (SELECT agent, cordoned, draining FROM agents WHERE agent = $1 FOR UPDATE) b"
        " WHERE a.agent = b.agent AND (b.cordoned, b.draining) <> ($2, $3)"
        " RETURNING a.*, b.cordoned AS was_cordoned, b.draining AS was_draining",
        agent,
        *flags,
    )
    if row is not None:
        after = agent_of(row)
        before = replace(after, cordoned=row["was_cordoned"], draining=row["was_draining"])
        shown = trail.json_change(
            f"agents/{after.agent}", agent_payload(before), agent_payload(after)
        )
        await trail.write(tx, [shown])
        await feed.append(tx, [NewChange(after.agent, after.pool, agent_payload(after))])
        return after
    row = await tx.fetchrow("SELECT * FROM agents WHERE agent = $1", agent)
    if row is None:
        raise agent_not_found(agent)
    return agent_of(row)


async def superseded(tx: Transaction, given: Mapping[str, str]) -> list[Agent]:
    """Return the agents whose present session is another than the one given."""
    rows = await tx.fetch(
        "SELECT a.* FROM agents a JOIN unnest($1::text[], $2::text[])"
        " AS g (agent, session) USING (agent) WHERE a.session <> g.session",
        list(given),
        list(given.values()),
    )
    return [agent_of(row) for row in rows]
