"""How long suspending and resuming take, estimated for a lease and booked for each vnode."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from tenure_core.planning.haizea.amounts import Amount, Amounts
from tenure_core.planning.haizea.entries import Entry, EntryKind, HaizeaLease
from tenure_core.planning.haizea.settings import HaizeaRules

CPU, MEMORY, DISK, NET_IN, NET_OUT = range(5)
"""Where the resources that the rules name stand in an amounts tuple."""

_WHOLE_CPU = 100


@dataclass(slots=True)
class _Operation:
    """One booked suspension or resumption of some vnodes."""

    start: int
    end: int
    vnodes: list[int]


def suspend_estimate(rules: HaizeaRules, lease: HaizeaLease) -> int:
    """Return how long suspending the lease is taken to last, whatever may run side by side."""
    return _estimate(rules, lease, rules.suspend_rate, rules.suspend_override)


def resume_estimate(rules: HaizeaRules, lease: HaizeaLease) -> int:
    """Return how long resuming the lease is taken to last."""
    return _estimate(rules, lease, rules.resume_rate, rules.resume_override)


def shutdown_time(rules: HaizeaRules, lease: HaizeaLease) -> int:
    """Return how long the lease takes to shut down after its run."""
    return rules.shutdown_s + rules.enactment_s * lease.count


def threshold(rules: HaizeaRules, lease: HaizeaLease, *, suspended: bool) -> int:
    """Return the shortest run worth starting for, given that it will be suspended."""
    if rules.threshold is not None:
        return rules.threshold
    safe = suspend_estimate(rules, lease)
    if suspended:
        safe += resume_estimate(rules, lease)
    return safe + rules.threshold_factor * safe


def suspensions(
    rules: HaizeaRules, lease: HaizeaLease, mapping: dict[int, int], by: int
) -> list[Entry]:
    """Return the entries that suspend the lease so that the last ends at `by`, by start."""
    operations: list[_Operation] = []
    for vnodes in _lanes(rules, mapping):
        at = by
        for vnode in vnodes:
            takes = _takes(lease.memory[vnode - 1], rules.suspend_rate, rules.suspend_override)
            operations.append(_Operation(at - takes, at, [vnode]))
            at -= takes
            if rules.global_exclusion:
                operations[-1].start -= rules.enactment_s
                at -= rules.enactment_s
    merged = sorted(_merged(rules, operations), key=lambda op: (op.start, op.end))
    if rules.enactment_s and not rules.global_exclusion:
        latest = by
        for operation in reversed(merged):
            length = operation.end - operation.start + rules.enactment_s * len(operation.vnodes)
            operation.end = min(operation.end, latest)
            operation.start = latest = operation.end - length
    return [_entry(rules, lease, EntryKind.SUSPEND, operation, mapping) for operation in merged]


def resumptions(
    rules: HaizeaRules, lease: HaizeaLease, mapping: dict[int, int], start: int
) -> list[Entry]:
    """Return the entries that resume the lease from `start` on, by start."""
    operations: list[_Operation] = []
    for vnodes in _lanes(rules, mapping):
        at = start
        for vnode in vnodes:
            takes = _takes(lease.memory[vnode - 1], rules.resume_rate, rules.resume_override)
            if rules.global_exclusion:
                takes += rules.enactment_s
            operations.append(_Operation(at, at + takes, [vnode]))
            at += takes
    merged = sorted(_merged(rules, operations), key=lambda op: (op.start, op.end))
    if rules.enactment_s and not rules.global_exclusion:
        earliest = start
        for operation in merged:
            length = operation.end - operation.start + rules.enactment_s * len(operation.vnodes)
            operation.start = max(operation.start, earliest)
            operation.end = earliest = operation.start + length
    return [_entry(rules, lease, EntryKind.RESUME, operation, mapping) for operation in merged]


def _estimate(rules: HaizeaRules, lease: HaizeaLease, rate: float, override: int | None) -> int:
    if override is not None:
        return override
    if rules.first_release:
        total = ceil(sum(lease.memory) / rate)
        return lease.count * (total + rules.enactment_s)
    return sum(ceil(memory / rate) + rules.enactment_s for memory in lease.memory)


def _takes(memory: int, rate: float, override: int | None) -> int:
    return ceil(memory / rate) if override is None else override


def _lanes(rules: HaizeaRules, mapping: dict[int, int]) -> list[list[int]]:
    """Return the vnodes that must go one after another: all, or those of each node."""
    if rules.global_exclusion:
        return [sorted(mapping)]
    lanes: dict[int, list[int]] = {}
    for vnode in sorted(mapping):
        lanes.setdefault(mapping[vnode], []).append(vnode)
    return list(lanes.values())


def _merged(rules: HaizeaRules, operations: list[_Operation]) -> list[_Operation]:
    """Return operations with the same times as one."""
    if rules.global_exclusion:
        return operations
    found: dict[tuple[int, int], _Operation] = {}
    for operation in operations:
        known = found.setdefault((operation.start, operation.end), operation)
        if known is not operation:
            known.vnodes += operation.vnodes
    return list(found.values())


def _entry(
    rules: HaizeaRules,
    lease: HaizeaLease,
    kind: EntryKind,
    operation: _Operation,
    mapping: dict[int, int],
) -> Entry:
    """Return the entry of an operation.

    The ancestor books a whole CPU (of several instances, one a vnode; in 1.0 none), and the memory
    of its vnodes times their number.
    """
    nodes: dict[int, Amounts] = {}
    for number in {mapping[vnode] for vnode in operation.vnodes}:
        here = [vnode for vnode in operation.vnodes if mapping[vnode] == number]
        memory = sum(lease.memory[vnode - 1] for vnode in here) * len(here)
        amounts: list[Amount] = [0] * len(lease.demands[0])
        amounts[MEMORY] = amounts[DISK] = memory
        single = isinstance(lease.demands[0][CPU], int)
        if not rules.first_release:
            amounts[CPU] = _WHOLE_CPU if single else (_WHOLE_CPU,) * len(here)
        nodes[number] = tuple(amounts)
    entry = Entry(lease, kind, operation.start, operation.end, nodes, tuple(operation.vnodes))
    entry.mapping = dict(mapping)
    return entry
