"""Request ids: a repeat of a request does nothing more than the first, and gets its answer.

Decides how a request is remembered: (caller, request id) with a hash of the request and the bytes
of the answer, in the same transaction as the effect. Two at once: the second waits for the first's
transaction. What is remembered of a request without an id is nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tenure_core.errors import Invalid, Violation
from tenure_core.timebase import DAY_MS, Millis
from tenure_runtime.postgres.transaction import Transaction

RETENTION_MS: Final[Millis] = 7 * DAY_MS
REQUEST_ID_LENGTH_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class RequestKey:
    """One request as its caller names it. `request` are its bytes, serialized deterministically.

    `method` keeps calls apart whose requests have the same bytes.
    """

    caller: str
    request_id: str
    request: bytes
    method: str = ""

    @property
    def digest(self) -> bytes:
        """Return the SHA-256 of the method and the request."""
        return hashlib.sha256(self.method.encode() + b"\0" + self.request).digest()


async def once(tx: Transaction, key: RequestKey, effect: Callable[[], Awaitable[bytes]]) -> bytes:
    """Run `effect` unless the request was answered before; return the (first) answer's bytes.

    Raises Invalid REQUEST_ID_REUSED when the id came with other content. An effect that raises
    leaves no trace, provided that the transaction is rolled back.
    """
    if not key.request_id:
        return await effect()
    [claim] = await claim_many(tx, [key])
    if isinstance(claim, bytes):
        return claim
    if isinstance(claim, Invalid):
        raise claim
    answer = await effect()
    await record_many(tx, [(key, answer)])
    return answer


async def claim_many(
    tx: Transaction, keys: Sequence[RequestKey], answers: Sequence[bytes] | None = None
) -> list[bytes | Invalid | None]:
    """Claim distinct requests at once: None where it is the first, the answer where a repeat.

    Where the id came with other content the element is the error. Every None must be followed by
    `record_many` in the same transaction; with `answers` the claims are stored with theirs at once,
    and only those that come to nothing must be followed by `forget_many`. Locks are taken in key
    order, so that batches cannot deadlock one another.
    """
    assert answers is None or len(answers) == len(keys), "an answer for each key"
    order = sorted(range(len(keys)), key=lambda i: (keys[i].caller, keys[i].request_id))
    names = [(keys[i].caller, keys[i].request_id) for i in order]
    assert len(set(names)) == len(names), "a batch holds each request once"
    callers, ids = [name[0] for name in names], [name[1] for name in names]
    first = {
        (row["caller"], row["request_id"])
        for row in await tx.fetch(
            "INSERT INTO requests (caller, request_id, request_hash, response)"
            " SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[], $4::bytea[])"
            " ON CONFLICT DO NOTHING RETURNING caller, request_id",
            callers,
            ids,
            [keys[i].digest for i in order],
            [None if answers is None else answers[i] for i in order],
        )
    }
    if len(first) == len(keys):
        return [None] * len(keys)
    known = {
        (row["caller"], row["request_id"]): row
        for row in await tx.fetch(
            "SELECT caller, request_id, request_hash, response FROM requests"
            " WHERE (caller, request_id) IN (SELECT * FROM unnest($1::text[], $2::text[]))",
            callers,
            ids,
        )
    }
    claims: list[bytes | Invalid | None] = []
    for key in keys:
        name = (key.caller, key.request_id)
        if name in first:
            claims.append(None)
        elif known[name]["request_hash"] != key.digest:
            claims.append(_reused(key))
        else:
            response = known[name]["response"]
            assert response is not None, "a claim is committed with its answer"
            claims.append(bytes(response))
    return claims


async def record_many(tx: Transaction, answers: Sequence[tuple[RequestKey, bytes]]) -> None:
    """Store the answers of requests claimed in this transaction."""
    await tx.execute(
        "UPDATE requests SET response = given.response"
        " FROM unnest($1::text[], $2::text[], $3::bytea[]) AS given (caller, request_id, response)"
        " WHERE requests.caller = given.caller AND requests.request_id = given.request_id",
        [key.caller for key, _ in answers],
        [key.request_id for key, _ in answers],
        [answer for _, answer in answers],
    )


async def forget_many(tx: Transaction, keys: Sequence[RequestKey]) -> None:
    """Give up claims of this transaction whose effect was refused, so that a repeat tries anew."""
    await tx.execute(
        "DELETE FROM requests WHERE (caller, request_id) IN"
        " (SELECT * FROM unnest($1::text[], $2::text[]))",
        [key.caller for key in keys],
        [key.request_id for key in keys],
    )


async def forget_old(tx: Transaction, retention_ms: Millis = RETENTION_MS) -> int:
    """Forget requests older than the retention, at most 10,000 at a time; return how many."""
    tag = await tx.execute(
        "DELETE FROM requests WHERE ctid = ANY (ARRAY("
        " SELECT ctid FROM requests"
        " WHERE created_at < clock_timestamp() - $1 * interval '1 millisecond' LIMIT 10000))",
        retention_ms,
    )
    return int(tag.rpartition(" ")[2])


def _reused(key: RequestKey) -> Invalid:
    return Invalid(
        [
            Violation(
                "request_id",
                "REQUEST_ID_REUSED",
                f"{key.request_id} was used for a request with other content",
            )
        ],
        "REQUEST_ID_REUSED",
    )
