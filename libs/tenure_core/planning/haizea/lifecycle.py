"""Starts and ends of entries: how a lease's state follows, and what is noted of it."""

from __future__ import annotations

from tenure_core.planning.haizea.entries import (
    Entry,
    EntryKind,
    EntryState,
    HaizeaLease,
    Kind,
    State,
)
from tenure_core.planning.haizea.placing import HaizeaWorld


def enqueue(world: HaizeaWorld, lease: HaizeaLease) -> None:
    """Put a lease back into the queue, which stays in the order of arrival."""
    world.queue.append(lease)
    world.queue.sort(key=lambda queued: queued.arrival)


def start_entry(world: HaizeaWorld, entry: Entry) -> None:
    """Carry out the start of an entry."""
    lease = entry.lease
    entry.state = EntryState.ACTIVE
    if entry.kind is EntryKind.RUN:
        if lease.first_start is None or (not lease.homes and not entry.before):
            lease.first_start = entry.start
        lease.state = State.ACTIVE
        world.futures.discard(lease.id)
    elif entry.kind is EntryKind.SUSPEND:
        lease.state = State.SUSPENDING
        for vnode in entry.vnodes:
            lease.homes[vnode] = lease.disks[vnode] = entry.mapping[vnode]
    elif entry.kind is EntryKind.RESUME:
        lease.state = State.RESUMING
    elif entry.kind is EntryKind.TRANSFER and lease.state is State.SCHEDULED:
        lease.state = State.PREPARING


def end_entry(world: HaizeaWorld, entry: Entry) -> None:
    """Carry out the end of an entry."""
    lease = entry.lease
    entry.state = EntryState.DONE
    world.table.remove(entry)
    run = entry.run
    if entry.kind is EntryKind.RUN:
        lease.ran += entry.end - entry.start
        record_run(lease, entry, entry.end)
    elif entry.kind is EntryKind.SUSPEND:
        lease.suspensions += 1
        lease.events.append(("suspend", entry.start, entry.end, entry.vnodes))
        if run is not None and entry is run.after[-1]:
            lease.state = State.SUSPENDED_PENDING
            if lease.kind is Kind.BEST_EFFORT:
                lease.state = State.SUSPENDED_QUEUED
                enqueue(world, lease)
            elif lease.kind is Kind.DEADLINE:
                lease.state = State.SUSPENDED_SCHEDULED
    elif entry.kind is EntryKind.RESUME:
        lease.resumptions += 1
        lease.events.append(("resume", entry.start, entry.end, entry.vnodes))
        if run is not None and entry is run.before[-1]:
            lease.state = State.RESUMED_READY
            lease.homes = {}
    elif entry.kind is EntryKind.TRANSFER:
        _end_transfer(world, entry)
    elif entry.kind in (EntryKind.MIGRATE_MEMORY, EntryKind.MIGRATE_DISK):
        record_move(entry, entry.end)
        if world.rules.first_release:
            return
        files = lease.disks if entry.kind is EntryKind.MIGRATE_DISK else lease.homes
        for vnode, (_, target) in entry.moves.items():
            files[vnode] = target
    elif entry.kind is EntryKind.SHUTDOWN:
        if entry.start < entry.end:
            lease.events.append(("shutdown", entry.start, entry.end))
        world.finish(lease, State.DONE)
        lease.end = entry.end


def _end_transfer(world: HaizeaWorld, transfer: Entry) -> None:
    record_transfer(transfer, transfer.end)
    users = {lease for pairs in transfer.targets.values() for lease, _ in pairs}
    ends: dict[int, int] = {}
    for number in users:
        user = world.leases.get(number)
        if user is None:
            continue
        if transfer in user.transfers:
            user.transfers.remove(transfer)
        if user.runs:
            ends[number] = user.last_run.end
        if not user.transfers and user.state in (State.PREPARING, State.SCHEDULED):
            user.state = State.READY
    world.images.arrived(transfer, ends)


def record_transfer(transfer: Entry, end: int | None) -> None:
    """Note a transfer with its lease; an open end is one that was dropped under way."""
    targets = {number: list(pairs) for number, pairs in transfer.targets.items()}
    transfer.lease.events.append(("transfer", transfer.start, end, transfer.image[0], targets))


def record_move(move: Entry, end: int | None) -> None:
    """Note a move of files; an open end is one that was dropped under way."""
    move.lease.events.append((move.kind.value, move.start, end, dict(move.moves)))


def record_run(lease: HaizeaLease, run: Entry, end: int | None, *, cancelled: bool = False) -> None:
    """Note a stretch that ran until `end`."""
    nodes = tuple(run.mapping[vnode] for vnode in sorted(run.mapping))
    lease.segments.append((run.start, end, nodes, cancelled))
