"""Which node carries which vnode: the ancestor's greedy mapper and its host score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tenure_core.planning.haizea.amounts import Amounts, plus
from tenure_core.planning.haizea.entries import HaizeaLease
from tenure_core.planning.haizea.settings import HaizeaRules
from tenure_core.planning.haizea.table import HaizeaTable

_LEASES_THAT_MATTER = 4


@dataclass(frozen=True, slots=True)
class Mapping:
    """A node for each vnode until `end`, once the `gone` leases gave way."""

    nodes: dict[int, int]
    end: int
    gone: tuple[int, ...]


def map_lease(
    table: HaizeaTable,
    rules: HaizeaRules,
    lease: HaizeaLease,
    start: int,
    end: int,
    *,
    allowed: list[int] | None = None,
    strict: bool = True,
    victims: Sequence[int] = (),
) -> Mapping | None:
    """Map the lease from `start`, for less than until `end` where that is not `strict`.

    Victims are added one by one, from the end of the list, until all vnodes are mapped.
    """
    hosts = rank_nodes(
        table, rules, table.nodes if allowed is None else allowed, start, lease.duration
    )
    vnodes = _vnodes(lease)
    left = list(victims)
    gone: list[int] = []
    while True:
        found = _sweep(table, lease, vnodes, hosts, start, end, strict, gone)
        if found is not None:
            return Mapping(found[0], found[1], tuple(gone))
        if not left:
            return None
        gone.append(left.pop())


def fill(
    table: HaizeaTable, lease: HaizeaLease, hosts: list[int], start: int, end: int
) -> dict[int, int] | None:
    """Map all vnodes over the whole span, on the nodes in the order given."""
    found = _sweep(table, lease, _vnodes(lease), hosts, start, end, True, [])
    return None if found is None else found[0]


def _sweep(
    table: HaizeaTable,
    lease: HaizeaLease,
    vnodes: list[int],
    hosts: list[int],
    start: int,
    end: int,
    strict: bool,
    gone: list[int],
) -> tuple[dict[int, int], int] | None:
    """Fill one node after the other; a vnode that does not fit for long enough shortens the whole.

    Shortening is preferred to trying another node, and stays in force for the nodes that follow.
    """
    nodes: dict[int, int] = {}
    position = 0
    for number in hosts:
        need: Amounts = lease.demands[vnodes[position] - 1]
        while True:
            if table.fits(number, need, start, end, gone):
                nodes[vnodes[position]] = number
                position += 1
                if position == len(vnodes):
                    return nodes, end
                need = plus(need, lease.demands[vnodes[position] - 1])
                continue
            if strict:
                break
            latest = table.latest_fit(number, need, start, gone)
            if latest is None or latest >= end:
                break
            end = latest
    return None


def _vnodes(lease: HaizeaLease) -> list[int]:
    """Return the vnodes, the largest share of the lease's largest amounts first."""
    columns = [
        [amount for amount in column if isinstance(amount, int)]
        for column in zip(*lease.demands, strict=True)
    ]
    widest = [max(column, default=0) for column in columns]

    def size(vnode: int) -> float:
        pairs = zip(lease.demands[vnode - 1], widest, strict=True)
        return float(
            sum(amount / most for amount, most in pairs if most and isinstance(amount, int))
        )

    return sorted(range(1, lease.count + 1), key=lambda vnode: (-size(vnode), vnode))


def rank_nodes(
    table: HaizeaTable, rules: HaizeaRules, nodes: list[int], start: int, length: int
) -> list[int]:
    """Return the nodes in the order in which they are tried for a lease of that length."""
    if not rules.greedy_hosts:
        return nodes
    return sorted(nodes, key=lambda number: -_score(table, number, start, length))


def _score(table: HaizeaTable, number: int, start: int, length: int) -> float:
    """Return the score of a node: few leases on it, and nothing changing there for long."""
    leases = min(_LEASES_THAT_MATTER, len(table.holders_at(number, start)))
    quiet = table.until_change(number, start)
    rest = 1.0 if quiet is None else min(1.0, quiet / length)
    free = (_LEASES_THAT_MATTER - leases) / _LEASES_THAT_MATTER
    return 0.5 * free + 0.25 + 0.25 * rest
