"""Sessions, states and losses in PostgreSQL.

Decides what a hello and a loss change in one transaction each. Rows are locked in the order that
`postgres_commands` states.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from tenure_core.agents.agent import Agent
from tenure_core.agents.states import AgentState, may_change
from tenure_core.agents.work import Allocation, Slot
from tenure_core.timebase import Millis
from tenure_registry.ports import MakeLost
from tenure_registry.store.postgres_commands import pending
from tenure_registry.store.postgres_reports import columns, record_own
from tenure_registry.store.rows import agent_of, agent_payload, allocation_of, facts_of
from tenure_registry.values import Opened, Opening, StateChange
from tenure_runtime.postgres.changefeed import ChangeFeed, NewChange
from tenure_runtime.postgres.transaction import Record, Transaction

_NOW_MS: Final = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"


async def open_sessions(
    tx: Transaction,
    agents_feed: ChangeFeed,
    reports_feed: ChangeFeed,
    make_lost: MakeLost,
    openings: Sequence[Opening],
) -> Sequence[Opened]:
    """Give each agent (each once) its new session, and return what it must be told."""
    names = sorted(opening.claim.agent for opening in openings)
    before = await _lock_agents(tx, names)
    now_ms: Millis = await tx.fetchval(_NOW_MS)
    after = {o.claim.agent: o.agent_after(before.get(o.claim.agent), now_ms) for o in openings}
    await _save_agents(tx, [after[name] for name in names])
    await _append(tx, agents_feed, [after[name] for name in names])
    await _found_again(tx, openings)
    await _abandon(tx, before, openings)
    await _end_never_started(tx, reports_feed, make_lost, openings)
    wanted = await _live(tx, names)
    commands = await pending(tx, names)
    scopes = {f"pool/{opening.claim.pool}" for opening in openings}
    epochs = {
        row["scope"]: row["epoch"]
        for row in await tx.fetch("SELECT * FROM epochs WHERE scope = ANY($1)", sorted(scopes))
    }
    return [
        Opened(
            after[o.claim.agent],
            tuple(a for a in wanted if a.agent == o.claim.agent and a.wanted),
            tuple(c for c in commands if c.command.agent == o.claim.agent),
            {scope: epochs[scope] for scope in (f"pool/{o.claim.pool}",) if scope in epochs},
            before[o.claim.agent].replica if o.claim.agent in before else "",
        )
        for o in openings
    ]


async def _lock_agents(tx: Transaction, names: Collection[str]) -> dict[str, Agent]:
    rows = await tx.fetch(
        "SELECT * FROM agents WHERE agent = ANY($1) ORDER BY agent FOR UPDATE", list(names)
    )
    return {row["agent"]: agent_of(row) for row in rows}


async def _save_agents(tx: Transaction, agents: Sequence[Agent]) -> None:
    await tx.execute(
        "INSERT INTO agents (agent, pool, incarnation, state, cordoned, draining, facts, version,"
        " session, replica, contact_ms, changed_ms)"
        " SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bool[],"
        " $6::bool[], $7::jsonb[], $8::text[], $9::text[], $10::text[], $11::bigint[],"
        " $12::bigint[]) ON CONFLICT (agent) DO UPDATE SET pool = excluded.pool,"
        " incarnation = excluded.incarnation, state = excluded.state,"
        " cordoned = excluded.cordoned, draining = excluded.draining, facts = excluded.facts,"
        " version = excluded.version, session = excluded.session, replica = excluded.replica,"
        " contact_ms = excluded.contact_ms, changed_ms = excluded.changed_ms",
        [a.agent for a in agents],
        [a.pool for a in agents],
        [a.incarnation for a in agents],
        [a.state.value for a in agents],
        [a.cordoned for a in agents],
        [a.draining for a in agents],
        [facts_of(a) for a in agents],
        [a.version for a in agents],
        [a.session for a in agents],
        [a.replica for a in agents],
        [a.contact_ms for a in agents],
        [a.changed_ms for a in agents],
    )


async def _append(tx: Transaction, feed: ChangeFeed, agents: Sequence[Agent]) -> None:
    await feed.append(tx, [NewChange(a.agent, a.pool, agent_payload(a)) for a in agents])


async def _found_again(tx: Transaction, openings: Sequence[Opening]) -> None:
    """Take back that work was abandoned: its agent says that it has it.

    A clone that spoke for the agent meanwhile knew nothing of it; the work itself runs on.
    """
    present = [(o.claim.agent, slot) for o in openings for slot in o.present]
    if present:
        await tx.execute(
            "UPDATE allocations a SET abandoned_at = NULL FROM"
            " unnest($1::text[], $2::int[], $3::int[], $4::text[])"
            " AS g (lease, attempt, rank, agent) WHERE a.abandoned_at IS NOT NULL AND a.live"
            " AND (a.lease, a.attempt, a.rank, a.agent) = (g.lease, g.attempt, g.rank, g.agent)",
            *columns(slot for _, slot in present),
            [agent for agent, _ in present],
        )


async def _abandon(
    tx: Transaction, before: Mapping[str, Agent], openings: Sequence[Opening]
) -> None:
    """Mark work of an earlier incarnation that its agent knows nothing of.

    It may run on until its guardian's fence, so its end is written a loss time later (and never
    for what is to be kept), and no command for it is delivered any more: a START that the earlier
    incarnation carried out without a report would run twice.
    """
    renewed = {
        o.claim.agent: o.present
        for o in openings
        if (known := before.get(o.claim.agent)) and known.incarnation != o.claim.incarnation
    }
    if not renewed:
        return
    gone = [a for a in await _live(tx, renewed) if a.slot not in renewed[a.agent]]
    await tx.execute(
        "UPDATE commands c SET outcome = 'FORGOTTEN' FROM"
        " unnest($1::text[], $2::int[], $3::int[]) AS g (lease, attempt, rank)"
        " WHERE coalesce(c.outcome, 'VOID') = 'VOID' AND c.verb <> 'STOP'"
        " AND (c.lease, c.attempt, c.rank) = (g.lease, g.attempt, g.rank)",
        *columns(a.slot for a in gone),
    )
    await tx.execute(
        "UPDATE allocations SET abandoned_at = coalesce(abandoned_at, clock_timestamp())"
        " WHERE on_loss = 'STOP' AND (lease, attempt, rank) IN"
        " (SELECT * FROM unnest($1::text[], $2::int[], $3::int[]))",
        *columns(a.slot for a in gone),
    )


async def _end_never_started(
    tx: Transaction, feed: ChangeFeed, make_lost: MakeLost, openings: Sequence[Opening]
) -> None:
    """End what was to be kept on loss, whose START became void, and which is not on its agent.

    A START that an earlier incarnation may have carried out is FORGOTTEN, not VOID: no proof.
    """
    present = {o.claim.agent: o.present for o in openings}
    rows = await tx.fetch(
        "SELECT a.* FROM allocations a WHERE a.live AND a.on_loss = 'KEEP' AND a.report_id IS NULL"
        " AND a.agent = ANY($1) AND EXISTS (SELECT 1 FROM commands c WHERE c.outcome = 'VOID'"
        " AND c.verb = 'START' AND (c.lease, c.attempt, c.rank) = (a.lease, a.attempt, a.rank))"
        " ORDER BY a.lease, a.attempt, a.rank FOR UPDATE OF a",
        sorted(present),
    )
    gone = [a for a in map(allocation_of, rows) if a.slot not in present[a.agent]]
    await record_own(tx, feed, {a.slot: a for a in gone}, [make_lost(a, "") for a in gone])


async def _live(tx: Transaction, agents: Collection[str]) -> list[Allocation]:
    rows = await tx.fetch(
        "SELECT * FROM allocations WHERE live AND agent = ANY($1) ORDER BY lease, attempt, rank",
        list(agents),
    )
    return [allocation_of(row) for row in rows]


async def change_states(tx: Transaction, feed: ChangeFeed, changes: Sequence[StateChange]) -> None:
    """Store ALIVE and SUSPECT of those that still have the session given."""
    given = {change.agent: change for change in changes}
    known = await _lock_agents(tx, given)
    now_ms: Millis = await tx.fetchval(_NOW_MS)
    after = [
        replace(
            agent,
            state=given[name].state,
            contact_ms=max(agent.contact_ms, given[name].contact_ms),
            changed_ms=now_ms,
        )
        for name, agent in sorted(known.items())
        if agent.session == given[name].session and may_change(agent.state, given[name].state)
    ]
    if after:
        await _save_agents(tx, after)
        await _append(tx, feed, after)


async def declare_lost(
    tx: Transaction,
    agents_feed: ChangeFeed,
    reports_feed: ChangeFeed,
    make_lost: MakeLost,
    sessions: Mapping[str, str],
    replica: str,
) -> list[str]:
    """Lose agents: state, session, commands and STOP allocations, all in this transaction."""
    known = await _lock_agents(tx, sessions)
    now_ms: Millis = await tx.fetchval(_NOW_MS)
    lost = [
        replace(agent, state=AgentState.LOST, session="", changed_ms=now_ms)
        for name, agent in sorted(known.items())
        if agent.session == sessions[name] and agent.replica == replica
    ]
    if not lost:
        return []
    names = [agent.agent for agent in lost]
    await _save_agents(tx, lost)
    await _append(tx, agents_feed, lost)
    rows = await tx.fetch(
        "SELECT * FROM allocations WHERE live AND on_loss = 'STOP' AND agent = ANY($1)"
        " ORDER BY lease, attempt, rank FOR UPDATE",
        names,
    )
    ended: dict[Slot, Allocation] = {a.slot: a for a in map(allocation_of, rows)}
    # A stop still holds: whatever outlives the loss is to end, whenever it is heard of.
    await tx.execute(
        "UPDATE commands SET outcome = 'VOID'"
        " WHERE outcome IS NULL AND verb <> 'STOP' AND agent = ANY($1)",
        names,
    )
    reports = [make_lost(a, sessions[a.agent]) for a in ended.values()]
    await record_own(tx, reports_feed, ended, reports)
    return names


async def end_abandoned(
    tx: Transaction, feed: ChangeFeed, make_lost: MakeLost, loss_ms: Millis
) -> int:
    """Write LOST for work of an earlier incarnation whose fence has passed."""
    rows = await tx.fetch(
        "SELECT * FROM allocations WHERE live AND abandoned_at IS NOT NULL"
        " AND abandoned_at < clock_timestamp() - $1 * interval '1 millisecond'"
        " ORDER BY lease, attempt, rank LIMIT 1000 FOR UPDATE SKIP LOCKED",
        loss_ms,
    )
    ended = {a.slot: a for a in map(allocation_of, rows)}
    await record_own(tx, feed, ended, [make_lost(a, "") for a in ended.values()])
    return len(ended)


async def renew_replica(tx: Transaction, replica: str, alive_ms: Millis) -> list[Agent]:
    """Renew a replica, and have it watch the agents of replicas that are dead."""
    await tx.execute(
        "INSERT INTO replicas VALUES ($1, clock_timestamp()) ON CONFLICT (replica)"
        " DO UPDATE SET renewed_at = excluded.renewed_at",
        replica,
    )
    await tx.execute(
        "DELETE FROM replicas WHERE renewed_at < clock_timestamp() - $1 * interval '1 millisecond'",
        alive_ms,
    )
    rows: list[Record] = await tx.fetch(
        "UPDATE agents SET replica = $1 WHERE agent IN (SELECT agent FROM agents"
        " WHERE session <> '' AND replica NOT IN (SELECT replica FROM replicas)"
        " ORDER BY agent FOR UPDATE SKIP LOCKED) RETURNING *",
        replica,
    )
    return [agent_of(row) for row in rows]
