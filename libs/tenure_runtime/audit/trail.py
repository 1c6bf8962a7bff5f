"""Writes the audit trail: an entry in the transaction of its change, batches sealed by a loop.

Decides what is sealed together. As with change feeds, sequences become visible out of commit order:
a batch takes what lies after the batch before in the order (transaction id, sequence), below the
oldest transaction still running. So writers never wait, and none that commits late is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tenure_core.audit.entry import AuditedChange
from tenure_core.secrets import hide_in_text
from tenure_runtime.postgres.incarnation import HOME
from tenure_runtime.postgres.pool import Pool
from tenure_runtime.postgres.transaction import Transaction, run
from tenure_runtime.rpc.origin import current_origin
from tenure_runtime.telemetry import metrics
from tenure_runtime.telemetry.logging import get_logger

WRITING: Final = (
    "INSERT INTO audit_entries (caller, method, peer, request_id, resource, before, after)"
)
"""What a part of a statement begins with that writes entries by itself."""
BATCH_MAX: Final = 5_000
ROUNDS_MAX: Final = 20
# Any constant will do; it only must not be another's.
_LOCK: Final = 0xA0D17


def _field(column: str) -> str:
    return f"int4send(coalesce(octet_length({column}), -1)) || coalesce({column}, '')"


_TEXTS: Final = ("caller", "method", "resource", "peer", "request_id")
# `Entry.digest` and `Batch.recomputed` in SQL: what is sealed need not leave the database.
DIGEST: Final = (
    "sha256(int8send(tx) || int8send(sequence) || int8send(at_ms) || "
    + " || ".join(
        [
            *(_field(f"convert_to({text}, 'UTF8')") for text in _TEXTS),
            *map(_field, ("before", "after")),
        ]
    )
    + ")"
)
BATCH_HASH: Final = (
    "sha256(previous || int8send(number) || int8send(sealed_ms) || int8send(floor)"
    " || int8send(last_tx) || int8send(last_sequence) || places || digests)"
)
# 200 for what an entry takes beside these: its header, its indexes, its place in a batch.
_BYTES: Final = "200 + " + " + ".join(
    f"coalesce(octet_length({field}), 0)" for field in ("before", "after", *_TEXTS)
)
_SEAL: Final = """
WITH taken AS MATERIALIZED (
    SELECT tx, sequence, {digest} AS digest, {bytes} AS bytes
    FROM audit_entries WHERE {which} ORDER BY tx, sequence LIMIT {limit}
), listed AS (
    SELECT coalesce(array_agg(sequence ORDER BY sequence), '{{}}') AS sequences,
           coalesce(string_agg(int8send(sequence), '' ORDER BY sequence), '') AS places,
           coalesce(string_agg(digest, '' ORDER BY sequence), '') AS digests,
           coalesce(sum(bytes), 0) AS bytes
    FROM taken
), last AS (
    SELECT tx, sequence FROM taken ORDER BY tx DESC, sequence DESC LIMIT 1
), made AS (
    SELECT $1::bigint AS number, $2::bytea AS previous,
           (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS sealed_ms,
           {floor} AS floor, {last_tx} AS last_tx, {last_sequence} AS last_sequence,
           sequences, places, digests, bytes
    FROM listed LEFT JOIN last ON true WHERE {made_when}
), counted AS (
    UPDATE audit_kept SET bytes = audit_kept.bytes + made.bytes FROM made
)
INSERT INTO audit_batches (number, previous, sealed_ms, floor, last_tx, last_sequence, sequences,
                           digests, bytes, home, hash)
SELECT number, previous, sealed_ms, floor, last_tx, last_sequence, sequences, digests, bytes, $3,
       {hash}
FROM made RETURNING number, hash, cardinality(sequences) AS count
"""
_SEAL_NEXT: Final = _SEAL.format(
    digest=DIGEST,
    bytes=_BYTES,
    hash=BATCH_HASH,
    which="(tx, sequence) > ($5, $6) AND sequence > $4"
    " AND tx < pg_snapshot_xmin(pg_current_snapshot())::text::bigint",
    limit="$7",
    floor="$4::bigint",
    last_tx="tx",
    last_sequence="sequence",
    made_when="sequence IS NOT NULL",
)
# Whatever no batch lists: all transactions that wrote it have ended, by the lock.
_SEAL_REST: Final = _SEAL.format(
    digest=DIGEST,
    bytes=_BYTES,
    hash=BATCH_HASH,
    which="sequence NOT IN (SELECT unnest(sequences) FROM audit_batches)",
    limit="ALL",
    floor="coalesce((SELECT max(sequence) FROM audit_entries), 0)",
    last_tx="0",
    last_sequence="0",
    made_when="true",
)


async def write(tx: Transaction, changes: Sequence[AuditedChange]) -> None:
    """Write an entry for each change that the call being served makes, in its transaction.

    Keys and passwords of addresses are hidden in what is text; hide before what is not.
    """
    if not changes:
        return
    origin = current_origin()
    await tx.execute(
        f"{WRITING} SELECT $1, $2, $3, $4, * FROM unnest($5::text[], $6::bytea[], $7::bytea[])",  # noqa: S608
        origin.caller,
        origin.method,
        origin.peer,
        origin.request_id,
        [change.resource for change in changes],
        [change.before for change in changes],
        [change.after for change in changes],
    )


def json_change(resource: str, before: bytes | None, after: bytes | None) -> AuditedChange:
    """Return a change of a resource that is encoded as JSON, with secrets in its texts hidden."""

    def shown(body: bytes | None) -> bytes | None:
        return None if body is None else hide_in_text(body.decode()).encode()

    return AuditedChange(resource, shown(before), shown(after))


@dataclass(frozen=True, slots=True)
class _Last:
    number: int
    hash: bytes
    floor: int
    tx: int
    sequence: int
    home: str


class Sealer:
    """Seals what was written. Several replicas may run one each: one of them works at a time."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def run_once(self) -> int:
        """Seal what is settled, at most 100,000 entries; return how many."""
        total = 0
        for _ in range(ROUNDS_MAX):
            count = await run(self._pool, _seal)
            total += count
            if count < BATCH_MAX:
                break
        return total


async def alone(tx: Transaction) -> bool:
    """Say whether this transaction is now the only one, of all replicas, that alters the chain."""
    alone_: bool = await tx.fetchval(
        "SELECT pg_try_advisory_xact_lock($1, hashtext(current_schema()))", _LOCK
    )
    return alone_


async def _seal(tx: Transaction) -> int:
    if not await alone(tx):
        return 0
    home = await tx.fetchval(HOME)
    last = await _last(tx)
    if last is None or last.home != home:
        # A chain's first batch lists what is there (nothing, as a rule). After a restore ids of
        # transactions begin anew: what was not sealed by then is sealed once no writer is left.
        await tx.execute("LOCK TABLE audit_entries IN EXCLUSIVE MODE")
        number, previous = (0, b"") if last is None else (last.number + 1, last.hash)
        row = await tx.fetchrow(_SEAL_REST, number, previous, home)
    else:
        place = (last.floor, last.tx, last.sequence)
        row = await tx.fetchrow(_SEAL_NEXT, last.number + 1, last.hash, home, *place, BATCH_MAX)
    if row is None:
        return 0
    count: int = row["count"]
    tx.after_commit(lambda: _tell(row["number"], row["hash"], count))
    return count


async def _last(tx: Transaction) -> _Last | None:
    row = await tx.fetchrow(
        "SELECT number, hash, floor, last_tx, last_sequence, home FROM audit_batches"
        " ORDER BY number DESC LIMIT 1"
    )
    return None if row is None else _Last(*row)


def _tell(number: int, digest: bytes, count: int) -> None:
    metrics.AUDIT_SEALED.add(count)
    # The log goes elsewhere: a chain that is rewritten as a whole no longer fits it.
    get_logger().info("audit.sealed", batch=number, hash=digest.hex(), entries=count)
