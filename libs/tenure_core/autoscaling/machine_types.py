"""The kinds of machine a fleet may buy, and which of several that fit to take.

Prices are micro-units of money an hour. Ties are broken by name, so that equal inputs give equal
choices. How many are needed is decided in `queue_packing` and `fleet`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from tenure_core.autoscaling.future_node import NodeTimes
from tenure_core.autoscaling.provider_errors import CLEAN, Backoff
from tenure_core.resources import ResourceVector
from tenure_core.timebase import HOUR_MS, MINUTE_MS, SECOND_MS, Millis

DEFAULT_TIMES = NodeTimes(
    boot_p95_ms=120 * SECOND_MS,
    resume_p95_ms=30 * SECOND_MS,
    suspend_p95_ms=30 * SECOND_MS,
    guard_ms=20 * SECOND_MS,
    idle_suspend_after_ms=5 * MINUTE_MS,
    idle_terminate_after_ms=HOUR_MS,
    suspended_terminate_after_ms=24 * HOUR_MS,
)
"""What is assumed of a type before anything has been measured."""


class Expander(StrEnum):
    """How to choose among machine types that all fit."""

    CHEAPEST = "CHEAPEST"
    LEAST_WASTE = "LEAST_WASTE"
    FEWEST_NODES = "FEWEST_NODES"
    PRIORITY = "PRIORITY"


@dataclass(frozen=True, slots=True)
class MachineType:
    """One kind of machine in one zone.

    `max_count` caps machines of the type that exist in any state. `launches_per_minute` is the
    provider's rate. Without `can_suspend` a machine can neither be suspended nor resumed. A `spot`
    machine may be taken back on notice, so nothing that must not be interrupted is put on it. What
    is booked is begun `replace_ms` before its lead. `can_leave` says that a node may lose its
    machine while something is booked on it, as another will back it in time.
    """

    name: str
    capacity: ResourceVector
    price_micros: int = 0
    zone: str = ""
    spot: bool = False
    can_suspend: bool = True
    max_count: int = 2**31
    priority: int = 0
    launches_per_minute: int = 60
    replace_ms: Millis = 0
    can_leave: bool = False
    times: NodeTimes = field(default=DEFAULT_TIMES)
    backoff: Backoff = CLEAN

    def available_at(self, now_ms: Millis) -> bool:
        """Say whether the provider may be asked for one now (P18)."""
        return self.backoff.open_at(now_ms)


Rank = Callable[[MachineType, ResourceVector, int], tuple[int, ...]]


def _price(kind: MachineType, shape: ResourceVector, count: int) -> int:
    return kind.price_micros * _machines(kind, shape, count)


def _machines(kind: MachineType, shape: ResourceVector, count: int) -> int:
    return -(-count // max(1, shape.times_in(kind.capacity)))


def _waste(kind: MachineType, shape: ResourceVector, count: int) -> int:
    """Return the share of the bought capacity left over, in ppm, summed over the asked kinds."""
    machines = _machines(kind, shape, count)
    return sum(
        1_000_000 - shape[name] * count * 1_000_000 // (kind.capacity[name] * machines)
        for name in shape
    )


_RANKS: dict[Expander, Rank] = {
    Expander.CHEAPEST: lambda kind, shape, count: (
        _price(kind, shape, count), _waste(kind, shape, count),
    ),
    Expander.LEAST_WASTE: lambda kind, shape, count: (
        _waste(kind, shape, count), _price(kind, shape, count),
    ),
    Expander.FEWEST_NODES: lambda kind, shape, count: (
        _machines(kind, shape, count), _price(kind, shape, count),
    ),
    Expander.PRIORITY: lambda kind, shape, count: (
        -kind.priority, _price(kind, shape, count), _waste(kind, shape, count),
    ),
}  # fmt: skip


def choices(
    types: Sequence[MachineType],
    shape: ResourceVector,
    *,
    count: int,
    expander: Expander,
    now_ms: Millis,
    interruptible: bool = True,
) -> list[MachineType]:
    """Return the types that can carry `count` times `shape`, the best first.

    A type counts when one machine holds the shape, its provider may be asked now, and it is not
    spot for work that must not be interrupted. O(types log types).
    """
    fitting = [
        kind
        for kind in types
        if shape.fits_in(kind.capacity)
        and kind.available_at(now_ms)
        and (interruptible or not kind.spot)
    ]
    rank = _RANKS[expander]
    return sorted(fitting, key=lambda kind: (*rank(kind, shape, count), kind.name))
