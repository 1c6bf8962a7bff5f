"""Say in plain sentences why a lease is where it is, what it waits for, and what would help.

Decides from what the book holds: the lease, its leader's last forecast, and the leases it depends
on. It asks no one, so it answers while every other service is away.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from tenure_admission import phrases
from tenure_admission.charges import OWNER, PROJECT, Charge, Excess, charged_if, exceeded
from tenure_admission.ports import LeaseReader, QuotaBook
from tenure_admission.quotas import limits_of
from tenure_admission.records import Forecast, LeaseRecord, StoredLease
from tenure_admission.usecases.viewer import Viewer, lease_not_found
from tenure_core.leases.lease import Advance, Deadline, DependencyCondition, Lease
from tenure_core.leases.states import ENDED, WAITING, LeaseState
from tenure_core.timebase import Clock, Interval, Millis, in_words

# A leader looks at its queue several times a second; after this long it is probably away.
LEADER_SILENT_MS: Millis = 30_000
QUOTA_REASONS: Final = ("QUOTA_EXCEEDED", "WAITING_FOR_QUOTA")


@dataclass(frozen=True, slots=True)
class Obstacle:
    """One thing that a lease waits for."""

    reason: str
    message: str
    subject: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a lease is where it is; the most important sentence first."""

    lease: StoredLease
    sentences: tuple[str, ...]
    obstacles: tuple[Obstacle, ...] = ()
    forecast: Forecast | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """What an explanation is made from."""

    record: LeaseRecord
    forecast: Forecast | None
    dependencies: Mapping[str, LeaseState] = field(default_factory=dict)
    now: Millis = 0
    excess: Excess | None = None


class Explaining:
    """Explains leases to those who may see them."""

    def __init__(
        self,
        reader: LeaseReader,
        quotas: QuotaBook,
        decode: Callable[[bytes], LeaseRecord],
        clock: Clock,
    ) -> None:
        self._reader = reader
        self._quotas = quotas
        self._decode = decode
        self._clock = clock

    async def explain(self, lease_id: str, viewer: Viewer) -> Explanation:
        """Return why the lease is where it is. Raises NotFound LEASE_NOT_FOUND."""
        stored = next(iter(await self._reader.get([lease_id])), None)
        if stored is None or not viewer.sees(stored.owner, stored.project, stored.pool):
            raise lease_not_found(lease_id)
        record = self._decode(stored.body)
        names = [each.lease for each in record.lease.spec.dependencies]
        needed = await self._reader.get(names) if names else []
        states = {each.id: each.state for each in needed}
        now = self._clock.now_ms()
        excess = None
        if stored.forecast is not None and stored.forecast.reason in QUOTA_REASONS:
            excess = await self._excess(record, now)
        facts = Facts(record, stored.forecast, states, now, excess)
        obstacles = obstacles_of(facts) if record.lease.state in WAITING else ()
        return Explanation(stored, sentences_of(facts, obstacles), obstacles, stored.forecast)

    async def _excess(self, record: LeaseRecord, now: Millis) -> Excess | None:
        """Return which quota would refuse the lease now, at the first instant it could be used."""
        lease = record.lease
        span = Interval(start := _earliest(lease, now), start + lease.spec.duration_ms)
        wanted = Charge(
            lease.id, lease.spec.owner, lease.spec.project, span, charged_if(lease.spec)
        )
        for subject in ((OWNER, lease.spec.owner), (PROJECT, lease.spec.project)):
            held = await self._quotas.holdings(subject)
            over = exceeded(wanted, held.charges, limits_of(held.quotas), now)
            if over is not None:
                return over
        return None


def _earliest(lease: Lease, now: Millis) -> Millis:
    match lease.spec.terms:
        case Advance(start=start):
            return max(now, start)
        case Deadline(earliest_start=earliest):
            return max(now, earliest or now)
        case _:
            return now


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
    if excess.asked > limit.amount:
        remedy = "It asks for more than the quota allows: ask for less, or have it raised."
    else:
        remedy = f"It starts once other leases of {limit.dimension} {limit.name} end."
    quota = f"quotas/{limit.quota}"
    return [Obstacle("QUOTA_EXCEEDED", phrases.of_excess(excess), quota, remedy)]


def sentences_of(facts: Facts, obstacles: tuple[Obstacle, ...]) -> tuple[str, ...]:
    """Return the explanation as sentences, the most important first."""
    lease = facts.record.lease
    told_below = any(obstacle.reason == lease.reason for obstacle in obstacles)
    shown = replace(lease, reason="", message="") if told_below else lease
    sentences = [phrases.of_state(shown, facts.now)]
    sentences += [obstacle.message for obstacle in obstacles]
    forecast = facts.forecast
    if lease.state in WAITING and forecast is not None:
        if forecast.queue_position:
            sentences.append(f"It is number {forecast.queue_position} in the queue.")
        if forecast.predicted_start is not None:
            sentences.append(f"It is expected to start at {in_words(forecast.predicted_start)}.")
    change = facts.record.change
    if change is not None:
        sentences.append(phrases.of_change(change))
    if lease.preemptions:
        sentences.append(f"It was preempted {phrases.times(lease.preemptions)}.")
    sentences += [obstacle.remedy for obstacle in obstacles if obstacle.remedy]
    return tuple(sentences)
