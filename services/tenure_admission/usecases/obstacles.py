"""What stands in a lease's way: dependencies, times, quotas, and what its leader last said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tenure_admission import phrases
from tenure_admission.charges import Excess
from tenure_admission.records import Forecast, LeaseRecord
from tenure_core.leases.lease import Advance, Deadline, DependencyCondition
from tenure_core.leases.states import ENDED, LeaseState
from tenure_core.timebase import Millis, in_words

# A leader looks at its queue several times a second; after this long it is probably away.
LEADER_SILENT_MS: Millis = 30_000


@dataclass(frozen=True, slots=True)
class Obstacle:
    """One thing that a lease waits for."""

    reason: str
    message: str
    subject: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """What an explanation is made from."""

    record: LeaseRecord
    forecast: Forecast | None
    dependencies: Mapping[str, LeaseState] = field(default_factory=dict)
    now: Millis = 0
    excess: Excess | None = None


def obstacles_of(facts: Facts) -> tuple[Obstacle, ...]:
    """Return what a waiting lease waits for, what its owner can change first."""
    found = [*_dependency_obstacles(facts), *_time_obstacles(facts), *_quota_obstacles(facts)]
    forecast = facts.forecast
    if forecast is not None and forecast.reason and facts.excess is None:
        known = {obstacle.reason for obstacle in found}
        if forecast.reason not in known:
            remedy = phrases.REMEDIES.get(forecast.reason, "")
            text = forecast.message or phrases.words_of(forecast.reason)
            found.append(Obstacle(forecast.reason, text, facts.record.lease.spec.pool, remedy))
    silent = forecast is None or facts.now - forecast.evaluated > LEADER_SILENT_MS
    age = facts.now - facts.record.lease.created
    if silent and age > LEADER_SILENT_MS:
        pool = facts.record.lease.spec.pool
        least = phrases.length(LEADER_SILENT_MS)
        text = f"The leader of pool {pool} has not looked at it for {least} or longer."
        remedy = f"Check that a scheduler serves pool {pool} (tenure status)."
        found.append(Obstacle("LEADER_SILENT", text, f"pools/{pool}", remedy))
    return tuple(found)


def _dependency_obstacles(facts: Facts) -> list[Obstacle]:
    found = []
    for each in facts.record.lease.spec.dependencies:
        state = facts.dependencies.get(each.lease)
        subject = f"leases/{each.lease}"
        succeeded = each.condition is DependencyCondition.SUCCEEDED
        if state in ENDED and succeeded and state is not LeaseState.DONE:
            assert state is not None
            text = f"{subject}, which must succeed first, ended as {state.value}."
            remedy = "Cancel this lease, or create it anew without that dependency."
            found.append(Obstacle("DEPENDENCY_FAILED", text, subject, remedy))
        elif state not in ENDED:
            how = "succeed" if succeeded else "end"
            present = state.value if state else "unknown"
            text = f"{subject} must {how} first; it is {present}."
            found.append(Obstacle("WAITING_FOR_DEPENDENCY", text, subject))
    return found


def _time_obstacles(facts: Facts) -> list[Obstacle]:
    terms = facts.record.lease.spec.terms
    if isinstance(terms, Advance) and terms.start > facts.now:
        text = f"It asks to start at {in_words(terms.start)}."
        return [Obstacle("WAITING_FOR_START_TIME", text)]
    if isinstance(terms, Deadline) and (terms.earliest_start or 0) > facts.now:
        assert terms.earliest_start is not None
        text = f"It asks not to start before {in_words(terms.earliest_start)}."
        return [Obstacle("WAITING_FOR_START_TIME", text)]
    return []


def _quota_obstacles(facts: Facts) -> list[Obstacle]:
    excess = facts.excess
    if excess is None:
        return []
    limit = excess.limit
    if limit.period:
        remedy = "It starts when charges come back, in another period, or once it is raised."
    elif excess.asked > limit.amount:
        remedy = "It asks for more than the quota allows: ask for less, or have it raised."
    else:
        remedy = f"It starts once other leases of {limit.dimension} {limit.name} end."
    quota = f"quotas/{limit.quota}"
    return [Obstacle("QUOTA_EXCEEDED", phrases.of_excess(excess), quota, remedy)]
