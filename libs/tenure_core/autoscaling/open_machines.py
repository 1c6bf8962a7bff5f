"""Free capacity while a queue is packed: machines with equal free capacity are one entry.

Amounts are plain tuples in one order of resource kinds, because packing asks millions of times
whether a shape fits. Machines in use are searched among the newest `OPEN_MAX` kinds only, so that
a queue of all-different shapes stays linear; that can ask for a few machines more than needed.
What is booked on a machine later bounds what fits for longer than until then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from tenure_core.resources import AMOUNT_MAX, ResourceVector
from tenure_core.timebase import FOREVER, Millis

OPEN_MAX: Final = 64
"""How many kinds of partly used machine are kept open."""

Amounts = tuple[int, ...]


class Tier(IntEnum):
    """Which machines are taken first: what is used already, then what costs least to use."""

    USED = 0
    IDLE = 1
    COMING = 2
    """Booked for later and without a machine yet: one is bought sooner or later anyway."""


class Bin(NamedTuple):
    """A machine type, what is free on a machine of it until when from now, and what then."""

    type_name: str
    free: Amounts
    until_ms: Millis = FOREVER
    later: Amounts = ()

    def times(self, shape: Amounts, duration_ms: Millis) -> int:
        """Return how often `shape` fits on one such machine for so long."""
        times = times_in(shape, self.free)
        if times and duration_ms > self.until_ms:
            return min(times, times_in(shape, self.later))
        return times


@dataclass(frozen=True, slots=True)
class FreeMachine:
    """What is left of one machine; `in_use` says that it carries something already.

    `until_ms` from now something booked on it begins, which leaves no more than `later`; what must
    run longer is only put beside that. `coming`: there is no machine yet, one may be bought.
    """

    type_name: str
    free: ResourceVector
    in_use: bool = False
    until_ms: Millis = FOREVER
    later: ResourceVector = field(default_factory=ResourceVector)
    coming: bool = False


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


@dataclass(frozen=True, slots=True)
class Gang:
    """What is placed together: so many times `shape` for so long, on `distinct` machines or not."""

    shape: Amounts
    nodes: int
    duration_ms: Millis = 0
    distinct: bool = False

    def each(self, bin_: Bin) -> int:
        """Return how many slots one such machine takes."""
        return 1 if self.distinct else bin_.times(self.shape, self.duration_ms)


class OpenMachines:
    """The machines that a packing may still use; mutable, lives for one packing."""

    def __init__(self, free: Iterable[FreeMachine], kinds: tuple[str, ...]) -> None:
        self._kinds = kinds
        self._used: dict[Bin, int] = {}
        self._idle: Counter[Bin] = Counter()
        self._coming: Counter[Bin] = Counter()
        self._tiers: tuple[dict[Bin, int], ...] = (self._used, self._idle, self._coming)
        self.opened: Counter[str] = Counter()
        self.came: Counter[str] = Counter()
        self.version = 0
        used = []
        for machine in free:
            bin_ = Bin(
                machine.type_name, self.amounts(machine.free), machine.until_ms,
                self.amounts(machine.later) if machine.until_ms < FOREVER else (),
            )  # fmt: skip
            if machine.in_use:
                used.append(bin_)
            elif machine.coming:
                self._coming[bin_] += 1
            else:
                self._idle[bin_] += 1
        self.timed = any(bin_.until_ms < FOREVER for bin_ in (*used, *self._idle, *self._coming))
        for bin_ in sorted(used, key=lambda bin_: (sum(bin_.free), bin_)):
            self._put(bin_, 1)
        self.close_oldest()

    def amounts(self, vector: Mapping[str, int]) -> Amounts:
        """Return `vector` in the packing's order of kinds."""
        return tuple(vector.get(kind, 0) for kind in self._kinds)

    @property
    def any_idle(self) -> bool:
        """Say whether a machine without work is left, be it one that is to come anyway."""
        return bool(self._idle or self._coming)

    def take(self, gang: Gang) -> dict[tuple[Bin, Tier], int]:
        """Return machines to use for up to all slots of a gang, tier by tier.

        Within each tier the tightest fit comes first.
        """
        chosen: dict[tuple[Bin, Tier], int] = {}
        left = gang.nodes
        for tier, bins in zip(Tier, self._tiers, strict=True):
            fitting = sorted(
                (times, bin_)
                for bin_ in bins
                if (times := bin_.times(gang.shape, gang.duration_ms)) > 0
            )
            for times, bin_ in fitting:
                each = 1 if gang.distinct else times
                count = min(bins[bin_], -(-left // each))
                chosen[bin_, tier] = count
                left -= count * each
                if left <= 0:
                    return chosen
        return chosen

    def covered(self, chosen: Mapping[tuple[Bin, Tier], int], gang: Gang) -> int:
        """Return how many slots of a gang the chosen machines hold."""
        return sum(count * gang.each(bin_) for (bin_, _), count in chosen.items())

    def fill(self, chosen: Mapping[tuple[Bin, Tier], int], gang: Gang) -> None:
        """Place the whole gang on the chosen machines, which must hold it."""
        left = gang.nodes
        for (bin_, tier), machines in chosen.items():
            each = gang.each(bin_)
            whole = min(machines, left // each)
            self._use(bin_, tier, gang, each, whole)
            left -= whole * each
            if whole < machines and left > 0:
                self._use(bin_, tier, gang, left, 1)
                left = 0
        assert left == 0, (gang, left)

    def add(self, type_name: str, capacity: Amounts, machines: int) -> None:
        """Add new machines; they count as in use, being bought because they are needed."""
        self._put(Bin(type_name, capacity), machines)
        self.version += 1

    def close_oldest(self) -> None:
        """Forget the kinds in use that were touched longest ago, beyond `OPEN_MAX`."""
        for bin_ in list(self._used)[: max(0, len(self._used) - OPEN_MAX)]:
            del self._used[bin_]

    def _use(self, bin_: Bin, tier: Tier, gang: Gang, each: int, machines: int) -> None:
        if machines <= 0:
            return
        bins = self._tiers[tier]
        if bins[bin_] == machines:
            del bins[bin_]
        else:
            bins[bin_] -= machines
        if tier is Tier.IDLE:
            self.opened[bin_.type_name] += machines
        elif tier is Tier.COMING:
            self.came[bin_.type_name] += machines
        left = _less(bin_.free, gang.shape, each)
        if any(left):
            # What ends before the next booking begins leaves no trace in what is free then.
            stays = gang.duration_ms > bin_.until_ms
            later = _less(bin_.later, gang.shape, each) if stays else bin_.later
            self._put(Bin(bin_.type_name, left, bin_.until_ms, later), machines)

    def _put(self, bin_: Bin, machines: int) -> None:
        self._used[bin_] = self._used.pop(bin_, 0) + machines


def _less(there: Amounts, shape: Amounts, times: int) -> Amounts:
    return tuple(have - asked * times for have, asked in zip(there, shape, strict=True))
