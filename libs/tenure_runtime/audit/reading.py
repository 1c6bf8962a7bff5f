"""Reads the audit trail: pages of entries, and the chain recomputed stretch by stretch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from tenure_core.audit.chain import Batch, Breach, Noted, breaches_of_batch, inserted
from tenure_core.audit.entry import AuditedChange, Entry, Origin
from tenure_core.timebase import Interval
from tenure_runtime.postgres.pool import Pool
from tenure_runtime.postgres.transaction import Record, Transaction, run

BREACHES_MAX: Final = 100
_BATCHES_AT_ONCE: Final = 10
_INSERTED_AT_ONCE: Final = 100_000


@dataclass(frozen=True, slots=True)
class EntryFilter:
    """Which entries to list; empty strings and None match all.

    A `resource` that ends in `/` stands for all of that kind; `before` is a sequence, 0 for none.
    """

    caller: str = ""
    resource: str = ""
    method: str = ""
    written: Interval | None = None
    before: int = 0


@dataclass(frozen=True, slots=True)
class Place:
    """Where a verification stands: the last batch, its hash, the last entry looked at."""

    number: int
    hash: bytes
    sequence: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """What a stretch of the chain was found to be; `place` is None where there is no batch.

    `unsealed` is None before the end of the chain; `dropped` entries were dropped by retention.
    """

    breaches: tuple[Breach, ...]
    place: Place | None
    sealed: int
    unsealed: int | None
    dropped: int


class TrailReader:
    """The trail in the schema of a pool."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def entries(self, wanted: EntryFilter, limit: int) -> list[Entry]:
        """Return entries, newest first."""
        conditions, values = ["true"], list[object]()
        for condition, value in _conditions(wanted):
            values.append(value)
            conditions.append(condition.format(f"${len(values)}"))
        statement = (
            f"SELECT * FROM audit_entries WHERE {' AND '.join(conditions)}"  # noqa: S608 - ours
            f" ORDER BY sequence DESC LIMIT ${len(values) + 1}"
        )

        async def use_case(tx: Transaction) -> list[Entry]:
            return [_entry_of(row) for row in await tx.fetch(statement, *values, limit)]

        return await run(self._pool, use_case, readonly=True)

    async def verify(self, after: Place | None, noted: Noted | None = None) -> Stretch:
        """Recompute the stretch of the chain after a place, at most 50,000 entries of it.

        The memory it takes does not depend on the length of the trail.
        """

        async def use_case(tx: Transaction) -> Stretch:
            return await _verify(tx, after, noted)

        return await run(self._pool, use_case, isolation="repeatable_read", readonly=True)


def _conditions(wanted: EntryFilter) -> Iterator[tuple[str, object]]:
    if wanted.caller:
        yield "caller = {}", wanted.caller
    if wanted.method:
        yield "method = {}", wanted.method
    if wanted.resource:
        whole = not wanted.resource.endswith("/")
        yield "resource = {}" if whole else "starts_with(resource, {})", wanted.resource
    if wanted.written is not None:
        yield "at_ms >= {}", wanted.written.start
        yield "at_ms < {}", wanted.written.end
    if wanted.before:
        yield "sequence < {}", wanted.before


async def _verify(tx: Transaction, after: Place | None, noted: Noted | None) -> Stretch:
    kept = await tx.fetchrow("SELECT number, hash, entries FROM audit_kept")
    assert kept is not None, "a migration makes it"
    before = (after.number, after.hash) if after else None
    breaches: list[Breach] = []
    # What was dropped verified then; the chain goes on from its last batch.
    if kept["number"] > (before[0] if before else -1):
        before = (kept["number"], kept["hash"])
        breaches += _known(noted.breach_of_hash(*before) if noted else None)
    rows = await tx.fetch(
        "SELECT * FROM audit_batches WHERE number > $1 ORDER BY number LIMIT $2",
        before[0] if before else -1,
        _BATCHES_AT_ONCE + 1,
    )
    batches = [_batch_of(row) for row in rows[:_BATCHES_AT_ONCE]]
    ended = len(rows) <= _BATCHES_AT_ONCE
    for batch in batches:
        found = await tx.fetch(
            "SELECT * FROM audit_entries WHERE sequence = ANY ($1)", list(batch.sequences)
        )
        entries = {row["sequence"]: _entry_of(row) for row in found}
        room = BREACHES_MAX - len(breaches)
        breaches += islice(breaches_of_batch(before, batch, entries), room)
        breaches += _known(
            noted.breach_of_hash(batch.number, batch.recomputed()) if noted else None
        )
        before = (batch.number, batch.recomputed())
    last = await tx.fetchrow("SELECT * FROM audit_batches ORDER BY number DESC LIMIT 1")
    sequence, unsealed = after.sequence if after else 0, 0
    if last is not None:
        listed = [max(batch.sequences) for batch in batches if batch.sequences]
        upto = None if ended else max([sequence, *listed])
        more, sequence, unsealed = await _inserted(tx, _batch_of(last), sequence, upto)
        breaches += more[: BREACHES_MAX - len(breaches)]
    if ended and noted is not None:
        breaches += _known(noted.breach_at_end(before[0] if before else -1))
    return Stretch(
        tuple(sorted(breaches, key=lambda breach: (breach.batch == 0, breach.batch))),
        None if before is None else Place(*before, sequence),
        sum(len(batch.sequences) for batch in batches),
        unsealed if ended else None,
        kept["entries"],
    )


def _known(breach: Breach | None) -> list[Breach]:
    return [] if breach is None else [breach]


async def _inserted(
    tx: Transaction, last: Batch, after: int, upto: int | None
) -> tuple[list[Breach], int, int]:
    """Look for inserted entries among those with a sequence in (after, upto], in portions.

    Return them (at most `BREACHES_MAX`), the last sequence looked at, and how many wait.
    """
    breaches: list[Breach] = []
    waiting = 0
    while True:
        rows = await tx.fetch(
            "SELECT tx, sequence FROM audit_entries WHERE sequence > $1"
            " AND ($2::bigint IS NULL OR sequence <= $2) ORDER BY sequence LIMIT $3",
            after,
            upto,
            _INSERTED_AT_ONCE,
        )
        if not rows:
            return breaches, after if upto is None else upto, waiting
        sealed = {
            row["sequence"]
            for row in await tx.fetch(
                "SELECT unnest(sequences) AS sequence FROM audit_batches"
                " WHERE sequence_max >= $1 AND sequence_min <= $2",
                rows[0]["sequence"],
                rows[-1]["sequence"],
            )
        }
        found = [(row["tx"], row["sequence"]) for row in rows]
        breaches += islice(inserted(found, sealed, last), BREACHES_MAX - len(breaches))
        waiting += sum(s not in sealed and last.waits(t, s) for t, s in found)
        after = rows[-1]["sequence"]


def _entry_of(row: Record) -> Entry:
    return Entry(
        row["tx"],
        row["sequence"],
        row["at_ms"],
        Origin(row["caller"], row["method"], row["peer"], row["request_id"]),
        AuditedChange(row["resource"], row["before"], row["after"]),
    )


def _batch_of(row: Record) -> Batch:
    return Batch(
        row["number"],
        row["previous"],
        row["sealed_ms"],
        row["floor"],
        row["last_tx"],
        row["last_sequence"],
        tuple(row["sequences"]),
        row["digests"],
        row["hash"],
    )
