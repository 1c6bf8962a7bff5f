"""Moves what a suspended lease keeps to the nodes on which it is to resume."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import ceil

from tenure_core.planning.haizea.amounts import Amount, Amounts
from tenure_core.planning.haizea.entries import Entry, EntryKind, HaizeaLease
from tenure_core.planning.haizea.settings import HaizeaRules
from tenure_core.planning.haizea.timing import NET_IN, NET_OUT
from tenure_core.planning.moving import rounds
from tenure_core.policies.bundle import Migration

_FIRST_BANDWIDTH = 100


def migration_estimate(rules: HaizeaRules, lease: HaizeaLease) -> int:
    """Return how long moving what the lease keeps is taken to last, wherever it resumes.

    It is reckoned from the nodes of the last run, also when files were moved since.
    """
    if rules.migration is not Migration.YES:
        return 0
    homes = lease.last_run.mapping
    on_node: dict[int, int] = {}
    for vnode, number in homes.items():
        on_node[number] = on_node.get(number, 0) + lease.memory[vnode - 1]
    times = {number: _move_time(rules, memory) for number, memory in on_node.items()}
    disk = _disk_estimate(rules, lease, homes)
    if rules.first_release:
        return max(times.values(), default=0) + disk
    return sum(times[number] for number in homes.values()) + disk


def _disk_estimate(rules: HaizeaRules, lease: HaizeaLease, homes: dict[int, int]) -> int:
    if not rules.transfers or lease.image is None:
        return 0
    if rules.first_release:
        most = max(Counter(homes.values()).values(), default=0)
        return _move_time(rules, lease.image[1] * most)
    return _move_time(rules, lease.image[1]) * len(homes)


def _move_time(rules: HaizeaRules, megabytes: int) -> int:
    """Return how long moving so much takes; release 1.0 knows one bandwidth only."""
    if rules.first_release:
        return ceil(megabytes / (_FIRST_BANDWIDTH / 8))
    return transfer_time(rules, megabytes)


def transfer_time(rules: HaizeaRules, megabytes: int) -> int:
    """Return how long so much takes over the network, in whole seconds."""
    return ceil(megabytes / (rules.bandwidth / 8))


def migrations(
    rules: HaizeaRules,
    lease: HaizeaLease,
    mapping: dict[int, int],
    now: int,
    arranged: Callable[[list[int]], list[int]],
) -> list[Entry]:
    """Return the entries that move disk images and memory, one after another from `now` on.

    `arranged` orders the vnodes that move. Release 1.0 moves every vnode as soon as one has to,
    also from a node to itself.
    Moves that share no node go together; a group takes as long as its largest memory, or as the
    images that leave its busiest node.
    """
    kinds = [(EntryKind.MIGRATE_MEMORY, lease.homes)]
    if rules.transfers and lease.image is not None:
        kinds.insert(0, (EntryKind.MIGRATE_DISK, lease.disks))
    entries: list[Entry] = []
    for kind, homes in kinds:
        moved = [v for v in sorted(mapping) if homes.get(v, mapping[v]) != mapping[v]]
        if moved and rules.first_release:
            moved = sorted(mapping)
        moves = {vnode: (homes[vnode], mapping[vnode]) for vnode in arranged(moved)}
        for group in _groups(rules, moves):
            length = 0
            if rules.migration is Migration.YES:
                length = _move_time(rules, _megabytes(rules, lease, kind, group))
            entries.append(_entry(rules, lease, kind, group, now, now + length))
            now += length
    return entries


def _groups(
    rules: HaizeaRules, moves: dict[int, tuple[int, int]]
) -> list[dict[int, tuple[int, int]]]:
    if rules.migration is Migration.YES_NOTRANSFER:
        return [moves] if moves else []
    return rounds(moves)


def _megabytes(
    rules: HaizeaRules, lease: HaizeaLease, kind: EntryKind, group: dict[int, tuple[int, int]]
) -> int:
    if kind is EntryKind.MIGRATE_MEMORY:
        return max(lease.memory[vnode - 1] for vnode in group)
    assert lease.image is not None
    leaving = Counter(source for source, _ in group.values())
    copies = len(group) if rules.first_release else max(leaving.values())
    return lease.image[1] * copies


def _entry(
    rules: HaizeaRules,
    lease: HaizeaLease,
    kind: EntryKind,
    moves: dict[int, tuple[int, int]],
    start: int,
    end: int,
) -> Entry:
    nodes: dict[int, Amounts] = {}
    for source, target in moves.values():
        nodes[source] = network(lease, NET_OUT, rules.bandwidth)
        nodes[target] = network(lease, NET_IN, rules.bandwidth)
    entry = Entry(lease, kind, start, end, nodes, tuple(moves))
    entry.moves = moves
    return entry


def network(lease: HaizeaLease, resource: int, bandwidth: int) -> Amounts:
    """Return the amounts of a transfer that takes the whole bandwidth in one direction."""
    amounts: list[Amount] = [0] * len(lease.demands[0])
    amounts[resource] = bandwidth
    return tuple(amounts)
