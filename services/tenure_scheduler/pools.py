"""Pools and the policies by which they are planned, as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tenure_core.policies.backfilling import Backfilling
from tenure_core.policies.bundle import HALF_LIFE_MS, Overheads, Policies
from tenure_core.policies.ordering import AGE_MAX_MS, OrderingTerms, parse_ordering
from tenure_core.policies.placement import HostSelection
from tenure_core.policies.preemption import (
    BookedPreemptBestEffort,
    NoPreemption,
    PreemptionPolicy,
)
from tenure_core.timebase import Millis

DEFAULT: Final = "default"
DEPTH_DEFAULT: Final = 10_000

PLACEMENTS: Final[dict[str, HostSelection]] = {
    "pack": HostSelection.BEST_FIT,
    "spread": HostSelection.WORST_FIT,
    "first": HostSelection.FIRST_FIT,
}
PREEMPTIONS: Final[dict[str, PreemptionPolicy]] = {
    "off": NoPreemption(),
    "suspend": BookedPreemptBestEffort(),
    "requeue": BookedPreemptBestEffort(suspends=False),
}


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes that are planned together by one leader."""

    id: str
    description: str = ""
    policy: str = DEFAULT
    cordoned: bool = False
    version: int = 1
    created: Millis = 0


@dataclass(frozen=True, slots=True)
class PoolPolicy:
    """How a pool is planned, in the words of the contract; `weights` of owners and projects."""

    id: str
    backfilling: str = "easy"
    promises: int = 1
    depth: int = DEPTH_DEFAULT
    preemption: str = "suspend"
    ordering: str = "fifo"
    placement: str = "pack"
    suspend_ms: Millis = 0
    resume_ms: Millis = 0
    version: int = 1
    weights: dict[str, int] = field(default_factory=dict)
    age_ms: Millis = AGE_MAX_MS
    half_life_ms: Millis = HALF_LIFE_MS

    def bundle(self) -> Policies:
        """Return what the planner is told."""
        backfilling = {
            "off": Backfilling.OFF,
            "easy": Backfilling.EASY,
            "conservative": Backfilling.CONSERVATIVE,
            "intermediate": Backfilling.intermediate(self.promises),
        }[self.backfilling]
        return Policies(
            backfilling=backfilling,
            ordering=parse_ordering(self.ordering, OrderingTerms(self.weights, self.age_ms)),
            host_selection=PLACEMENTS[self.placement],
            preemption=PREEMPTIONS[self.preemption],
            overheads=Overheads(self.suspend_ms, self.resume_ms),
            depth_max=self.depth,
            half_life_ms=self.half_life_ms,
        )


@dataclass(frozen=True, slots=True)
class PoolBook:
    """All pools and policies at one moment."""

    pools: dict[str, Pool] = field(default_factory=dict)
    policies: dict[str, PoolPolicy] = field(default_factory=dict)
