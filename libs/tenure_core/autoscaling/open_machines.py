"""Free capacity while a queue is packed: machines with equal free capacity are one entry.

Amounts are plain tuples in one order of resource kinds, because packing asks millions of times
whether a shape fits. Machines in use are searched among the newest `OPEN_MAX` kinds only, so that
a queue of all-different shapes stays linear; that can ask for a few machines more than needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tenure_core.resources import AMOUNT_MAX, ResourceVector

OPEN_MAX: Final = 64
"""How many kinds of partly used machine are kept open."""

Amounts = tuple[int, ...]
Bin = tuple[str, Amounts]
"""A machine type and what is free on a machine of it."""


@dataclass(frozen=True, slots=True)
class FreeMachine:
    """What is left of one machine; `in_use` says that it carries something already."""

    type_name: str
    free: ResourceVector
    in_use: bool = False


def times_in(shape: Amounts, free: Amounts) -> int:
    """Return how often `shape` fits in `free`; a shape of nothing fits `AMOUNT_MAX` times."""
    times = -1
    for asked, there in zip(shape, free, strict=True):
        if asked:
            if asked > there:
                return 0
            fits = there // asked
            if times < 0 or fits < times:
                times = fits
    return AMOUNT_MAX if times < 0 else times


class OpenMachines:
    """The machines that a packing may still use; mutable, lives for one packing."""

    def __init__(self, free: Iterable[FreeMachine], kinds: tuple[str, ...]) -> None:
        self._kinds = kinds
        self._idle: Counter[Bin] = Counter()
        self._used: dict[Bin, int] = {}
        self.opened: Counter[str] = Counter()
        self.version = 0
        used = []
        for machine in free:
            bin_ = (machine.type_name, self.amounts(machine.free))
            if machine.in_use:
                used.append(bin_)
            else:
                self._idle[bin_] += 1
        for bin_ in sorted(used, key=lambda bin_: (sum(bin_[1]), bin_)):
            self._put(bin_, 1)
        self.close_oldest()

    def amounts(self, vector: Mapping[str, int]) -> Amounts:
        """Return `vector` in the packing's order of kinds."""
        return tuple(vector.get(kind, 0) for kind in self._kinds)

    @property
    def any_idle(self) -> bool:
        """Say whether a machine without work is left."""
        return bool(self._idle)

    def take(self, shape: Amounts, nodes: int, *, distinct: bool) -> dict[tuple[Bin, bool], int]:
        """Return machines to use for up to `nodes` shapes: those in use first, then the idle.

        Within each, the tightest fit first. The key says whether the machine is in use.
        """
        chosen: dict[tuple[Bin, bool], int] = {}
        left = nodes
        for bins, in_use in ((self._used, True), (self._idle, False)):
            fitting = sorted(
                (times, bin_) for bin_ in bins if (times := times_in(shape, bin_[1])) > 0
            )
            for times, bin_ in fitting:
                each = 1 if distinct else times
                count = min(bins[bin_], -(-left // each))
                chosen[bin_, in_use] = count
                left -= count * each
                if left <= 0:
                    return chosen
        return chosen

    def covered(
        self, chosen: Mapping[tuple[Bin, bool], int], shape: Amounts, *, distinct: bool
    ) -> int:
        """Return how many shapes the chosen machines hold."""
        return sum(
            count * (1 if distinct else times_in(shape, bin_[1]))
            for (bin_, _), count in chosen.items()
        )

    def fill(
        self,
        chosen: Mapping[tuple[Bin, bool], int],
        shape: Amounts,
        nodes: int,
        *,
        distinct: bool,
    ) -> None:
        """Place `nodes` shapes on the chosen machines, which must hold as many."""
        left = nodes
        for (bin_, in_use), machines in chosen.items():
            each = 1 if distinct else times_in(shape, bin_[1])
            whole = min(machines, left // each)
            self._use(bin_, in_use, shape, each, whole)
            left -= whole * each
            if whole < machines and left > 0:
                self._use(bin_, in_use, shape, left, 1)
                left = 0
        assert left == 0, (shape, nodes, left)

    def add(self, type_name: str, capacity: Amounts, machines: int) -> None:
        """Add new machines; they count as in use, being bought because they are needed."""
        self._put((type_name, capacity), machines)
        self.version += 1

    def close_oldest(self) -> None:
        """Forget the kinds in use that were touched longest ago, beyond `OPEN_MAX`."""
        for bin_ in list(self._used)[: max(0, len(self._used) - OPEN_MAX)]:
            del self._used[bin_]

    def _use(self, bin_: Bin, in_use: bool, shape: Amounts, each: int, machines: int) -> None:
        if machines <= 0:
            return
        bins = self._used if in_use else self._idle
        if bins[bin_] == machines:
            del bins[bin_]
        else:
            bins[bin_] -= machines
        if not in_use:
            self.opened[bin_[0]] += machines
        left = tuple(there - asked * each for there, asked in zip(bin_[1], shape, strict=True))
        if any(left):
            self._put((bin_[0], left), machines)

    def _put(self, bin_: Bin, machines: int) -> None:
        self._used[bin_] = self._used.pop(bin_, 0) + machines
