"""What a complete listing and the registry change in a fleet's records. Pure.

Decides which records move on by what was seen, and which machines with our mark have no record.
What to order is `fleet_view`'s and the core's; carrying it out is `executing`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from tenure_autoscaler.providers.port import ProvidedMachine, ProviderListing
from tenure_autoscaler.records import FleetBook, FleetMemory, MachineRecord
from tenure_autoscaler.values import MachineState, SeenAgent
from tenure_core.autoscaling.lead_times import Measured
from tenure_core.autoscaling.reconciliation import (
    Difference,
    Finding,
    Grace,
    SeenMachine,
    reconcile,
)
from tenure_core.timebase import Millis

PRESENT: Final = frozenset({MachineState.RUNNING, MachineState.DRAINING})


@dataclass(frozen=True, slots=True)
class Reckoning:
    """The book as it is now, which records changed, and what the provider has besides.

    `strays` are machines with our mark to be removed: duplicates, and orphans of which nothing is
    written and for which the grace is over. `besides` counts all of ours without a record,
    `foreign` those of others.
    """

    book: FleetBook
    changed: tuple[MachineRecord, ...]
    strays: tuple[ProvidedMachine, ...]
    besides: int
    foreign: int


def take_in(
    book: FleetBook,
    listing: ProviderListing,
    sights: Mapping[str, SeenAgent],
    busy: frozenset[str],
    *,
    owner: str,
    now_ms: Millis,
    grace: Grace,
) -> Reckoning:
    """Return what a complete listing, the agents and the active bookings (`busy`) say."""
    assert listing.complete
    listed = {machine.provider_id: machine for machine in listing.machines}
    tokens = {machine.token for machine in listing.machines if machine.owner == owner}
    live = {
        record.token: _revived(record, now_ms) if record.token in tokens else record
        for record in book.records
        if record.live or (record.token in tokens and record.machine not in book.taken)
    }
    before = {record.token: record for record in book.records}
    first_seen = {
        machine.provider_id: book.memory.first_seen.get(machine.provider_id, now_ms)
        for machine in listing.machines
        if machine.owner == owner and machine.token not in live
    }
    seen = [
        SeenMachine(m.provider_id, m.owner, m.token, first_seen.get(m.provider_id, now_ms))
        for m in listing.machines
    ]
    findings = reconcile(
        [record.wanted() for record in live.values()],
        seen, owner=owner, now_ms=now_ms, grace=grace,
    )  # fmt: skip
    boots = book.memory.boots
    now = dict(live)
    strays: list[ProvidedMachine] = []
    for found in findings:
        record = now.get(found.token)
        if record is None or found.difference is Difference.DUPLICATE:
            if found.overdue and found.difference in (Difference.ORPHAN, Difference.DUPLICATE):
                strays.append(listed[found.machine_id])
            continue
        after = _found(record, found, now_ms, grace)
        if after.state is MachineState.LOST and record.state is MachineState.BOOTING:
            boots = boots.after_failure()
        if found.difference is Difference.LINGERING and after.provider_id != found.machine_id:
            strays.append(listed[found.machine_id])
        now[found.token] = after
    for token, record in now.items():
        now[token], boots = _heard(record, sights.get(record.machine), busy, boots, now_ms)
    changed = tuple(record for token, record in now.items() if before[token] != record)
    memory = replace(book.memory, boots=boots, first_seen=first_seen)
    memory = _with_silence(memory, [record for record in now.values() if record.live], now_ms)
    after_all = replace(book.with_records(changed), memory=memory)
    foreign = sum(found.difference is Difference.FOREIGN for found in findings)
    duplicates = sum(found.difference is Difference.DUPLICATE for found in findings)
    return Reckoning(after_all, changed, tuple(strays), len(first_seen) + duplicates, foreign)


def _revived(record: MachineRecord, now_ms: Millis) -> MachineRecord:
    """Return the record of a machine that is listed although its record has ended.

    One that had vanished serves on; one that should never have come is emptied and removed.
    """
    if record.state is MachineState.LOST:
        return record.turned(MachineState.BOOTING, now_ms, "REAPPEARED")
    if record.state is MachineState.REMOVED:
        return replace(record, removed_ms=None).turned(MachineState.DRAINING, now_ms, "CAME_LATE")
    return record


def _found(record: MachineRecord, found: Finding, now_ms: Millis, grace: Grace) -> MachineRecord:
    match found.difference:
        case Difference.ADOPT:
            known = replace(record, provider_id=found.machine_id, retry_ms=0)
            return known.turned(MachineState.BOOTING, now_ms) if known.waits_for_provider else known
        case Difference.LINGERING:
            return record if record.provider_id else replace(record, provider_id=found.machine_id)
        case Difference.LOST if found.overdue:
            return record.turned(MachineState.LOST, now_ms, "VANISHED")
        case Difference.GONE:
            assert record.removed_ms is not None
            # What was never answered may still come into being; its token is kept for a while.
            if record.provider_id or now_ms - record.removed_ms > grace.orphan_ms:
                return record.turned(MachineState.REMOVED, now_ms)
    return record


def _heard(
    record: MachineRecord,
    sight: SeenAgent | None,
    busy: frozenset[str],
    boots: Measured,
    now_ms: Millis,
) -> tuple[MachineRecord, Measured]:
    """Return a record after a look at its agent, and the boot times with it."""
    if record.state not in (MachineState.BOOTING, MachineState.RUNNING):
        return record, boots
    here = sight is not None and sight.state in PRESENT and sight.incarnation != record.before
    if sight is None or not here:
        if record.state is MachineState.BOOTING or record.silent_since_ms is not None:
            return record, boots
        return replace(record, silent_since_ms=now_ms, idle_since_ms=None), boots
    if record.state is MachineState.BOOTING:
        boots = boots.after_success(max(0, now_ms - record.ordered_ms - record.launch_wait_ms))
        record = record.turned(MachineState.RUNNING, now_ms)
    works = record.machine in busy or sight.running > 0
    idle_since_ms = record.idle_since_ms if record.idle_since_ms is not None else now_ms
    return (
        replace(
            record,
            incarnation=sight.incarnation,
            silent_since_ms=None,
            idle_since_ms=None if works else idle_since_ms,
        ),
        boots,
    )


def _with_silence(memory: FleetMemory, records: list[MachineRecord], now_ms: Millis) -> FleetMemory:
    """Note since when a large share of those that served says nothing: the observer's fault."""
    served = [record for record in records if record.state is MachineState.RUNNING]
    silent = sum(record.silent_since_ms is not None for record in served)
    if silent < SILENT_MIN or silent * 1_000_000 <= len(served) * SILENT_SHARE_PPM:
        return replace(memory, silent_since_ms=None)
    since_ms = memory.silent_since_ms
    return replace(memory, silent_since_ms=now_ms if since_ms is None else since_ms)


SILENT_MIN: Final = 3
SILENT_SHARE_PPM: Final = 450_000
"""As for elastic groups (`tenure_core.autoscaling.group_config.SilencePolicy`)."""
