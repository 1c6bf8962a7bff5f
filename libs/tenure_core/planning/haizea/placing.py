"""Where and when a lease runs by the ancestor's rules: as soon as possible, or at its time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from tenure_core.planning.haizea.amounts import Amounts, plus
from tenure_core.planning.haizea.entries import (
    Entry,
    EntryKind,
    HaizeaLease,
    Kind,
    State,
)
from tenure_core.planning.haizea.mapper import map_lease
from tenure_core.planning.haizea.preparing import Images
from tenure_core.planning.haizea.pricing import Prices
from tenure_core.planning.haizea.settings import HaizeaRules, Suspension
from tenure_core.planning.haizea.table import HaizeaTable
from tenure_core.planning.haizea.timing import (
    resume_estimate,
    resumptions,
    shutdown_time,
    suspensions,
    threshold,
)
from tenure_core.policies.bundle import Migration

_TOO_OLD_S = 7 * 86_400


class Arrangement(Protocol):
    """Orders leases that are looked at in the same instant.

    The ancestor took them from hash tables: new ones by the table of their ids, those to be placed
    anew by the addresses of objects. Kept apart here so that it can be told to differ.
    """

    def add(self, lease: int) -> None:
        """Take note of a lease that arrives."""
        ...

    def remove(self, lease: int) -> None:
        """Take note of a lease that ended or was refused."""
        ...

    def arrived(self, leases: list[HaizeaLease]) -> list[HaizeaLease]:
        """Return leases that wait to be looked at for the first time, in order."""
        ...

    def lifted(self, leases: list[HaizeaLease]) -> list[HaizeaLease]:
        """Return leases that are to be placed anew, in order."""
        ...

    def tied(self, leases: list[HaizeaLease]) -> list[HaizeaLease]:
        """Return leases in the way of another, in the order in which equal scores stay."""
        ...

    def homes(self, nodes: list[int]) -> list[int]:
        """Return the nodes that a suspended lease may resume on, as equal scores are taken."""
        ...

    def moved(self, vnodes: list[int]) -> list[int]:
        """Return the vnodes of a lease that must move, in the order in which moves are grouped."""
        ...


class ByNumber:
    """Ascending ids."""

    def add(self, lease: int) -> None:
        """Do nothing."""

    def remove(self, lease: int) -> None:
        """Do nothing."""

    def arrived(self, leases: list[HaizeaLease]) -> list[HaizeaLease]:
        """Return the leases by id."""
        return sorted(leases, key=lambda lease: lease.id)

    def lifted(self, leases: list[HaizeaLease]) -> list[HaizeaLease]:
        """Return the leases by id."""
        return sorted(leases, key=lambda lease: lease.id)

    def tied(self, leases: list[HaizeaLease]) -> list[HaizeaLease]:
        """Return the leases by id, highest first."""
        return sorted(leases, key=lambda lease: -lease.id)

    def homes(self, nodes: list[int]) -> list[int]:
        """Return the nodes by number."""
        return sorted(nodes)

    def moved(self, vnodes: list[int]) -> list[int]:
        """Return the vnodes by number."""
        return sorted(vnodes)


@dataclass(slots=True)
class HaizeaWorld:
    """All that the rules look at, at `now`; `futures` are the leases whose start was promised."""

    rules: HaizeaRules
    table: HaizeaTable
    now: int = 0
    queue: list[HaizeaLease] = field(default_factory=list)
    futures: set[int] = field(default_factory=set)
    leases: dict[int, HaizeaLease] = field(default_factory=dict)
    arrangement: Arrangement = field(default_factory=ByNumber)
    prices: Prices = field(default_factory=Prices)
    images: Images = field(init=False)

    def __post_init__(self) -> None:
        self.images = Images(self.rules)

    def admit(self, lease: HaizeaLease) -> None:
        """Let a lease join."""
        self.leases[lease.id] = lease
        self.arrangement.add(lease.id)

    def finish(self, lease: HaizeaLease, state: State) -> None:
        """Let a lease leave in its final state."""
        lease.state = state
        self.images.released(lease)
        del self.leases[lease.id]
        self.arrangement.remove(lease.id)

    def may_promise(self) -> bool:
        """Say whether backfilling allows one more future lease."""
        most = self.rules.futures_max
        return most is None or len(self.futures) < most


@dataclass(frozen=True, slots=True)
class Placing:
    """A run to be booked with what goes around it, and the leases that must give way for it."""

    run: Entry
    promised: bool = False
    victims: tuple[int, ...] = ()


def place_as_soon_as_possible(
    world: HaizeaWorld, lease: HaizeaLease, earliest: dict[int, int], *, promise: bool
) -> Placing | None:
    """Return the first acceptable place, in the future only where `promise` allows it."""
    rules, table = world.rules, world.table
    suspended = lease.state in (State.SUSPENDED_QUEUED, State.SUSPENDED_PENDING)
    homes: list[int] | None = None
    if suspended and rules.migration is Migration.NO:
        there = [lease.homes[vnode] for vnode in sorted(lease.homes)]
        homes = world.arrangement.homes(list(dict.fromkeys(there)))
    instants = sorted(set(earliest.values()))
    candidates: list[tuple[int, list[int] | None, bool]] = []
    for instant in instants:
        among = table.nodes if homes is None else homes
        candidates.append((instant, [n for n in among if earliest[n] <= instant], False))
    if promise:
        candidates += [(instant, homes, True) for instant in end_instants(table, instants[-1])]
    length = lease.remaining + shutdown_time(rules, lease)
    if suspended:
        length += resume_estimate(rules, lease)
    strict = rules.suspension is Suspension.NONE or (
        rules.suspension is Suspension.SERIAL_ONLY and lease.count > 1
    )
    # A lease that is placed anew after an early end is not in the queue, and its resumption is
    # not counted here although it takes its time.
    queued = lease.state is State.SUSPENDED_QUEUED
    shortest = 0 if strict else threshold(rules, lease, suspended=queued)
    for start, allowed, promised in candidates:
        mapping = map_lease(
            table, rules, lease, start, start + length, allowed=allowed, strict=strict
        )
        if mapping is None:
            continue
        found = mapping.end - start
        longest = length if rules.first_release else length - shutdown_time(rules, lease)
        if found < length and not shortest <= found <= longest:
            continue
        run = build_run(world, lease, start, mapping.end, mapping.nodes, suspended=suspended)
        return Placing(run, promised)
    return None


def place_exactly(world: HaizeaWorld, lease: HaizeaLease, start: int) -> Placing | None:
    """Return a place for the whole duration from `start`, with victims where that is allowed."""
    end = start + lease.duration
    if not world.rules.first_release:
        end += shutdown_time(world.rules, lease)
    victims = _victims(world, start, end) if world.rules.advance_preempts else []
    mapping = map_lease(world.table, world.rules, lease, start, end, victims=victims)
    if mapping is None:
        return None
    run = build_run(world, lease, start, end, mapping.nodes, suspended=False)
    return Placing(run, victims=mapping.gone)


def build_run(
    world: HaizeaWorld,
    lease: HaizeaLease,
    start: int,
    end: int,
    mapping: dict[int, int],
    *,
    suspended: bool,
    owed: int | None = None,
) -> Entry:
    """Return the RUN for a window with its resumptions, and its suspensions or shutdown.

    `owed` is the run time to be booked, by default all that remains.
    """
    rules = world.rules
    owed = lease.remaining if owed is None else owed
    nodes: dict[int, Amounts] = {}
    for vnode, number in mapping.items():
        demand = lease.demands[vnode - 1]
        nodes[number] = plus(nodes[number], demand) if number in nodes else demand
    before = resumptions(rules, lease, mapping, start) if suspended else []
    begins = max((entry.end for entry in before), default=start)
    run = Entry(lease, EntryKind.RUN, begins, end, nodes, tuple(sorted(mapping)))
    run.mapping = dict(mapping)
    run.before = before
    over = shutdown_time(rules, lease)
    carved = rules.first_release and lease.kind is not Kind.BEST_EFFORT
    if end - begins < owed + (0 if carved else over):
        run.after = suspensions(rules, lease, mapping, end)
        run.end = min(entry.start for entry in run.after)
    else:
        run.end = end - over if carved else begins + owed
        run.after = [Entry(lease, EntryKind.SHUTDOWN, run.end, run.end + over, nodes, run.vnodes)]
    for entry in [*run.before, *run.after]:
        entry.run = run
    return run


def suspend_at(world: HaizeaWorld, run: Entry, by: int) -> None:
    """Cut a booked run so that its lease is suspended by `by`."""
    for entry in run.after:
        world.table.remove(entry)
    run.after = suspensions(world.rules, run.lease, run.mapping, by)
    run.end = min(entry.start for entry in run.after)
    world.table.touch(run)
    for entry in run.after:
        entry.run = run
        world.table.add(entry)


def end_instants(table: HaizeaTable, last: int) -> list[int]:
    """Return the instants after `last` at which a booked run is over, all that follows it done."""
    found: list[int] = []
    runs = {id(entry) for entry in table if entry.kind is EntryKind.RUN}
    followed = {id(after) for entry in table if id(entry) in runs for after in entry.after}
    for entry in table:
        if entry.kind is EntryKind.RUN and entry.end > last:
            found.append(entry.after[-1].end if entry.after else entry.end)
        elif entry.kind is EntryKind.SHUTDOWN and id(entry) not in followed and entry.end > last:
            found.append(entry.end)
    return sorted(set(found))


def _victims(world: HaizeaWorld, start: int, end: int) -> list[int]:
    """Return the best-effort leases in the way, most preemptable first: the youngest."""
    scored: list[tuple[int, int]] = []
    for lease in world.arrangement.tied(world.table.leases_between(start, end)):
        age = start - lease.arrival
        if lease.kind is Kind.BEST_EFFORT and age < _TOO_OLD_S:
            scored.append((age, lease.id))
    return [number for _, number in sorted(scored, key=lambda entry: entry[0])]
