"""What decides the next step of a lease, and the step itself: plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tenure_core.enactment.ranks import Rank
from tenure_core.leases.lease import Lease, Placement
from tenure_core.leases.states import LeaseState
from tenure_core.planning.snapshot import ReservationView
from tenure_core.timebase import SECOND_MS, Millis

RESUMED_MS_MIN: Final[Millis] = SECOND_MS
"""What a suspended lease is owed at least: a shorter run would be over before anyone is told."""


@dataclass(frozen=True, slots=True)
class Step:
    """What is to be recorded for one lease; commands follow from the state.

    With `release`, all reservations of the lease are given back too, before it is recorded: it is
    charged until then. With `release_past`, those whose time is over are (what a suspended lease
    keeps apart): a planner would take them for work that overran. `placements` are where it starts,
    when that is elsewhere than the lease says: a plan that it was recorded for came to nothing.
    """

    lease: str
    state: LeaseState
    reason: str
    message: str
    release: bool = False
    release_past: bool = False
    started: Millis | None = None
    ended: Millis | None = None
    remaining_ms: Millis | None = None
    exit_code: int | None = None
    preempted: bool = False
    failed: bool = False
    placements: tuple[Placement, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that decides the next step of one lease.

    `ranks` are those of the present attempt that reported. `gone` are nodes whose agent is lost
    and past its fence. `has_room` says whether whatever must have left its nodes has done so.
    `run_started` is when the present run became ACTIVE. `asked_slots` is the number of slots that
    the owner asked for and the leader has not decided on, 0 when it is to stay.
    """

    lease: Lease
    rows: tuple[ReservationView, ...]
    ranks: Mapping[int, Rank]
    gone: frozenset[str] = frozenset()
    has_room: bool = True
    run_started: Millis | None = None
    asked_slots: int = 0


def grace_ms(lease: Lease) -> Millis:
    """Return how long before the end of its time the work is told to stop.

    The owner's grace, but at most a tenth of the duration: a short run is not all grace.
    """
    return min(lease.spec.stop_grace_ms, lease.spec.duration_ms // 10)
