"""How many machines of which type the queue asks for, beyond the capacity there is.

What would start now if there were machines: waiting leases in their queue's order, gangs all or
nothing, onto free capacity first and onto new machines then. The expander chooses the type; caps
and back-offs shut a type out. This sizes a fleet; where a lease really runs is the planner's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tenure_core.autoscaling.machine_types import Expander, MachineType, choices
from tenure_core.autoscaling.open_machines import FreeMachine, Gang, OpenMachines
from tenure_core.resources import ResourceVector
from tenure_core.timebase import Millis

AT_LIMIT: Final = "AT_LIMIT"
NO_TYPE_FITS: Final = "NO_TYPE_FITS"


@dataclass(frozen=True, slots=True)
class WaitingLease:
    """One waiting lease: `nodes` times `shape`, all at once, on `distinct` machines or not.

    It must run for `duration_ms`, so not where something is booked before that is over; zero when
    that is not to be regarded.
    """

    lease_id: str
    nodes: int
    shape: ResourceVector
    distinct: bool = False
    interruptible: bool = True
    duration_ms: Millis = 0


@dataclass(frozen=True, slots=True)
class Packing:
    """What the queue asks for: idle machines by type, new ones by type, and who goes without."""

    opened: Mapping[str, int]
    machines: Mapping[str, int]
    served: int
    unserved: Mapping[str, str] = field(default_factory=dict)


_Key = tuple[ResourceVector, bool, bool]


def pack(
    waiting: Sequence[WaitingLease],
    free: Iterable[FreeMachine],
    types: Sequence[MachineType],
    *,
    room: Mapping[str, int],
    room_total: int,
    expander: Expander,
    now_ms: Millis,
) -> Packing:
    """Return the machines that the waiting leases ask for, given in queue order.

    `free` is what is left on machines that run, start or are coming; `room` caps new machines by
    type, `room_total` all of them together, those that are coming apart. A gang is served wholly or
    buys nothing. Once no machine is idle and none may be bought, the rest of the queue cannot
    change the answer and is not looked at. O(leases * (open kinds + types)).
    """
    kinds = tuple(sorted({name for kind in types for name in kind.capacity}))
    bins = OpenMachines(free, kinds)
    shop = _Shop(types, room, room_total, expander, now_ms, bins)
    failed: dict[_Key, tuple[int, int, Millis]] = {}
    served, unserved = 0, dict[str, str]()
    for place, lease in enumerate(waiting):
        if shop.sold_out and not bins.any_idle:
            unserved |= {late.lease_id: AT_LIMIT for late in waiting[place:]}
            break
        key = (lease.shape, lease.distinct, lease.interruptible)
        version, fewest, shortest = failed.get(key, (-1, 0, 0))
        # Where nothing is booked ahead it does not matter for how long something runs.
        span_ms = lease.duration_ms if bins.timed else 0
        if version == bins.version and lease.nodes >= fewest and span_ms >= shortest:
            unserved[lease.lease_id] = AT_LIMIT
            continue
        reason = _serve(lease, bins, shop)
        if reason:
            unserved[lease.lease_id] = reason
            failed[key] = (bins.version, lease.nodes, span_ms)
        else:
            served += 1
            bins.close_oldest()
    return Packing(dict(bins.opened), dict(shop.bought + bins.came), served, unserved)


def _serve(lease: WaitingLease, bins: OpenMachines, shop: _Shop) -> str:
    """Place one lease, buying what it lacks; return why not, or nothing."""
    if any(kind not in shop.kinds for kind in lease.shape):
        return NO_TYPE_FITS
    gang = Gang(bins.amounts(lease.shape), lease.nodes, lease.duration_ms, lease.distinct)
    chosen = bins.take(gang)
    lacking = lease.nodes - bins.covered(chosen, gang)
    if lacking > 0:
        reason = shop.buy(lease, lacking)
        if reason:
            return reason
        chosen = bins.take(gang)
    bins.fill(chosen, gang)
    return ""


class _Shop:
    """Buys machines within the room there is; lives for one packing."""

    def __init__(
        self,
        types: Sequence[MachineType],
        room: Mapping[str, int],
        room_total: int,
        expander: Expander,
        now_ms: Millis,
        bins: OpenMachines,
    ) -> None:
        self.bought: Counter[str] = Counter()
        self.kinds = {name for kind in types for name in kind.capacity}
        self._types = [kind for kind in types if kind.available_at(now_ms)]
        self._left = {kind.name: room.get(kind.name, 0) for kind in types}
        self._total = room_total
        self._expander = expander
        self._now_ms = now_ms
        self._bins = bins
        self._chosen: dict[tuple[ResourceVector, int, bool], list[MachineType]] = {}

    @property
    def sold_out(self) -> bool:
        """Say whether no machine of any type may be bought any more."""
        return self._total <= 0 or all(self._left[kind.name] <= 0 for kind in self._types)

    def buy(self, lease: WaitingLease, lacking: int) -> str:
        """Add machines for `lacking` shapes; return why not, or nothing when it could be done."""
        if self.sold_out:
            return AT_LIMIT
        fitting = self._choices(lease, lacking)
        for kind in fitting:
            each = 1 if lease.distinct else max(1, lease.shape.times_in(kind.capacity))
            machines = -(-lacking // each)
            if machines <= min(self._left[kind.name], self._total):
                self._bins.add(kind.name, self._bins.amounts(kind.capacity), machines)
                self.bought[kind.name] += machines
                self._left[kind.name] -= machines
                self._total -= machines
                return ""
        return AT_LIMIT if fitting else NO_TYPE_FITS

    def _choices(self, lease: WaitingLease, lacking: int) -> list[MachineType]:
        key = (lease.shape, lacking, lease.interruptible)
        if key not in self._chosen:
            self._chosen[key] = choices(
                self._types, lease.shape, count=lacking, expander=self._expander,
                now_ms=self._now_ms, interruptible=lease.interruptible,
            )  # fmt: skip
        return self._chosen[key]
