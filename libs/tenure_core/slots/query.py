"""What is asked of the slot table, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tenure_core.resources import ResourceVector
from tenure_core.timebase import FOREVER, Interval, Millis


@dataclass(frozen=True, slots=True)
class Demand:
    """`count` slots of `amounts` each, on nodes whose attributes match `selector`.

    Several slots may share a node unless `spread`. `nodes`, when not None, names the only nodes
    that may be used. `turn` is for rankings that go round: the number of the lease.
    """

    amounts: ResourceVector
    count: int
    selector: Mapping[str, str] = field(default_factory=dict)
    spread: bool = False
    nodes: frozenset[str] | None = None
    turn: int = 0

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"a demand is for at least one slot, not {self.count}")


@dataclass(frozen=True, slots=True)
class Fit:
    """The demand fits from `start`; `nodes[rank]` is where slot `rank` goes."""

    start: Millis
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodeAvailability:
    """What is free on one node: (from, amounts) in ascending time, each until the next."""

    node: str
    free: tuple[tuple[Millis, ResourceVector], ...]


@dataclass(frozen=True, slots=True)
class Window:
    """When a start is wanted: in [not_before, latest], for `duration_ms`."""

    duration_ms: Millis
    not_before: Millis
    latest: Millis = FOREVER

    def at(self, start: Millis) -> Interval:
        """Return the span from `start`."""
        return Interval(start, start + self.duration_ms)
