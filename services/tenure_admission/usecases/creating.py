"""Create leases: one by one, in commits shared with other callers, or many in one transaction."""

from __future__ import annotations

from tenure_admission.ports import BatchCreation, BatchOutcome, LeaseCreator
from tenure_admission.records import Creation


class Creating:
    """Creations; what is malformed has been refused before, what conflicts the store refuses."""

    def __init__(self, creator: LeaseCreator) -> None:
        self._creator = creator

    async def create(self, creation: Creation) -> bytes:
        """Store one lease and return it; see `LeaseCreator.create` for the errors."""
        return await self._creator.create(creation)

    async def create_batch(self, batch: BatchCreation) -> list[BatchOutcome]:
        """Store what can be stored of a batch and return an outcome for each item."""
        return await self._creator.create_batch(batch)
