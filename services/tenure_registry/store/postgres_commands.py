"""Commands in PostgreSQL: a leader's epoch, verdicts, and what awaits its answer.

A few statements for any number of commands. Rows are locked in one order everywhere (epoch, agents
by id, allocations by slot), so that transactions wait for one another and never deadlock.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import asyncpg

from tenure_core.agents.states import WITH_SESSION, AgentState
from tenure_core.agents.work import Allocation, Command, Slot, Verb, after_command
from tenure_registry.refusals import stale_epoch
from tenure_registry.store.postgres_reports import columns, lock_allocations, save_allocations
from tenure_registry.store.rows import command_of
from tenure_registry.values import Dispatch, Dispatched, Outgoing
from tenure_runtime.postgres.transaction import Record, Transaction

_VOID: Final = frozenset({"VOID", "FORGOTTEN"})
_AGAIN: Final = _VOID | {"REFUSED"}
"""Outcomes of a command that a leader may repeat once its agent is there: a stop that became void
(to be told to stop is harmless, however often), and what had no effect."""


async def raise_epoch(tx: Transaction, scope: str, epoch: int) -> None:
    """Compare a leader's epoch with the stored one, and raise that. Raises Stale STALE_EPOCH.

    The row stays locked until the end of the transaction: a fence waits for writes under way.
    """
    stored = await tx.fetchval("SELECT epoch FROM epochs WHERE scope = $1 FOR SHARE", scope)
    if stored is None or stored < epoch:
        stored = await tx.fetchval(
            "INSERT INTO epochs VALUES ($1, $2) ON CONFLICT (scope)"
            " DO UPDATE SET epoch = greatest(epochs.epoch, excluded.epoch) RETURNING epoch",
            scope,
            epoch,
        )
    if stored > epoch:
        raise stale_epoch(scope, epoch, stored)


async def dispatch(tx: Transaction, dispatch: Dispatch) -> Dispatched:
    """Store a leader's commands, each with a verdict of its own."""
    await raise_epoch(tx, dispatch.scope, dispatch.epoch)
    commands = dispatch.commands
    agents = {
        row["agent"]: row
        for row in await tx.fetch(
            "SELECT agent, pool, state, session, replica FROM agents WHERE agent = ANY($1)"
            " ORDER BY agent FOR SHARE",
            sorted({command.agent for command in commands}),
        )
    }
    stored = {
        row["command_id"]: row
        for row in await tx.fetch(
            "SELECT command_id, digest, epoch, outcome FROM commands WHERE command_id = ANY($1)",
            [command.command_id for command in commands],
        )
    }
    allocations = await lock_allocations(tx, {command.slot for command in commands})
    reasons: list[str] = []
    fresh: dict[str, Command] = {}
    renewed: dict[str, Command] = {}
    changed: dict[Slot, Allocation] = {}
    for command in commands:
        known = stored.get(command.command_id)
        twin = fresh.get(command.command_id)
        if known is not None or twin is not None:
            digest = twin.digest if twin else bytes(known["digest"])  # type: ignore[index]  # one is there
            reason = _repeat(digest, known, command)
            outcome = known["outcome"] if known and not reason else "ANSWERED"
            if outcome in _AGAIN and not reason:
                reason = _refusal(agents.get(command.agent), dispatch.pool)
                if not reason:
                    renewed[command.command_id] = command
            elif known and outcome is None and known["epoch"] < dispatch.epoch:
                renewed[command.command_id] = command
            reasons.append(reason)
            continue
        reason = _refusal(agents.get(command.agent), dispatch.pool)
        if not reason:
            after = after_command(allocations.get(command.slot), command, dispatch.pool)
            if isinstance(after, str):
                reason = after
            else:
                if after != allocations.get(command.slot):
                    changed[command.slot] = allocations[command.slot] = after
                fresh[command.command_id] = command
        reasons.append(reason)
    await _insert_commands(tx, list(fresh.values()))
    await _renew_commands(tx, renewed)
    await save_allocations(tx, changed.values())
    out = [*renewed.values(), *fresh.values()]
    await _supersede(tx, [command.slot for command in out if command.verb is Verb.STOP])
    return Dispatched(
        tuple(reasons),
        tuple(Outgoing(c, c.valid_ms, agents[c.agent]["session"]) for c in out),
        {c.agent: agents[c.agent]["replica"] for c in out},
    )


def _repeat(digest: bytes, known: Record | None, command: Command) -> str:
    if digest != command.digest:
        return "COMMAND_ID_REUSED"
    void = known is not None and known["outcome"] in _VOID and command.verb is not Verb.STOP
    return "AGENT_LOST" if void else ""


def _refusal(agent: Record | None, pool: str) -> str:
    if agent is None or agent["pool"] != pool:
        return "AGENT_NOT_FOUND"
    return "" if AgentState(agent["state"]) in WITH_SESSION else "AGENT_LOST"


async def _insert_commands(tx: Transaction, commands: Sequence[Command]) -> None:
    if not commands:
        return
    stored = await tx.fetch(
        "INSERT INTO commands (command_id, agent, lease, attempt, rank, verb, epoch, valid_ms,"
        " on_loss, digest, body)"
        " SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::int[], $5::int[],"
        " $6::text[], $7::bigint[], $8::bigint[], $9::text[], $10::bytea[], $11::bytea[])"
        " ON CONFLICT DO NOTHING RETURNING 1",
        [c.command_id for c in commands],
        [c.agent for c in commands],
        *columns(c.slot for c in commands),
        [c.verb.value for c in commands],
        [c.epoch for c in commands],
        [c.valid_ms for c in commands],
        [c.on_loss.value for c in commands],
        [c.digest for c in commands],
        [c.body for c in commands],
    )
    if len(stored) < len(commands):
        # A repeat was stored between our look and this: the transaction is to look again.
        raise asyncpg.SerializationError("a command was dispatched twice at once")


async def _renew_commands(tx: Transaction, commands: dict[str, Command]) -> None:
    """Go on with what a new leader repeats of its predecessor's, or with what had no effect."""
    if commands:
        await tx.execute(
            "UPDATE commands c SET epoch = g.epoch, body = g.body, valid_ms = g.valid_ms,"
            " dispatched_at = clock_timestamp(), outcome = NULL"
            " FROM unnest($1::text[], $2::bigint[], $3::bytea[], $4::bigint[])"
            " AS g (command_id, epoch, body, valid_ms) WHERE c.command_id = g.command_id",
            list(commands),
            [c.epoch for c in commands.values()],
            [c.body for c in commands.values()],
            [c.valid_ms for c in commands.values()],
        )


async def _supersede(tx: Transaction, slots: Sequence[Slot]) -> None:
    """Deliver nothing any more that came before a stop.

    An agent that has begun it stops it; one that has not is told so instead of beginning it.
    """
    if slots:
        await tx.execute(
            "UPDATE commands c SET outcome = 'SUPERSEDED'"
            " FROM unnest($1::text[], $2::int[], $3::int[]) AS g (lease, attempt, rank)"
            " WHERE c.outcome IS NULL AND c.verb <> 'STOP'"
            " AND (c.lease, c.attempt, c.rank) = (g.lease, g.attempt, g.rank)",
            *columns(slots),
        )


async def pending(tx: Transaction, agents: Collection[str]) -> list[Outgoing]:
    """Return the commands that are neither answered nor void, in the order of their dispatch."""
    rows = await tx.fetch(
        "SELECT c.*, a.session, greatest(0, valid_ms -"
        " (extract(epoch FROM clock_timestamp() - dispatched_at) * 1000)::bigint) AS remaining_ms"
        " FROM commands c JOIN agents a USING (agent)"
        " WHERE outcome IS NULL AND agent = ANY($1) ORDER BY number",
        list(agents),
    )
    return [Outgoing(command_of(row), row["remaining_ms"], row["session"]) for row in rows]
