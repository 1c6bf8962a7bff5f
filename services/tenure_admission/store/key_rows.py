"""API keys ⇄ rows, and ⇄ the bytes under which an answer about one is remembered for repeats."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from tenure_core.identity.api_keys import ApiKey
from tenure_core.identity.grants import Grant, Scope

COLUMNS: Final = (
    *("id", "caller", "roles", "read_only", "pools", "projects", "administers", "description"),
    *("secret_sha256", "created_ms", "creator", "expires_ms", "revoked_ms", "revoker"),
    "replaced_by",
)


def row_of(key: ApiKey) -> list[Any]:
    """Return the values of the columns."""
    grant = key.grant
    return [
        key.id,
        grant.caller,
        sorted(grant.roles),
        grant.scope.read_only,
        sorted(grant.scope.pools),
        sorted(grant.scope.projects),
        sorted(grant.administers),
        key.description,
        key.secret_sha256,
        key.created,
        key.creator,
        key.expires,
        key.revoked,
        key.revoker,
        key.replaced_by,
    ]


def key_of(row: Mapping[str, Any]) -> ApiKey:
    """Return the key of a row."""
    scope = Scope(row["read_only"], frozenset(row["pools"]), frozenset(row["projects"]))
    return ApiKey(
        id=row["id"],
        grant=Grant(row["caller"], frozenset(row["roles"]), scope, frozenset(row["administers"])),
        secret_sha256=bytes(row["secret_sha256"]),
        created=row["created_ms"],
        creator=row["creator"],
        description=row["description"],
        expires=row["expires_ms"],
        revoked=row["revoked_ms"],
        revoker=row["revoker"],
        replaced_by=row["replaced_by"],
    )


def bytes_of(key: ApiKey) -> bytes:
    """Return a key as bytes, without anything of its secret."""
    row = dict(zip(COLUMNS, row_of(key), strict=True))
    return json.dumps(row | {"secret_sha256": ""}, separators=(",", ":")).encode()


def key_in(answer: bytes) -> ApiKey:
    """Return the key in the bytes."""
    row = json.loads(answer)
    return key_of(row | {"secret_sha256": b""})
