"""All policies of a pool as one frozen value."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from tenure_core.policies.admission import AcceptAll, AdmissionPolicy
from tenure_core.policies.backfilling import Backfilling
from tenure_core.policies.ordering import FIFO, Ordering
from tenure_core.policies.placement import HostRanking, HostSelection
from tenure_core.policies.preemption import BookedPreemptBestEffort, PreemptionPolicy
from tenure_core.policies.pricing import Free, PricingPolicy
from tenure_core.resources import ResourceVector
from tenure_core.timebase import DAY_MS, SECOND_MS, Millis

HALF_LIFE_MS: Final[Millis] = 7 * DAY_MS
MEGABIT: Final = 2**20 // 8
"""Bytes: a hundred of these a second are what people call 100 Mb/s."""


class Migration(Enum):
    """Whether a suspended lease may resume on other nodes, and whether its state must move."""

    NO = "no"
    YES = "yes"
    YES_NOTRANSFER = "yes-notransfer"


@dataclass(frozen=True, slots=True)
class Overheads:
    """Time that the suite itself takes around a run, booked like everything else.

    `suspend_ms` and `resume_ms` lie before a preemption's instant and before a resumed run.
    `shutdown_ms` follows the end of the work: what is booked to the end is longer by so much.
    What a suspended lease keeps moves at `move_bytes_s`, and is as large as its memory.
    """

    suspend_ms: Millis = 0
    resume_ms: Millis = 0
    shutdown_ms: Millis = 0
    migration: Migration = Migration.NO
    move_bytes_s: int = 0

    def __post_init__(self) -> None:
        if self.migration is Migration.YES and self.move_bytes_s < 1:
            raise ValueError("state that moves needs a bandwidth")

    def move_ms(self, slot: ResourceVector) -> Millis:
        """Return how long the state of one slot takes to move, rounded up."""
        if self.migration is not Migration.YES:
            return 0
        return -(-slot["memory"] * 1_000 // self.move_bytes_s)


@dataclass(frozen=True, slots=True)
class Policies:
    """What the planner is told to do.

    `depth_max` limits how many waiting leases are looked at after the first that cannot start,
    None for all. `threshold_ms` is the shortest run worth suspending for: a victim that would have
    run for less by the time it must go is requeued instead. `half_life_ms` is in which time what
    was used counts half for fair share. `overrun_ms` is how long from now an
    overrun is taken to go on occupying its node. With `partial_starts` best-effort leases may begin
    although they will have to be suspended for what is booked behind them.
    """

    backfilling: Backfilling = Backfilling.EASY
    ordering: Ordering = FIFO
    host_selection: HostSelection | HostRanking = HostSelection.BEST_FIT
    preemption: PreemptionPolicy = field(default_factory=BookedPreemptBestEffort)
    overheads: Overheads = field(default_factory=Overheads)
    depth_max: int | None = None
    threshold_ms: Millis = 0
    half_life_ms: Millis = HALF_LIFE_MS
    overrun_ms: Millis = 5 * SECOND_MS
    admission: AdmissionPolicy = field(default_factory=AcceptAll)
    partial_starts: bool = False
    pricing: PricingPolicy = field(default_factory=Free)
