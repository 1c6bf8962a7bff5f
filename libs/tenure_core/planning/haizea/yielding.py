"""Deadline leases that give way to one another, each only if it still meets its own deadline.

Victims are tried one by one, the one with the least slack first. Each is made to give way at once
and is booked anew after the preempting interval; one that finds no place there is left alone.
"""

from __future__ import annotations

from collections.abc import Callable

from tenure_core.planning.haizea.entries import Entry, EntryState, HaizeaLease, Kind, State
from tenure_core.planning.haizea.mapper import fill, map_lease, rank_nodes
from tenure_core.planning.haizea.placing import HaizeaWorld, build_run, end_instants, suspend_at
from tenure_core.planning.haizea.settings import Suspension
from tenure_core.planning.haizea.timing import (
    resume_estimate,
    shutdown_time,
    suspend_estimate,
    threshold,
)
from tenure_core.policies.bundle import Migration

_MAY_YIELD = (
    State.SCHEDULED,
    State.READY,
    State.ACTIVE,
    State.SUSPENDING,
    State.SUSPENDED_PENDING,
    State.SUSPENDED_SCHEDULED,
)


def place_with_yielding(world: HaizeaWorld, lease: HaizeaLease, start: int) -> Entry | None:
    """Return a run at exactly `start` for which deadline leases gave way, None with none moved.

    Nodes are taken in the order that they had before anybody gave way.
    """
    end = start + lease.remaining + shutdown_time(world.rules, lease)
    order = rank_nodes(world.table, world.rules, world.table.nodes, start, lease.duration)
    undo: list[Callable[[], None]] = []
    for victim in reversed(_victims(world, lease, start, end)):
        restore = _saved(world, victim)
        if not _give_way(world, victim, start, end):
            restore()
            continue
        undo.append(restore)
        nodes = fill(world.table, lease, order, start, end)
        if nodes is not None:
            _settle(world)
            return build_run(world, lease, start, end, nodes, suspended=False)
    for restore in reversed(undo):
        restore()
    return None


def _victims(world: HaizeaWorld, lease: HaizeaLease, start: int, end: int) -> list[HaizeaLease]:
    """Return the leases that may yield, most slack first."""
    rules = world.rules
    scored: list[tuple[float, int, HaizeaLease]] = []
    for victim in world.table.leases_between(start, end):
        if victim.kind is not Kind.DEADLINE or victim.state not in _MAY_YIELD:
            continue
        assert victim.deadline is not None
        delay = lease.remaining
        remaining = victim.duration
        if rules.suspension is not Suspension.NONE:
            delay += suspend_estimate(rules, victim) + resume_estimate(rules, victim)
            remaining = _remaining_at(victim, start)
        if remaining > 0 and start + delay + remaining < victim.deadline:
            score = (victim.deadline - start - delay) / remaining
            scored.append((-score, victim.id, victim))
    return [victim for _, _, victim in sorted(scored, key=lambda entry: entry[:2])]


def _remaining_at(victim: HaizeaLease, instant: int) -> int:
    """Return the run time that is owed at a later instant if all goes as booked."""
    done = victim.ran
    for run in victim.runs:
        if run.state is not EntryState.DONE:
            done += max(0, min(run.end, instant) - run.start)
    return victim.duration - done


def _saved(world: HaizeaWorld, victim: HaizeaLease) -> Callable[[], None]:
    """Return how to put the victim's bookings back as they are now."""
    runs = list(victim.runs)
    ends = [(run, run.end, list(run.after)) for run in runs]
    entries = [entry for entry in world.table if entry.lease is victim]
    segments, state, start = list(victim.segments), victim.state, victim.first_start

    def restore() -> None:
        for entry in [entry for entry in world.table if entry.lease is victim]:
            world.table.remove(entry)
        for run, end, after in ends:
            run.end, run.after = end, after
        victim.runs = runs
        victim.segments, victim.state, victim.first_start = segments, state, start
        for entry in entries:
            world.table.add(entry)

    return restore


def _give_way(world: HaizeaWorld, victim: HaizeaLease, at: int, until: int) -> bool:
    """Cut or lift what the victim has booked from `at` on and book the rest after `until`."""
    rules = world.rules
    open_runs = [run for run in victim.runs if run.state is not EntryState.DONE]
    resumes = False
    homes: dict[int, int] = dict(victim.homes)
    for run in reversed(open_runs):
        begins = run.before[0].start if run.before else run.start
        if begins >= at:
            resumes = bool(run.before)
            _lift(world, victim, run)
        elif run.start >= at:
            return False
        elif run.end > at:
            # A run after which another is booked is not cut but taken back, as the ancestor does.
            if run is not open_runs[-1] or not _may_suspend(world, victim, run, at):
                resumes = False
                _lift(world, victim, run)
                if run.state is EntryState.ACTIVE:
                    nodes = tuple(run.mapping[vnode] for vnode in sorted(run.mapping))
                    victim.segments.append((run.start, None, nodes, False))
                    victim.first_start = None
                    victim.state = State.READY
            else:
                suspend_at(world, run, at)
                resumes = True
                homes = dict(run.mapping)
        else:
            homes = dict(run.mapping)
    length = _remaining_at(victim, until)
    whole = length + shutdown_time(rules, victim)
    whole += resume_estimate(rules, victim) if resumes else 0
    allowed = None
    if resumes and rules.migration is Migration.NO:
        allowed = world.arrangement.homes(list(dict.fromkeys(homes.values())))
    assert victim.deadline is not None
    for start in [until, *end_instants(world.table, until)]:
        if start + whole > victim.deadline:
            continue
        mapping = map_lease(world.table, rules, victim, start, start + whole, allowed=allowed)
        if mapping is None:
            continue
        run = build_run(
            world, victim, start, start + whole, mapping.nodes, suspended=resumes, owed=length
        )
        victim.runs.append(run)
        for entry in [*run.before, run, *run.after]:
            world.table.add(entry)
        return True
    return False


def _may_suspend(world: HaizeaWorld, victim: HaizeaLease, run: Entry, at: int) -> bool:
    """Compare the threshold; here the ancestor suspends parallel leases also under serial-only."""
    rules = world.rules
    if rules.suspension is Suspension.NONE:
        return False
    return at - run.start >= threshold(rules, victim, suspended=False)


def _lift(world: HaizeaWorld, victim: HaizeaLease, run: Entry) -> None:
    for entry in [*run.before, run, *run.after]:
        world.table.remove(entry)
    victim.runs.remove(run)


def _settle(world: HaizeaWorld) -> None:
    """Give every deadline lease that is suspended with a booked resumption its state."""
    for lease in world.leases.values():
        if lease.kind is Kind.DEADLINE and lease.state is State.SUSPENDED_PENDING:
            lease.state = State.SUSPENDED_SCHEDULED
