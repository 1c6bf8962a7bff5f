"""The slot table of the ancestor's rules: entries by node, and what is free from an instant on."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from tenure_core.planning.haizea.amounts import Amounts, fits_in, least, minus, total
from tenure_core.planning.haizea.entries import Entry, HaizeaLease


@dataclass(slots=True)
class _Node:
    """A node with its entries; the timeline is rebuilt when they changed."""

    number: int
    capacity: Amounts
    entries: list[Entry] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    free: list[Amounts] = field(default_factory=list)
    holders: list[frozenset[int]] = field(default_factory=list)
    stale: bool = True


class HaizeaTable:
    """Nodes are numbered from 1. Entries of no duration take nothing."""

    def __init__(self, capacities: list[Amounts]) -> None:
        self._nodes = {
            number: _Node(number, amounts) for number, amounts in enumerate(capacities, 1)
        }
        self._entries: dict[Entry, None] = {}

    @property
    def nodes(self) -> list[int]:
        """Return the numbers of the nodes, ascending."""
        return list(self._nodes)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: Entry) -> None:
        """Insert an entry."""
        self._entries[entry] = None
        for number in entry.nodes:
            node = self._nodes[number]
            node.entries.append(entry)
            node.stale = True

    def remove(self, entry: Entry) -> None:
        """Remove an entry that may be gone already."""
        if entry not in self._entries:
            return
        del self._entries[entry]
        for number in entry.nodes:
            node = self._nodes[number]
            node.entries.remove(entry)
            node.stale = True

    def touch(self, entry: Entry) -> None:
        """Take note that the times of an entry changed."""
        for number in entry.nodes:
            self._nodes[number].stale = True

    def next_change_after(self, instant: int) -> int | None:
        """Return the first start or end after `instant`."""
        return min(
            (
                point
                for entry in self._entries
                for point in (entry.start, entry.end)
                if point > instant
            ),
            default=None,
        )

    def is_full(self, instant: int, resource: int) -> bool:
        """Say whether nothing of the resource is free on any node."""
        return not sum(total(self._at(node, instant)[0][resource]) for node in self._nodes.values())

    def holders_at(self, number: int, instant: int) -> frozenset[int]:
        """Return the leases that have an entry on the node at the instant."""
        return self._at(self._nodes[number], instant)[1]

    def until_change(self, number: int, instant: int) -> int | None:
        """Return how long nothing changes on the node: neither what is free nor who holds it."""
        node = self._fresh(number)
        i = bisect_right(node.times, instant) - 1
        return node.times[i + 1] - instant if i + 1 < len(node.times) else None

    def fits(self, number: int, need: Amounts, start: int, end: int, gone: Collection[int]) -> bool:
        """Say whether `need` is free throughout [start, end) with the leases `gone` away."""
        for since, free in self._steps(number, start, gone):
            if since > start and since >= end:
                return True
            if not fits_in(need, free):
                return False
        return True

    def latest_fit(
        self, number: int, need: Amounts, start: int, gone: Collection[int]
    ) -> int | None:
        """Return the instant at which `need` stops fitting, None when it does not fit at start."""
        for since, free in self._steps(number, start, gone):
            if not fits_in(need, free):
                return None if since == start else since
        return _NEVER

    def _steps(
        self, number: int, start: int, gone: Collection[int]
    ) -> Iterator[tuple[int, Amounts]]:
        """Return what is free from `start` on without any break, as it shrinks."""
        lowest: Amounts | None = None
        for since, free in self._from(number, start, gone):
            lowest = free if lowest is None else least(lowest, free)
            yield since, lowest

    def leases_between(self, start: int, end: int) -> list[HaizeaLease]:
        """Return the leases that have an entry at some instant in [start, end), by id."""
        found = {
            entry.lease.id: entry.lease
            for entry in self._entries
            if entry.start < end and entry.end > start and entry.nodes
        }
        return [found[key] for key in sorted(found)]

    def _from(
        self, number: int, start: int, gone: Collection[int]
    ) -> Iterator[tuple[int, Amounts]]:
        node = self._fresh(number)
        i = max(0, bisect_right(node.times, start) - 1)
        if not gone or not any(
            not node.holders[j].isdisjoint(gone) for j in range(i, len(node.times))
        ):
            yield start, node.free[i]
            for j in range(i + 1, len(node.times)):
                yield node.times[j], node.free[j]
            return
        kept = [entry for entry in node.entries if entry.lease.id not in gone]
        points = sorted(
            {start} | {p for entry in kept for p in (entry.start, entry.end) if p > start}
        )
        for point in points:
            yield point, _left(node, kept, point)

    def _at(self, node: _Node, instant: int) -> tuple[Amounts, frozenset[int]]:
        if node.stale:
            _rebuild(node)
        i = max(0, bisect_right(node.times, instant) - 1)
        return node.free[i], node.holders[i]

    def _fresh(self, number: int) -> _Node:
        node = self._nodes[number]
        if node.stale:
            _rebuild(node)
        return node


_NEVER = 2**53


def _left(node: _Node, entries: list[Entry], instant: int) -> Amounts:
    free = node.capacity
    for entry in sorted(entries, key=lambda entry: entry.start):
        if entry.start <= instant < entry.end:
            free = minus(free, entry.nodes[node.number])
    return free


def _rebuild(node: _Node) -> None:
    points = sorted(
        {p for entry in node.entries if entry.start < entry.end for p in (entry.start, entry.end)}
    )
    node.times, node.free, node.holders = [-_NEVER], [node.capacity], [frozenset()]
    for point in points:
        free = _left(node, node.entries, point)
        holders = frozenset(
            entry.lease.id for entry in node.entries if entry.start <= point < entry.end
        )
        if free != node.free[-1] or holders != node.holders[-1]:
            node.times.append(point)
            node.free.append(free)
            node.holders.append(holders)
    node.stale = False
