"""Moves what a suspended lease keeps to the nodes on which it is to resume."""

from __future__ import annotations

from math import ceil

from tenure_core.planning.haizea.entries import Amounts, Entry, EntryKind, HaizeaLease
from tenure_core.planning.haizea.settings import HaizeaRules, Migration
from tenure_core.planning.haizea.timing import NET_IN, NET_OUT


def migration_estimate(rules: HaizeaRules, lease: HaizeaLease) -> int:
    """Return how long moving the lease's memory is taken to last, wherever it resumes."""
    if rules.migration is not Migration.YES:
        return 0
    on_node: dict[int, int] = {}
    for vnode, number in lease.homes.items():
        on_node[number] = on_node.get(number, 0) + lease.memory[vnode - 1]
    times = {number: transfer_time(rules, memory) for number, memory in on_node.items()}
    if rules.first_release:
        return max(times.values(), default=0)
    return sum(times[number] for number in lease.homes.values())


def transfer_time(rules: HaizeaRules, megabytes: int) -> int:
    """Return how long so much takes over the network, in whole seconds."""
    return ceil(megabytes / (rules.bandwidth / 8))


def migrations(
    rules: HaizeaRules, lease: HaizeaLease, mapping: dict[int, int], now: int
) -> list[Entry]:
    """Return the entries that move the lease's memory, one after another from `now` on.

    Moves that share no node go together and take as long as the largest of them.
    """
    moves = {
        vnode: (lease.homes[vnode], mapping[vnode])
        for vnode in sorted(mapping)
        if lease.homes.get(vnode, mapping[vnode]) != mapping[vnode]
    }
    if rules.migration is Migration.YES_NOTRANSFER:
        return [_entry(rules, lease, moves, now, now)] if moves else []
    entries: list[Entry] = []
    while moves:
        group: dict[int, tuple[int, int]] = {}
        busy: set[int] = set()
        for vnode, move in moves.items():
            if busy.isdisjoint(move):
                group[vnode] = move
                busy.update(move)
        moves = {vnode: move for vnode, move in moves.items() if vnode not in group}
        length = max(transfer_time(rules, lease.memory[vnode - 1]) for vnode in group)
        entries.append(_entry(rules, lease, group, now, now + length))
        now += length
    return entries


def _entry(
    rules: HaizeaRules,
    lease: HaizeaLease,
    moves: dict[int, tuple[int, int]],
    start: int,
    end: int,
) -> Entry:
    nodes: dict[int, Amounts] = {}
    for source, target in moves.values():
        nodes[source] = _network(lease, NET_OUT, rules.bandwidth)
        nodes[target] = _network(lease, NET_IN, rules.bandwidth)
    entry = Entry(lease, EntryKind.MIGRATE_MEMORY, start, end, nodes, tuple(moves))
    entry.moves = moves
    return entry


def _network(lease: HaizeaLease, resource: int, bandwidth: int) -> Amounts:
    amounts = [0] * len(lease.demands[0])
    amounts[resource] = bandwidth
    return tuple(amounts)
