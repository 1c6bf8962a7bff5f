"""Seal a lease's secrets for the agents that are to run it."""

from __future__ import annotations

from collections.abc import Sequence

from tenure_admission.ports import SecretSealer, SecretStore


class Sealing:
    """Secrets on their way to agents."""

    def __init__(self, store: SecretStore, sealer: SecretSealer) -> None:
        self._store = store
        self._sealer = sealer

    async def seal(self, lease_id: str, sealing_keys: Sequence[bytes]) -> list[bytes]:
        """Return a lease's secrets, sealed for each key.

        Raises Invalid for what is no key, WrongState SECRETS_NOT_KEPT, SECRETS_UNREADABLE.
        """
        kept = await self._store.secrets_of(lease_id)
        return self._sealer.seal(kept, lease_id, list(sealing_keys))
