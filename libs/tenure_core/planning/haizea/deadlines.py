"""Leases with a deadline: booked to end by it, re-sorting what has not begun where that helps."""

from __future__ import annotations

from collections.abc import Sequence

from tenure_core.planning.haizea.entries import Entry, EntryState, HaizeaLease, Kind, State
from tenure_core.planning.haizea.mapper import map_lease
from tenure_core.planning.haizea.placing import HaizeaWorld, build_run, end_instants
from tenure_core.planning.haizea.timing import resume_estimate, shutdown_time
from tenure_core.planning.haizea.yielding import place_with_yielding


def book_deadline(world: HaizeaWorld, lease: HaizeaLease) -> State | None:
    """Book the lease between its start and its deadline; return its end when that fails."""
    assert lease.start is not None and lease.deadline is not None
    earliest = max(lease.start, world.now)
    run = None
    if lease.deadline - lease.start <= 2 * lease.duration:
        run = _place_at(world, lease, earliest)
    if run is None:
        run = _place(world, lease, earliest, lease.deadline)
    if run is None and not _resort(world, lease, earliest):
        return State.REJECTED
    if not world.prices.offer(lease):
        if lease.runs:
            _lift(world, lease, lease.runs)
        return State.REJECTED_BY_USER
    if run is not None:
        _insert(world, lease, [run])
    return None


def advance_deadlines(world: HaizeaWorld, freed_until: int, node_seconds: int) -> None:
    """Move booked deadline leases into what an early end freed, least slack first."""
    waiting = [
        lease
        for lease in _booked(world, world.now)
        if lease.start is not None
        and not lease.last_run.before
        and lease.last_run.start > max(lease.start, world.now)
    ]
    for lease in sorted(waiting, key=lambda lease: (_slack(lease, world.now), lease.id)):
        needed = lease.remaining * lease.count
        if needed > node_seconds:
            continue
        assert lease.start is not None
        old = _lift(world, lease, [lease.last_run])
        run = _place(world, lease, max(lease.start, world.now), freed_until)
        _insert(world, lease, old if run is None else [run])
        if run is not None:
            node_seconds -= needed


def _place_at(world: HaizeaWorld, lease: HaizeaLease, start: int) -> Entry | None:
    """Return a run at exactly `start`, for which others may have given way."""
    end = start + lease.remaining + shutdown_time(world.rules, lease)
    mapping = map_lease(world.table, world.rules, lease, start, end)
    if mapping is not None:
        return build_run(world, lease, start, end, mapping.nodes, suspended=False)
    return place_with_yielding(world, lease, start) if world.rules.deadlines_yield else None


def _place(
    world: HaizeaWorld,
    lease: HaizeaLease,
    earliest: int,
    deadline: int,
    instead_of: Sequence[Entry] = (),
) -> Entry | None:
    """Return the first run in one piece that ends by the deadline.

    It stands for the booked runs `instead_of`: it resumes when the first of them does, and is as
    long as all together.
    """
    rules = world.rules
    resumes = bool(instead_of) and bool(instead_of[0].before)
    owed = sum(run.end - run.start for run in instead_of) or lease.remaining
    length = owed + shutdown_time(rules, lease)
    length += resume_estimate(rules, lease) if resumes else 0
    for start in [earliest, *end_instants(world.table, earliest)]:
        if start + length > deadline:
            continue
        mapping = map_lease(world.table, rules, lease, start, start + length)
        if mapping is not None:
            return build_run(
                world, lease, start, mapping.end, mapping.nodes, suspended=resumes, owed=owed
            )
    return None


def _resort(world: HaizeaWorld, lease: HaizeaLease, earliest: int) -> bool:
    """Lift all that ends after `earliest` and has not begun, and book it anew, least slack first.

    Once the new lease is booked, what would have been under way at `earliest` goes back if nothing
    is newly booked on its nodes; and all the rest goes back as soon as none of it begins before
    what was newly booked ends. Any lease that finds no place leaves everything as it was.
    """
    others = _booked(world, earliest)
    old = {other.id: _lift(world, other, _ahead(other, earliest)) for other in others}
    order = sorted([*others, lease], key=lambda one: (_slack(one, earliest), one.id))
    anew: list[HaizeaLease] = []
    kept: list[HaizeaLease] = []
    while order:
        one = order.pop(0)
        assert one.start is not None and one.deadline is not None
        run = _place(world, one, max(one.start, earliest), one.deadline, old.get(one.id, ()))
        if run is None:
            for before in [*anew, *kept]:
                _lift(world, before, _ahead(before, earliest))
            for other in others:
                _insert(world, other, old[other.id])
            return False
        _insert(world, one, [run])
        anew.append(one)
        back: list[HaizeaLease] = []
        if one is lease:
            back = [other for other in order if _undisturbed(old[other.id], anew, earliest)]
        if lease in anew:
            rest = [other for other in order if other not in back]
            over = max(done.last_run.after[-1].end for done in anew)
            back += rest if all(_begins(old[other.id][0]) >= over for other in rest) else []
        for other in back:
            _insert(world, other, old[other.id])
            kept.append(other)
            order.remove(other)
    return True


def _begins(run: Entry) -> int:
    return run.before[0].start if run.before else run.start


def _undisturbed(runs: list[Entry], anew: list[HaizeaLease], earliest: int) -> bool:
    """Say whether the runs would be under way at `earliest`, on nodes of their own."""
    taken = {number for lease in anew for number in lease.last_run.nodes}
    return _begins(runs[0]) < earliest and all(taken.isdisjoint(run.nodes) for run in runs)


def _slack(lease: HaizeaLease, earliest: int) -> float:
    assert lease.deadline is not None
    return (lease.deadline - earliest) / lease.remaining


def _booked(world: HaizeaWorld, earliest: int) -> list[HaizeaLease]:
    return [
        lease
        for lease in sorted(world.leases.values(), key=lambda lease: lease.id)
        if lease.kind is Kind.DEADLINE and _ahead(lease, earliest)
    ]


def _ahead(lease: HaizeaLease, earliest: int) -> list[Entry]:
    """Return the runs that have not begun and are not over at `earliest`."""
    return [
        run
        for run in lease.runs
        if run.state is EntryState.SCHEDULED and run.after[-1].end > earliest
    ]


def _lift(world: HaizeaWorld, lease: HaizeaLease, runs: list[Entry]) -> list[Entry]:
    lifted = list(runs)
    for run in lifted:
        lease.runs.remove(run)
        for entry in [*run.before, run, *run.after]:
            world.table.remove(entry)
    return lifted


def _insert(world: HaizeaWorld, lease: HaizeaLease, runs: list[Entry]) -> None:
    lease.runs += runs
    if lease.state is State.PENDING:
        lease.state = State.READY
    for run in runs:
        for entry in [*run.before, run, *run.after]:
            world.table.add(entry)
