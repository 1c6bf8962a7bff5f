"""Reads of the lease book in SQL: single leases, and pages by keyset, newest first."""

from __future__ import annotations

import json

from tenure_admission.pages import page_of
from tenure_admission.ports import LeasePage, Listing
from tenure_admission.records import Checks
from tenure_admission.store.rows import SELECT_STORED, stored_of
from tenure_runtime.postgres.changefeed import ChangeFeed
from tenure_runtime.postgres.transaction import Record, Transaction

RECENT_MAX = 1_000
_PROJECTS = """
SELECT DISTINCT project FROM (
    SELECT project FROM leases WHERE owner = $1 ORDER BY created_ms DESC, id DESC LIMIT $2
) AS recent ORDER BY project LIMIT $3
"""


async def get(tx: Transaction, lease_ids: list[str]) -> list[Record]:
    """Return the rows of those of the leases that exist."""
    return await tx.fetch(SELECT_STORED + " WHERE l.id = ANY ($1)", lease_ids)


async def checks(tx: Transaction, lease_id: str) -> Checks:
    """Return what leaders found to stand in a waiting lease's way."""
    found = await tx.fetchval("SELECT checks FROM forecasts WHERE lease_id = $1", lease_id)
    return {reason: tuple(spell) for reason, spell in json.loads(found or "{}").items()}


async def projects_of(tx: Transaction, owner: str, limit: int) -> list[str]:
    """Return the projects of an owner's last leases, by name."""
    rows = await tx.fetch(_PROJECTS, owner, RECENT_MAX, limit)
    return [row["project"] for row in rows]


async def page(tx: Transaction, feed: ChangeFeed, listing: Listing) -> LeasePage:
    """Return a page and the feed's position, of one snapshot if the transaction has one."""
    position = await feed.position(tx)
    sql, arguments = statement(listing)
    found = await tx.fetch(sql, *arguments)
    leases = [(row["created_ms"], stored_of(row)) for row in found]
    return page_of(leases, listing.limit, position.token())


def statement(listing: Listing) -> tuple[str, list[object]]:
    """Return the SQL of a page and its arguments; it asks for one lease more than the page holds.

    Several states are read one by one and merged: each has an index in the order of the list, all
    of them together have none.
    """
    conditions, arguments = _conditions(listing)
    arguments.append(listing.limit + 1)
    page_order = f"ORDER BY l.created_ms DESC, l.id DESC LIMIT ${len(arguments)}"
    if len(listing.states) < 2:
        conditions += [f"l.state = '{state.value}'" for state in listing.states]
        where = " AND ".join(conditions) or "true"
        return f"{SELECT_STORED} WHERE {where} {page_order}", arguments
    parts = []
    for state in sorted(listing.states, key=lambda state: state.value):
        where = " AND ".join([*conditions, f"l.state = '{state.value}'"])
        parts.append(f"(SELECT l.id FROM leases l WHERE {where} {page_order})")  # noqa: S608
    merged = " UNION ALL ".join(parts)
    return f"{SELECT_STORED} WHERE l.id IN ({merged}) {page_order}", arguments


def _conditions(listing: Listing) -> tuple[list[str], list[object]]:
    """Return the conditions but for states, with numbered parameters, and their values."""
    conditions: list[str] = []
    arguments: list[object] = []

    def require(text: str, *values: object) -> None:
        numbers = range(len(arguments) + 1, len(arguments) + len(values) + 1)
        conditions.append(text.format(*(f"${number}" for number in numbers)))
        arguments.extend(values)

    if listing.owners is not None:
        if len(listing.owners) == 1:
            require("l.owner = {}", next(iter(listing.owners)))
        else:
            require("l.owner = ANY ({})", sorted(listing.owners))
    if listing.administers is not None:
        own, projects = listing.administers.owner, sorted(listing.administers.projects)
        require("(l.owner = {} OR l.project = ANY ({}))", own, projects)
    if listing.scope.projects:
        require("l.project = ANY ({})", sorted(listing.scope.projects))
    if listing.scope.pools:
        require("l.pool = ANY ({})", sorted(listing.scope.pools))
    if listing.project:
        require("l.project = {}", listing.project)
    if listing.pool:
        require("l.pool = {}", listing.pool)
    if listing.created is not None:
        require(
            "l.created_ms >= {} AND l.created_ms < {}", listing.created.start, listing.created.end
        )
    if listing.labels:
        require("l.labels @> {}::jsonb AND l.labels <> '{{}}'", json.dumps(dict(listing.labels)))
    if listing.cursor is not None:
        require("(l.created_ms, l.id) < ({}, {})", *listing.cursor)
    return conditions, arguments
