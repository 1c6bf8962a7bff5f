"""The options of the ancestor that decide something, by its own names."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tenure_core.policies.bundle import Migration


class Suspension(Enum):
    """Which leases may be suspended."""

    NONE = "none"
    SERIAL_ONLY = "serial-only"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class HaizeaRules:
    """What is decided how. Rates are MB/s, bandwidth Mb/s, sizes MB, times whole seconds.

    `futures_max` is the number of future leases that backfilling allows, None for no limit.
    `first_release` selects the rules of release 1.0 where they differ from the later branch.
    """

    futures_max: int | None
    passing: bool
    suspension: Suspension
    migration: Migration = Migration.NO
    suspend_rate: float = 32.0
    resume_rate: float = 32.0
    suspend_override: int | None = None
    resume_override: int | None = None
    global_exclusion: bool = False
    threshold_factor: int = 1
    threshold: int | None = None
    shutdown_s: int = 0
    enactment_s: int = 0
    greedy_hosts: bool = True
    advance_preempts: bool = True
    deadlines_yield: bool = False
    accepts_advance: bool = True
    bandwidth: int = 100
    transfers: bool = False
    multicast: bool = True
    avoids_redundant: bool = True
    caches: bool = False
    cache_size: int = -1
    forced_transfer: int | None = None
    first_release: bool = False
