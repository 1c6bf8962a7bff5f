"""What a leader answers about its queue: who waits, since when, until when, and what if.

Predictions run the planner itself on the leader's present snapshot, with a promise for everybody,
and book nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tenure_core.admission.remedies import Suggestion, Terms, suggestions
from tenure_core.leases.lease import Advance, BestEffort, Deadline, LeaseSpec
from tenure_core.leases.states import WAITING, LeaseState
from tenure_core.planning import plan as p
from tenure_core.planning.book import PlanningBook
from tenure_core.planning.planner import plan
from tenure_core.planning.prospects import Prospects
from tenure_core.planning.snapshot import LeaseView
from tenure_core.policies.backfilling import Backfilling
from tenure_core.policies.bundle import Policies
from tenure_core.resources import ResourceVector
from tenure_core.timebase import MINUTE_MS, Millis
from tenure_scheduler.entries import LeaseEntry
from tenure_scheduler.leader import Reign

HYPOTHETICAL = "what-if"
STEP_MS: Millis = MINUTE_MS
"""Shorter durations are suggested in whole minutes."""


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """One waiting lease, its place from 1, and what it waits for."""

    position: int
    lease: LeaseEntry
    reason: str
    message: str
    predicted_start: Millis | None


@dataclass(frozen=True, slots=True)
class StartPrediction:
    """When one lease is expected to start; None when never or unknown."""

    lease: str
    start: Millis | None
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What would become of a lease that does not exist."""

    accepted: bool
    start: Millis | None = None
    nodes: tuple[str, ...] = ()
    preempted: tuple[str, ...] = ()
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Outlook:
    """Where a waiting lease stands; `start` is when it starts as it is, None when never."""

    position: int
    total: int
    place: str
    start: Millis | None
    suggestions: tuple[Suggestion, ...]


@dataclass(frozen=True, slots=True)
class DemandEntry:
    """What one lease waits for: all its slots at once."""

    lease: str
    node_count: int
    amounts: ResourceVector
    duration_ms: Millis
    node_selector: dict[str, str]
    spread: bool
    created: Millis


def queue(reign: Reign, policies: Policies) -> list[QueueEntry]:
    """Return the waiting leases in the order in which they are looked at."""
    book = PlanningBook.of(
        reign.cycle.booker.snapshots.take(reign.clock.now_ms()),
        policies,
    )
    waiting = [
        reign.mirror.leases[view.id]
        for view in policies.ordering.arranged(
            [
                book.leases[entry.lease.id]
                for entry in reign.mirror.leases.values()
                if entry.lease.state in WAITING or _waits_to_resume(reign, entry)
            ],
            book,
        )
    ]
    outcome = reign.cycle.outcome
    told = outcome.predictions if outcome is not None else {}
    entries = []
    for position, entry in enumerate(waiting, 1):
        expected = told.get(entry.lease.id)
        entries.append(
            QueueEntry(
                position,
                entry,
                expected.reason if expected else entry.lease.reason or "NOT_LOOKED_AT",
                expected.message if expected else entry.lease.message,
                expected.start if expected else None,
            )
        )
    return entries


def _waits_to_resume(reign: Reign, entry: LeaseEntry) -> bool:
    if entry.lease.state is not LeaseState.SUSPENDED:
        return False
    now = reign.clock.now_ms()
    rows = reign.mirror.rows_of(entry.lease.id)
    return not any(row.kind.value == "RUN" and row.interval.end > now for row in rows)


def predict(reign: Reign, policies: Policies, wanted: Iterable[str]) -> list[StartPrediction]:
    """Return when waiting leases start if nothing else comes, in queue order."""
    names = set(wanted)
    now = reign.clock.now_ms()
    made = plan(reign.cycle.booker.snapshots.take(now), _promising(policies))
    starts = {d.lease: d for d in made.decisions if isinstance(d, p.Schedule | p.Resume)}
    why = {d.lease: d for d in made.decisions if isinstance(d, p.Queue | p.Reject)}
    found = []
    for entry in queue(reign, policies):
        name = entry.lease.lease.id
        if names and name not in names:
            continue
        booked = starts.get(name)
        refusal = why.get(name)
        found.append(
            StartPrediction(
                name,
                booked.interval.start if booked else None,
                refusal.reason if refusal else entry.reason,
                refusal.message if refusal else entry.message,
            )
        )
    return found


def what_if(reign: Reign, policies: Policies, spec: LeaseSpec) -> WhatIf:
    """Return what the planner would do with one more lease now."""
    now = reign.clock.now_ms()
    present = reign.cycle.booker.snapshots.take(now)
    arrival = 1 + max((view.arrival for view in present.leases), default=0)
    view = LeaseView(
        id=HYPOTHETICAL,
        spec=spec,
        state=LeaseState.PENDING,
        attempt=0,
        arrival=arrival,
        created=now,
        remaining_ms=spec.duration_ms,
    )
    snapshot = replace(present, leases=(*present.leases, view))
    made = plan(snapshot, _promising(policies))
    decision = made.decision_of(HYPOTHETICAL)
    preempted = tuple(
        sorted(d.lease for d in made.decisions if isinstance(d, p.Preempt) and d.by == view.id)
    )
    match decision:
        case p.Schedule(interval=interval, placements=placements):
            nodes = tuple(placement.node for placement in placements)
            return WhatIf(True, interval.start, nodes, preempted)
        case p.Queue(reason=reason, message=message):
            return WhatIf(True, decision.predicted_start, reason=reason, message=message)
        case p.Reject(reason=reason, message=message):
            return WhatIf(False, reason=reason, message=message)
        case _:
            return WhatIf(False, reason="NOT_DECIDED", message="The planner did not look at it.")


def outlook(
    reign: Reign,
    policies: Policies,
    lease: str,
    node_count_max: int | None,
    duration_ms_max: Millis | None,
) -> Outlook | None:
    """Return where a waiting lease stands and what would help; None for one that does not wait.

    Costs two plans of the queue before it and some 40 searches of the slot table.
    """
    snapshot = reign.cycle.booker.snapshots.take(reign.clock.now_ms())
    found = Prospects.of(snapshot, policies, lease)
    if found is None:
        return None
    asked = Terms(found.lease.spec.node_count, found.lease.remaining_ms)
    most = Terms(
        asked.node_count if node_count_max is None else node_count_max,
        asked.duration_ms if duration_ms_max is None else duration_ms_max,
    )

    def start_of(terms: Terms) -> Millis | None:
        return found.start_of(terms.node_count, terms.duration_ms)

    helps = suggestions(asked, most, start_of, step_ms=STEP_MS, least_ms=STEP_MS)
    waits = isinstance(found.lease.spec.terms, BestEffort) and found.lease.state in WAITING
    total = len(found.before) + 1 + found.behind if waits else found.behind
    return Outlook(
        position=len(found.before) + 1 if waits else 0,
        total=total,
        place=found.place() if waits else "",
        start=start_of(asked),
        suggestions=tuple(helps),
    )


def demand(reign: Reign) -> tuple[DemandEntry, ...]:
    """Return what waits for capacity now, oldest first.

    What may only start later is no demand of the present: once booked it is in the slot table.
    """
    now = reign.clock.now_ms()
    waiting = [
        entry.lease
        for entry in reign.mirror.leases.values()
        if entry.lease.state in WAITING and _may_start(entry.lease.spec, now)
    ]
    waiting.sort(key=lambda lease: (lease.created, lease.id))
    return tuple(
        DemandEntry(
            lease.id,
            lease.spec.node_count,
            lease.spec.amounts,
            lease.spec.duration_ms,
            dict(lease.spec.node_selector),
            lease.spec.spread,
            lease.created,
        )
        for lease in waiting
    )


def _may_start(spec: LeaseSpec, now: Millis) -> bool:
    match spec.terms:
        case Advance(start=start):
            return start <= now
        case Deadline(earliest_start=earliest):
            return earliest is None or earliest <= now
        case _:
            return True


def _promising(policies: Policies) -> Policies:
    return replace(policies, backfilling=Backfilling.CONSERVATIVE)
