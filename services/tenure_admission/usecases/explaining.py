"""Say in plain sentences why a lease is where it is, what it waits for, and what would help.

Decides from what the book holds: the lease, its leader's last forecast, the leases it depends on,
and quotas. Leaders are asked for its place and for remedies; while they are away the rest is said.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from tenure_admission import phrases
from tenure_admission.ports import LeaseReader, Outlook
from tenure_admission.records import Forecast, LeaseRecord, StoredLease
from tenure_admission.usecases.obstacles import Facts, Obstacle, obstacles_of
from tenure_admission.usecases.predicates import PredicateResult, results_of
from tenure_admission.usecases.remedying import Remedying
from tenure_admission.usecases.viewer import lease_not_found
from tenure_core.admission.remedies import Suggestion
from tenure_core.identity.viewer import Viewer
from tenure_core.leases.lease import Lease
from tenure_core.leases.states import WAITING, LeaseState
from tenure_core.timebase import Clock, Millis, in_words

QUOTA_REASONS: Final = ("QUOTA_EXCEEDED", "WAITING_FOR_QUOTA")
WAITS_FOR_OTHERS: Final = frozenset({"WAITING_FOR_DEPENDENCY", "DEPENDENCY_FAILED"})


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a lease is where it is; the most important sentence first."""

    lease: StoredLease
    sentences: tuple[str, ...]
    obstacles: tuple[Obstacle, ...] = ()
    forecast: Forecast | None = None
    predicates: tuple[PredicateResult, ...] = ()
    outlook: Outlook | None = None
    remedies: tuple[tuple[Suggestion, str], ...] = ()
    predicted_start: Millis | None = None


class Explaining:
    """Explains leases to those who may see them."""

    def __init__(
        self,
        reader: LeaseReader,
        remedying: Remedying,
        decode: Callable[[bytes], LeaseRecord],
        clock: Clock,
    ) -> None:
        self._reader = reader
        self._remedying = remedying
        self._decode = decode
        self._clock = clock

    async def explain(self, lease_id: str, viewer: Viewer) -> Explanation:
        """Return why the lease is where it is. Raises NotFound LEASE_NOT_FOUND."""
        stored = next(iter(await self._reader.get([lease_id])), None)
        if stored is None or not viewer.sees(stored.owner, stored.project, stored.pool):
            raise lease_not_found(lease_id)
        record = self._decode(stored.body)
        now = self._clock.now_ms()
        if record.lease.state in WAITING:
            return await self._waiting(stored, record, now)
        facts = Facts(record, stored.forecast, now=now)
        if not _is_promised(record.lease, now):
            sentences = sentences_of(facts, (), None, ())
            return Explanation(stored, sentences, forecast=stored.forecast)
        under = await self._remedying.under(record.lease.spec, now)
        outlook, helps = await self._remedying.outlook(record.lease, under)
        remedies = _told(helps, record.lease, now)
        sentences = sentences_of(facts, (), outlook, remedies)
        return Explanation(
            stored,
            sentences,
            outlook=outlook,
            remedies=remedies,
            predicted_start=record.lease.predicted_start,
        )

    async def _waiting(self, stored: StoredLease, record: LeaseRecord, now: Millis) -> Explanation:
        lease, forecast = record.lease, stored.forecast
        names = [each.lease for each in lease.spec.dependencies]
        needed = await self._reader.get(names) if names else []
        states = {each.id: each.state for each in needed}
        under = await self._remedying.under(lease.spec, now)
        excesses = await self._remedying.excesses(lease, under)
        told = forecast is not None and forecast.reason in QUOTA_REASONS
        excess = next(iter(excesses.values()), None) if told else None
        facts = Facts(record, forecast, states, now, excess)
        obstacles = obstacles_of(facts)
        outlook, helps = await self._remedying.outlook(lease, under)
        if any(obstacle.reason in WAITS_FOR_OTHERS for obstacle in obstacles):
            helps = ()
        remedies = _told(helps, lease, now)
        checks = await self._reader.checks(lease.id)
        return Explanation(
            stored,
            sentences_of(facts, obstacles, outlook, remedies),
            obstacles,
            forecast,
            results_of(facts, obstacles, excesses, checks),
            outlook,
            remedies,
            _predicted(forecast, outlook, obstacles),
        )


def _is_promised(lease: Lease, now: Millis) -> bool:
    start = lease.predicted_start
    return lease.state is LeaseState.SCHEDULED and start is not None and start > now


def _told(
    helps: tuple[Suggestion, ...], lease: Lease, now: Millis
) -> tuple[tuple[Suggestion, str], ...]:
    return tuple((each, phrases.of_remedy(each, lease, now)) for each in helps)


def _predicted(
    forecast: Forecast | None, outlook: Outlook | None, obstacles: tuple[Obstacle, ...]
) -> Millis | None:
    """Return when it is expected to start: by the forecast, else when capacity alone decides."""
    if forecast is not None and forecast.predicted_start is not None:
        return forecast.predicted_start
    decides = {"WAITING_FOR_CAPACITY", "BEHIND_ANOTHER"}
    if outlook is None or not {obstacle.reason for obstacle in obstacles} <= decides:
        return None
    return outlook.start


def sentences_of(
    facts: Facts,
    obstacles: tuple[Obstacle, ...],
    outlook: Outlook | None,
    remedies: tuple[tuple[Suggestion, str], ...],
) -> tuple[str, ...]:
    """Return the explanation as sentences, the most important first."""
    lease = facts.record.lease
    told_below = any(obstacle.reason == lease.reason for obstacle in obstacles)
    shown = replace(lease, reason="", message="") if told_below else lease
    sentences = [phrases.of_state(shown, facts.now)]
    sentences += [obstacle.message for obstacle in obstacles]
    if lease.state in WAITING:
        sentences += _expectations(facts.forecast, outlook, obstacles)
    change = facts.record.change
    if change is not None:
        sentences.append(phrases.of_change(change))
    if lease.preemptions:
        sentences.append(f"It was preempted {phrases.times(lease.preemptions)}.")
    sentences += [obstacle.remedy for obstacle in obstacles if obstacle.remedy]
    sentences += [text for _, text in remedies]
    return tuple(sentences)


def _expectations(
    forecast: Forecast | None, outlook: Outlook | None, obstacles: tuple[Obstacle, ...]
) -> list[str]:
    sentences = []
    if outlook is not None and outlook.position:
        place = f"It is number {outlook.position} of {outlook.total} in the queue. {outlook.place}"
        sentences.append(place)
    elif forecast is not None and forecast.queue_position:
        sentences.append(f"It is number {forecast.queue_position} in the queue.")
    start = _predicted(forecast, outlook, obstacles)
    if start is not None:
        sentences.append(f"It is expected to start at {in_words(start)}.")
    return sentences
