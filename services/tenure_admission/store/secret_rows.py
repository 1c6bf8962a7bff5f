"""Rows of the table `lease_secrets`: written with a lease, removed with its end."""

from __future__ import annotations

from collections.abc import Sequence

from tenure_admission.records import Draft
from tenure_core.secrets import Encrypted
from tenure_runtime.postgres.transaction import Transaction


async def add(tx: Transaction, drafts: Sequence[Draft]) -> None:
    """Store the secrets of new leases; most have none."""
    kept = [(draft.id, draft.secrets) for draft in drafts if draft.secrets is not None]
    if kept:
        await tx.execute(
            "INSERT INTO lease_secrets SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[])",
            [lease_id for lease_id, _ in kept],
            [secrets.key_id for _, secrets in kept],
            [secrets.content for _, secrets in kept],
        )


async def get(tx: Transaction, lease_id: str) -> Encrypted | None:
    """Return a lease's secrets, None when none are kept."""
    row = await tx.fetchrow(
        "SELECT key_id, content FROM lease_secrets WHERE lease_id = $1", lease_id
    )
    return None if row is None else Encrypted(row["key_id"], bytes(row["content"]))


async def remove(tx: Transaction, lease_ids: Sequence[str]) -> None:
    """Remove the secrets of leases that ended."""
    if lease_ids:
        await tx.execute("DELETE FROM lease_secrets WHERE lease_id = ANY ($1)", list(lease_ids))
