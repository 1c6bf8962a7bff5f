"""What is asked of a waiting lease before it may start, and what was last found of each.

A leader asks in the order of `ORDER` and tells the first that stands in the way; what it told
before says since when the others do not. Quotas, dependencies and times are asked anew here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tenure_admission import phrases
from tenure_admission.charges import OWNER, PROJECT, Excess
from tenure_admission.records import Checks, Forecast
from tenure_admission.usecases.obstacles import Facts, Obstacle
from tenure_core.timebase import Millis

ORDER: Final[Mapping[str, frozenset[str]]] = {
    "POOL_OPEN": frozenset({"POOL_CORDONED"}),
    "START_TIME": frozenset({"WAITING_FOR_START_TIME"}),
    "DEPENDENCIES": frozenset(
        {"DEPENDENCY_PENDING", "WAITING_FOR_DEPENDENCY", "DEPENDENCY_FAILED"}
    ),
    "OWNER_QUOTA": frozenset({"QUOTA_EXCEEDED"}),
    "PROJECT_QUOTA": frozenset({"QUOTA_EXCEEDED"}),
    "PLACE_IN_QUEUE": frozenset({"BEHIND_ANOTHER"}),
    "NODES_SUITABLE": frozenset({"NO_SUITABLE_NODES"}),
    "CAPACITY": frozenset({"WAITING_FOR_CAPACITY", "PLAN_REFUSED"}),
}
"""The predicates, and by which reasons each is told to stand in the way."""

_SUBJECTS: Final = {"OWNER_QUOTA": OWNER, "PROJECT_QUOTA": PROJECT}
_ASKED_HERE: Final = frozenset({"START_TIME", "DEPENDENCIES"})


@dataclass(frozen=True, slots=True)
class PredicateResult:
    """What was last found; `since` is None when nobody looked yet."""

    predicate: str
    blocks: bool
    reason: str = ""
    message: str = ""
    since: Millis | None = None


def results_of(
    facts: Facts, obstacles: Iterable[Obstacle], excesses: Mapping[str, Excess], checks: Checks
) -> tuple[PredicateResult, ...]:
    """Return the last result of each predicate, in the order in which they are asked."""
    told = {obstacle.reason: obstacle for obstacle in obstacles}
    return tuple(_result(name, facts, told, excesses, checks) for name in ORDER)


def _result(
    predicate: str,
    facts: Facts,
    told: Mapping[str, Obstacle],
    excesses: Mapping[str, Excess],
    checks: Checks,
) -> PredicateResult:
    excess = excesses.get(_SUBJECTS.get(predicate, ""))
    if excess is not None:
        since = _open_since(checks, predicate)
        return PredicateResult(
            predicate, True, "QUOTA_EXCEEDED", phrases.of_excess(excess), since or facts.now
        )
    if predicate not in _SUBJECTS:
        for reason in sorted(ORDER[predicate] & told.keys()):
            since = _open_since(checks, predicate)
            if since is None and predicate in _ASKED_HERE:
                since = facts.record.lease.created
            return PredicateResult(predicate, True, reason, told[reason].message, since)
    return PredicateResult(predicate, False, since=_passed_since(predicate, facts, checks))


def _open_since(checks: Checks, predicate: str) -> Millis | None:
    spells = (checks[reason] for reason in ORDER[predicate] & checks.keys())
    return min((spell[0] for spell in spells if len(spell) == 1), default=None)


def _passed_since(predicate: str, facts: Facts, checks: Checks) -> Millis | None:
    """Return since when it does not stand in the way; None when nobody got that far."""
    ends = [spell[-1] for reason, spell in checks.items() if reason in ORDER[predicate]]
    if ends:
        return max(ends)
    if predicate in _ASKED_HERE or predicate in _SUBJECTS:
        return facts.record.lease.created
    return _first_look(checks) if _was_reached(predicate, facts.forecast) else None


def _first_look(checks: Checks) -> Millis | None:
    return min((spell[0] for spell in checks.values()), default=None)


def _was_reached(predicate: str, forecast: Forecast | None) -> bool:
    """Say whether the leader got past this predicate when it last looked."""
    if forecast is None:
        return False
    names = list(ORDER)
    at = next((name for name in names if forecast.reason in ORDER[name]), names[-1])
    return names.index(predicate) < names.index(at)
