"""One scheduling pass by the ancestor's rules, and what becomes of leases that must give way."""

from __future__ import annotations

from tenure_core.planning.haizea.deadlines import advance_deadlines, book_deadline
from tenure_core.planning.haizea.entries import (
    Entry,
    EntryKind,
    EntryState,
    HaizeaLease,
    Kind,
    State,
)
from tenure_core.planning.haizea.lifecycle import (
    end_entry,
    enqueue,
    record_move,
    record_run,
    record_transfer,
)
from tenure_core.planning.haizea.migrating import migration_estimate, migrations
from tenure_core.planning.haizea.placing import (
    HaizeaWorld,
    Placing,
    place_as_soon_as_possible,
    place_exactly,
    suspend_at,
)
from tenure_core.planning.haizea.preparing import Earliest
from tenure_core.planning.haizea.settings import Suspension
from tenure_core.planning.haizea.timing import (
    CPU,
    resume_estimate,
    suspend_estimate,
    threshold,
)
from tenure_core.policies.bundle import Migration


def schedule_pass(world: HaizeaWorld) -> None:
    """Queue what is new, place leases that name a time, then walk the queue."""
    for lease in _arranged(world, State.PENDING):
        if lease.kind is Kind.BEST_EFFORT:
            lease.state = State.QUEUED
            world.queue.append(lease)
    pending = _arranged(world, State.PENDING)
    if world.rules.first_release:
        pending.sort(key=lambda lease: lease.kind is not Kind.IMMEDIATE)
    for lease in pending:
        _place_now_or_reject(world, lease)
    _walk_queue(world)


def reschedule_futures(world: HaizeaWorld) -> None:
    """Lift every best-effort lease that is booked ahead and place it anew, after an early end."""
    states = {State.READY, State.SCHEDULED, State.SUSPENDED_SCHEDULED}
    ahead = [
        lease
        for lease in world.leases.values()
        if lease.id in world.futures and lease.state in states
    ]
    for lease in world.arrangement.lifted(ahead):
        withdraw(world, lease)
        if lease.state is State.SUSPENDED_QUEUED:
            lease.state = State.SUSPENDED_PENDING
        if not _place_queued(world, lease):
            if lease.state is State.SUSPENDED_PENDING:
                lease.state = State.SUSPENDED_QUEUED
            enqueue(world, lease)


def withdraw(world: HaizeaWorld, lease: HaizeaLease) -> None:
    """Take the last run of a lease out of the table; it is queued again."""
    run = lease.last_run
    for entry in [*run.before, run, *run.after]:
        world.table.remove(entry)
    # Release 1.0 leaves the moves booked.
    for move in [] if world.rules.first_release else _moves(world, lease):
        world.table.remove(move)
        if move.state is EntryState.ACTIVE:
            record_move(move, None)
    lease.runs.pop()
    world.futures.discard(lease.id)
    if run.state is EntryState.ACTIVE:
        record_run(lease, run, world.now, cancelled=True)
    resumes = lease.state is State.SUSPENDED_SCHEDULED
    lease.state = State.SUSPENDED_QUEUED if resumes else State.QUEUED
    if not resumes:
        lease.homes = {}
        for transfer in world.images.cancel(lease):
            world.table.remove(transfer)
            if transfer.state is EntryState.ACTIVE:
                record_transfer(transfer, None)
        world.images.released(lease)


def _moves(world: HaizeaWorld, lease: HaizeaLease) -> list[Entry]:
    kinds = (EntryKind.MIGRATE_DISK, EntryKind.MIGRATE_MEMORY)
    return [entry for entry in world.table if entry.lease is lease and entry.kind in kinds]


def _arranged(world: HaizeaWorld, state: State) -> list[HaizeaLease]:
    return world.arrangement.arrived(
        [lease for lease in world.leases.values() if lease.state is state]
    )


def _place_now_or_reject(world: HaizeaWorld, lease: HaizeaLease) -> None:
    if lease.kind is Kind.DEADLINE:
        refused = book_deadline(world, lease)
        if refused is not None:
            world.finish(lease, refused)
        return
    transfers: list[Entry] | None = []
    if lease.kind is Kind.ADVANCE:
        assert lease.start is not None
        placing = place_exactly(world, lease, lease.start)
        if placing is not None:
            transfers = world.images.prepare_by(lease, placing.run, world.now)
    else:
        earliest = world.images.earliest(lease, world.table.nodes, world.now)
        placing = _place(world, lease, earliest, promise=False)
        if placing is not None:
            transfers = world.images.prepare(lease, placing.run, earliest, world.now)
    if placing is None or transfers is None:
        world.finish(lease, State.REJECTED)
    elif world.prices.offer(lease, _surcharge_hours(world, placing)):
        _book(world, lease, placing, transfers)
    else:
        world.images.cancel(lease)
        world.finish(lease, State.REJECTED_BY_USER)


def _surcharge_hours(world: HaizeaWorld, placing: Placing) -> float:
    if world.rules.suspension is Suspension.NONE:
        return 0.0
    seconds = 0
    for number in placing.victims:
        victim = world.leases[number]
        both = suspend_estimate(world.rules, victim) + resume_estimate(world.rules, victim)
        seconds += both * victim.count
    return seconds / 3600


def _place(
    world: HaizeaWorld, lease: HaizeaLease, earliest: dict[int, Earliest], *, promise: bool
) -> Placing | None:
    instants = {number: found.at for number, found in earliest.items()}
    return place_as_soon_as_possible(world, lease, instants, promise=promise)


def _walk_queue(world: HaizeaWorld) -> None:
    waiting, world.queue = world.queue, []
    kept: list[HaizeaLease] = []
    while waiting:
        if not world.may_promise() and world.table.is_full(world.now, CPU):
            break
        lease = waiting.pop(0)
        if _place_queued(world, lease):
            continue
        kept.append(lease)
        if not world.rules.passing:
            break
    world.queue = kept + waiting


def _place_queued(world: HaizeaWorld, lease: HaizeaLease) -> bool:
    nodes, now, promise = world.table.nodes, world.now, world.may_promise()
    if lease.state in (State.SUSPENDED_QUEUED, State.SUSPENDED_PENDING):
        instants = dict.fromkeys(nodes, now + migration_estimate(world.rules, lease))
        placing = place_as_soon_as_possible(world, lease, instants, promise=promise)
        if placing is None:
            return False
        _book(world, lease, placing, [])
        return True
    earliest = world.images.earliest(lease, nodes, now)
    placing = _place(world, lease, earliest, promise=promise)
    if placing is None or not world.prices.offer(lease):
        return False
    transfers = world.images.prepare(lease, placing.run, earliest, now)
    _book(world, lease, placing, transfers)
    return True


def _book(world: HaizeaWorld, lease: HaizeaLease, placing: Placing, transfers: list[Entry]) -> None:
    run = placing.run
    for number in placing.victims:
        give_way(world, world.leases[number], run.start)
    resumes = lease.state in (State.SUSPENDED_QUEUED, State.SUSPENDED_PENDING)
    if resumes and world.rules.migration is not Migration.NO:
        arranged = world.arrangement.moved
        for entry in migrations(world.rules, lease, run.mapping, world.now, arranged):
            world.table.add(entry)
    for entry in [*transfers, *run.before, run, *run.after]:
        world.table.add(entry)
    lease.runs.append(run)
    if placing.promised:
        world.futures.add(lease.id)
    if resumes:
        lease.state = State.SUSPENDED_SCHEDULED
    else:
        lease.state = State.SCHEDULED if lease.transfers else State.READY


def give_way(world: HaizeaWorld, victim: HaizeaLease, at: int) -> None:
    """Suspend the victim so that its nodes are free at `at`, or cancel its run at once."""
    if may_suspend(world, victim, at):
        victim.events.append(("preempted", world.now, at, "suspend"))
        suspend_at(world, victim.last_run, at)
        return
    victim.events.append(("preempted", world.now, at, "cancel-requeue"))
    withdraw(world, victim)
    enqueue(world, victim)


def may_suspend(world: HaizeaWorld, victim: HaizeaLease, at: int) -> bool:
    """Say whether suspending the victim by `at` is allowed and worth while."""
    rules = world.rules
    run = victim.last_run
    if run.start >= at and run.state is EntryState.SCHEDULED:
        return False
    if rules.suspension is Suspension.NONE:
        return False
    if at - run.start < threshold(rules, victim, suspended=False):
        return False
    return rules.suspension is not Suspension.SERIAL_ONLY or victim.count == 1


def end_early(world: HaizeaWorld, lease: HaizeaLease) -> None:
    """End a lease whose work is done before its time, and place what is booked ahead anew."""
    run = lease.active_run
    assert run is not None, "only a lease that runs ends early"
    for entry in run.after:
        world.table.remove(entry)
    for later in lease.runs[lease.runs.index(run) + 1 :]:
        for entry in [*later.before, later, *later.after]:
            world.table.remove(entry)
    freed_until = run.end
    run.end = world.now
    end_entry(world, run)
    world.finish(lease, State.DONE)
    lease.end = world.now
    reschedule_futures(world)
    advance_deadlines(world, freed_until, (freed_until - world.now) * lease.count)
