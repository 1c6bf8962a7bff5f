"""The records of fleets in memory: the same promises as PostgreSQL's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tenure_autoscaler.records import (
    FleetBook,
    FleetMemory,
    GroupClaim,
    MachineRecord,
    cap_reached,
    machine_taken,
)
from tenure_autoscaler.store.fleet_rows import memory_of, memory_text, record_of, record_text
from tenure_autoscaler.store.memory import MemoryStore
from tenure_autoscaler.values import Decision
from tenure_core.errors import NotFound, Stale


class MemoryFleetStore:
    """Nothing awaits between reading and writing; values pass through their stored form."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._epochs: dict[str, int] = {}
        self._records: dict[str, str] = {}
        self._memories: dict[str, str] = {}
        store.has_fleet = self._has_fleet

    def _has_fleet(self, group: str) -> bool:
        records = [record_of(text) for text in self._records.values()]
        text = self._memories.get(group)
        offers = text is not None and bool(memory_of(text).offered)
        return offers or any(record.group == group and record.live for record in records)

    async def open_book(self, group: str) -> FleetBook:
        """See `FleetStore`."""
        records = await self.all_records()
        memory = self._memories.get(group)
        return FleetBook(
            tuple(record for record in records if record.group == group),
            FleetMemory() if memory is None else memory_of(memory),
            frozenset(record.machine for record in records if record.live),
        )

    async def all_records(self) -> list[MachineRecord]:
        """See `FleetStore`."""
        return [record_of(text) for _, text in sorted(self._records.items())]

    async def fence(self, claim: GroupClaim) -> None:
        """See `FleetStore`."""
        if claim.epoch < self._epochs.get(claim.group, 0):
            raise Stale("STALE_EPOCH", "Another leader acts for this group.", group=claim.group)
        self._epochs[claim.group] = claim.epoch

    async def write(
        self,
        claim: GroupClaim,
        records: Sequence[MachineRecord],
        memory: FleetMemory | None = None,
        decision: Decision | None = None,
    ) -> int:
        """See `FleetStore`."""
        await self.fence(claim)
        for record in records:
            stored = self._records.get(record.machine)
            known = None if stored is None else record_of(stored)
            if known is not None and known.live and known.group != record.group:
                raise machine_taken(record.machine)
        for record in records:
            self._records[record.machine] = record_text(record)
        if memory is not None:
            self._memories[claim.group] = memory_text(memory)
        return 0 if decision is None else self._store.keep_decision(decision)

    async def order(
        self,
        claim: GroupClaim,
        records: Sequence[MachineRecord],
        memory: FleetMemory,
        decision: Decision,
        *,
        besides: int,
    ) -> int:
        """See `FleetStore`."""
        await self.fence(claim)
        book = (await self.open_book(claim.group)).with_records(records)
        count = sum(record.live and record.role != "MASTER" for record in book.records) + besides
        try:
            most = (await self._store.get_group(claim.group)).size_max
        except NotFound:
            most = 0
        if any(record.waits_for_provider for record in records) and count > most:
            raise cap_reached(claim.group, most)
        return await self.write(claim, records, memory, decision)

    async def tell_results(
        self, claim: GroupClaim, number: int, results: Sequence[tuple[str, str]]
    ) -> None:
        """See `FleetStore`."""
        await self.fence(claim)
        told = self._store.decision(number)
        self._store.put_decision(replace(told, results=tuple(sorted(results))))
