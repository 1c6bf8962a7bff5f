"""All policies of a pool as one frozen value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tenure_core.policies.admission import AcceptAll, AdmissionPolicy
from tenure_core.policies.backfilling import Backfilling
from tenure_core.policies.ordering import FIFO, Ordering
from tenure_core.policies.placement import HostRanking, HostSelection
from tenure_core.policies.preemption import BookedPreemptBestEffort, PreemptionPolicy
from tenure_core.policies.pricing import Free, PricingPolicy
from tenure_core.timebase import DAY_MS, SECOND_MS, Millis

HALF_LIFE_MS: Final[Millis] = 7 * DAY_MS


@dataclass(frozen=True, slots=True)
class Overheads:
    """Time that the suite itself takes around a run, booked like everything else.

    `suspend_ms` and `resume_ms` lie before a preemption's instant and before a resumed run.
    `shutdown_ms` follows the end of the work: what is booked to the end is longer by so much.
    """

    suspend_ms: Millis = 0
    resume_ms: Millis = 0
    shutdown_ms: Millis = 0


@dataclass(frozen=True, slots=True)
class Policies:
    """What the planner is told to do.

    `depth_max` limits how many waiting leases are looked at after the first that cannot start,
    None for all. `threshold_ms` is the shortest run worth suspending for: a victim that would have
    run for less by the time it must go is requeued instead. `half_life_ms` is in which time what
    was used counts half for fair share. `overrun_ms` is how long from now an
    overrun is taken to go on occupying its node.
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
    pricing: PricingPolicy = field(default_factory=Free)
