"""Reports and allocations in PostgreSQL: each report once, and what it changes.

A few statements for the reports of any number of agents; `postgres_commands` says in which order
rows are locked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from tenure_core.agents.work import Allocation, Report, ReportKind, Slot, Verb, after_report
from tenure_core.timebase import Millis
from tenure_registry.store.rows import allocation_of, report_payload
from tenure_registry.values import ReportGroup
from tenure_runtime.postgres.changefeed import ChangeFeed, NewChange
from tenure_runtime.postgres.transaction import Record, Transaction


async def record(
    tx: Transaction, feed: ChangeFeed, groups: Sequence[ReportGroup]
) -> Sequence[None]:
    """Store the reports of several agents, each once, and what they change."""
    reports = {(r.agent, r.report_id): r for group in groups for r in group.reports}
    slots = {report.slot for report in reports.values()}
    allocations = await lock_allocations(tx, slots)
    known = [_belongs(allocations, report) for report in reports.values()]
    new = {
        (row["agent"], row["report_id"]): row["recorded_ms"]
        for row in await _insert_reports(tx, list(reports.values()), known)
    }
    fresh = [report for key, report in reports.items() if key in new]
    if fresh:
        await apply_reports(tx, feed, allocations, fresh, max(new.values()))
    return [None] * len(groups)


def _belongs(allocations: dict[Slot, Allocation], report: Report) -> bool:
    allocation = allocations.get(report.slot)
    return allocation is not None and allocation.agent == report.agent


async def apply_reports(
    tx: Transaction,
    feed: ChangeFeed,
    allocations: dict[Slot, Allocation],
    reports: Sequence[Report],
    now_ms: Millis,
) -> None:
    """Move allocations and commands as new reports say, and append the known ones to the feed."""
    rows = await tx.fetch(
        "UPDATE commands c SET outcome = coalesce(c.outcome,"
        " CASE WHEN g.refused AND c.verb <> 'START' THEN 'REFUSED' ELSE 'ANSWERED' END)"
        " FROM unnest($1::text[], $2::text[], $3::bool[]) AS g (command_id, agent, refused)"
        " WHERE c.command_id = g.command_id AND c.agent = g.agent"
        " RETURNING c.command_id, c.agent, c.verb",
        [r.command_id for r in reports],
        [r.agent for r in reports],
        [r.kind is ReportKind.REFUSED for r in reports],
    )
    verbs = {(row["agent"], row["command_id"]): Verb(row["verb"]) for row in rows}
    changed: dict[Slot, Allocation] = {}
    told: list[tuple[Report, str]] = []
    for report in reports:
        if not _belongs(allocations, report):
            continue
        before = allocations[report.slot]
        told.append((report, before.pool))
        after = after_report(before, report, verbs.get((report.agent, report.command_id)))
        if after is not before:
            changed[report.slot] = allocations[report.slot] = after
    await save_allocations(tx, changed.values())
    ended = [slot for slot, allocation in changed.items() if not allocation.live]
    if ended:
        await tx.execute(
            "UPDATE commands c SET outcome = 'SETTLED'"
            " FROM unnest($1::text[], $2::int[], $3::int[]) AS g (lease, attempt, rank)"
            " WHERE c.outcome IS NULL"
            " AND (c.lease, c.attempt, c.rank) = (g.lease, g.attempt, g.rank)",
            *columns(ended),
        )
    await feed.append(
        tx,
        [
            NewChange("/".join(map(str, report.slot)), pool, report_payload(report, now_ms))
            for report, pool in told
        ],
    )


async def lock_allocations(tx: Transaction, slots: Collection[Slot]) -> dict[Slot, Allocation]:
    """Lock and return the allocations of these slots that exist."""
    rows = await tx.fetch(
        "SELECT * FROM allocations WHERE (lease, attempt, rank) IN"
        " (SELECT * FROM unnest($1::text[], $2::int[], $3::int[]))"
        " ORDER BY lease, attempt, rank FOR UPDATE",
        *columns(slots),
    )
    return {(found := allocation_of(row)).slot: found for row in rows}


async def save_allocations(tx: Transaction, allocations: Collection[Allocation]) -> None:
    """Insert or update allocations."""
    if not allocations:
        return
    last = [a.last for a in allocations]
    await tx.execute(
        "INSERT INTO allocations (lease, attempt, rank, agent, pool, state, on_loss, live, started,"
        " report_id, command_id, kind, sequence, body, owner, project)"
        " SELECT * FROM unnest($1::text[], $2::int[], $3::int[], $4::text[], $5::text[],"
        " $6::text[], $7::text[], $8::bool[], $9::bool[], $10::text[], $11::text[], $12::text[],"
        " $13::bigint[], $14::bytea[], $15::text[], $16::text[])"
        " ON CONFLICT (lease, attempt, rank) DO UPDATE SET agent = excluded.agent,"
        " pool = excluded.pool, state = excluded.state,"
        " on_loss = excluded.on_loss, live = excluded.live, started = excluded.started,"
        " report_id = excluded.report_id, command_id = excluded.command_id, kind = excluded.kind,"
        " sequence = excluded.sequence, body = excluded.body, owner = excluded.owner,"
        " project = excluded.project,"
        " changed_at = clock_timestamp()",
        *columns(a.slot for a in allocations),
        [a.agent for a in allocations],
        [a.pool for a in allocations],
        [a.state.value for a in allocations],
        [a.on_loss.value for a in allocations],
        [a.live for a in allocations],
        [a.started for a in allocations],
        [r.report_id if r else None for r in last],
        [r.command_id if r else None for r in last],
        [r.kind.value if r else None for r in last],
        [r.sequence if r else None for r in last],
        [r.body if r else None for r in last],
        [a.owner for a in allocations],
        [a.project for a in allocations],
    )


async def _insert_reports(
    tx: Transaction, reports: Sequence[Report], known: Sequence[bool]
) -> list[Record]:
    return await tx.fetch(
        "INSERT INTO reports (agent, report_id, sequence, lease, attempt, rank, kind, command_id,"
        " body, known) SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[],"
        " $5::int[], $6::int[], $7::text[], $8::text[], $9::bytea[], $10::bool[])"
        " ON CONFLICT DO NOTHING RETURNING agent, report_id,"
        " (extract(epoch FROM recorded_at) * 1000)::bigint AS recorded_ms",
        [r.agent for r in reports],
        [r.report_id for r in reports],
        [r.sequence for r in reports],
        *columns(r.slot for r in reports),
        [r.kind.value for r in reports],
        [r.command_id for r in reports],
        [r.body for r in reports],
        known,
    )


async def record_own(
    tx: Transaction,
    feed: ChangeFeed,
    allocations: dict[Slot, Allocation],
    reports: Sequence[Report],
) -> None:
    """Store reports that the registry itself writes about allocations locked already."""
    if reports:
        rows = await _insert_reports(tx, reports, [True] * len(reports))
        now_ms = max((row["recorded_ms"] for row in rows), default=0)
        await apply_reports(tx, feed, allocations, reports, now_ms)


def columns(slots: Iterable[Slot]) -> tuple[list[str], list[int], list[int]]:
    """Return slots as the three arrays that statements take."""
    rows = list(slots)
    return [s.lease for s in rows], [s.attempt for s in rows], [s.rank for s in rows]


_FORGET: Final = (
    (
        "DELETE FROM allocations WHERE ctid = ANY (ARRAY(SELECT ctid FROM allocations"
        " WHERE NOT live AND changed_at < clock_timestamp() - $1 * interval '1 millisecond'"
        " LIMIT 5000))"
    ),
    # A repeat of a command about live work is still recognised.
    (
        "DELETE FROM commands WHERE ctid = ANY (ARRAY(SELECT c.ctid FROM commands c"
        " LEFT JOIN allocations a USING (lease, attempt, rank)"
        " WHERE c.outcome IS NOT NULL AND a.live IS NOT TRUE"
        " AND dispatched_at < clock_timestamp() - $1 * interval '1 millisecond' LIMIT 5000))"
    ),
    (
        "DELETE FROM reports WHERE ctid = ANY (ARRAY(SELECT ctid FROM reports"
        " WHERE recorded_at < clock_timestamp() - $1 * interval '1 millisecond' LIMIT 5000))"
    ),
)


async def forget(tx: Transaction, retention_ms: Millis) -> int:
    """Forget what is older than the retention; live allocations and open commands are kept."""
    tags = [await tx.execute(sql, retention_ms) for sql in _FORGET]
    return sum(int(tag.rpartition(" ")[2]) for tag in tags)
