"""Suites idle-check, usage-metering and fair-share: what was used, by whom, and whether it is."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Final

from tests.conformance.backendai_case import Case, Json, Operation, amounts, instant, known

from tenure_core.admission import idle
from tenure_core.admission.fair_share import (
    Factors,
    FairShareTerms,
    Mean,
    Standing,
    ranks,
    standing,
)
from tenure_core.admission.quantities import plain
from tenure_core.admission.usage import UsageSlice, by_day, meter

_MILLIS: Final = 1000
_EXACT: Final = Context(prec=60)


def _seconds(number: float | int | None) -> int | None:
    return None if number is None else round(number * _MILLIS)


def _idle_check(case: Json, *, credit_last_use: bool = False) -> Json:
    known(
        case,
        {
            "checker", "max_s", "started_s", "deadline_s", "last_access_s", "connections", "now_s",
            "threshold", "value",
        },
    )  # fmt: skip
    now, limit = round(case["now_s"] * _MILLIS), round(case["max_s"] * _MILLIS)
    deadline = _seconds(case.get("deadline_s"))
    verdict: idle.IdleVerdict | None
    if case["checker"] == "network":
        access = case["last_access_s"]
        in_flight = access == "in-flight"
        verdict = idle.network(
            now,
            limit,
            deadline,
            in_flight=in_flight,
            connections=case["connections"],
            last_used=_seconds(access) if credit_last_use and not in_flight else None,
        )
    elif case["checker"] == "lifetime":
        verdict = idle.lifetime(now, limit, _seconds(case["started_s"]))
    else:
        assert case["checker"] == "utilization", case["checker"]
        value = case["value"]
        verdict = idle.utilization(
            now,
            limit,
            deadline,
            None if value is None else Decimal(value),
            Decimal(case["threshold"]),
        )
    if verdict is None:
        return {"decision": None}
    whole, rest = divmod(verdict.deadline, _MILLIS)
    return {
        "phase": verdict.phase.value,
        "deadline_s": whole if rest == 0 else verdict.deadline / _MILLIS,
    }


def _idle_check_better(case: Case) -> None:
    """The deadline is never before the last use plus the limit."""
    answer = _idle_check(case.input, credit_last_use=True)
    access = case.input.get("last_access_s")
    assert isinstance(access, int | float)
    least = access + case.input["max_s"]
    assert answer["deadline_s"] >= least
    assert (answer["phase"] == "IDLE_EXPIRED") == (answer["deadline_s"] <= case.input["now_s"])


def _moment(moment: str) -> int:
    micros = instant(moment)
    assert micros % _MILLIS == 0, moment
    return micros // _MILLIS


def _written(millis: int) -> str:
    point = datetime.fromtimestamp(millis // _MILLIS, UTC).replace(
        microsecond=millis % _MILLIS * 1000
    )
    return point.isoformat().replace("+00:00", "Z")


def _usage(usage: Mapping[str, int]) -> dict[str, str]:
    return {kind: plain(_EXACT.scaleb(Decimal(amount), -9)) for kind, amount in usage.items()}


def _slice(piece: UsageSlice) -> Json:
    return {
        "start": _written(piece.span.start),
        "end": _written(piece.span.end),
        "usage": _usage(piece.usage),
    }


def _meter_usage(case: Json) -> Json:
    known(case, {"slots", "started_at", "terminated_at", "last_observed_at", "now"})
    ended, observed = case.get("terminated_at"), case.get("last_observed_at")
    found = meter(
        amounts(case["slots"]),
        _moment(case["started_at"]),
        _moment(case["now"]),
        ended=None if ended is None else _moment(ended),
        observed_until=None if observed is None else _moment(observed),
    )
    return {
        "slices": [_slice(piece) for piece in found.slices],
        "observed_until": _written(found.observed_until),
        "days": {
            date.fromordinal(date(1970, 1, 1).toordinal() + day).isoformat(): _usage(usage)
            for day, usage in by_day(found.slices).items()
        },
    }


def _meter_agrees(answer: Json, expect: Json) -> None:
    if "slice_count" in expect:
        assert len(answer["slices"]) == expect["slice_count"]
        first, last = answer["slices"][0], answer["slices"][-1]
        answer = {**answer, "slices": [first, last], "slice_count": expect["slice_count"]}
    assert answer == expect


def _meter_usage_better(case: Case) -> None:
    """Slices are as expected, and each day is exactly the sum of its slices."""
    answer = _meter_usage(case.input)
    assert answer["slices"] == case.expect["slices"]
    assert answer["observed_until"] == case.expect["observed_until"]
    sums: dict[str, dict[str, Decimal]] = {}
    for piece in answer["slices"]:
        day = sums.setdefault(piece["start"][:10], {})
        for kind, amount in piece["usage"].items():
            day[kind] = day.get(kind, Decimal(0)) + Decimal(amount)
    assert {
        day: {kind: Decimal(amount) for kind, amount in usage.items()}
        for day, usage in answer["days"].items()
    } == sums


_LEVELS: Final = ("domains", "projects", "users")


def _decimals(slots: Mapping[str, str]) -> dict[str, Decimal]:
    return {kind: Decimal(number) for kind, number in slots.items()}


def _rounded(number: Decimal, digits: int) -> str:
    step = Decimal(1).scaleb(-digits)
    return plain(number.quantize(step, ROUND_HALF_EVEN, _EXACT))


def _terms(case: Json, *, ours: bool) -> FairShareTerms:
    return FairShareTerms(
        half_life=Decimal(case["half_life_days"]),
        lookback=Decimal(case["lookback_days"]),
        capacity=_decimals(case["capacity"]),
        kind_weights=_decimals(case["resource_weights"]),
        default_weight=Decimal(case.get("default_weight", "1")),
        mean=Mean.OF_POOL_KINDS if ours else Mean.OF_TOUCHED_KINDS,
        exponent_max=None if ours else Decimal(10),
    )


def _standings(case: Json, *, ours: bool) -> dict[str, dict[str, Standing]]:
    known(
        case,
        {
            "today", "half_life_days", "lookback_days", "capacity", "resource_weights",
            "default_weight", "weights", "project_domains", *_LEVELS,
        },
    )  # fmt: skip
    terms = _terms(case, ours=ours)
    today = date.fromisoformat(case["today"]).toordinal()
    result: dict[str, dict[str, Standing]] = {}
    for level in _LEVELS:
        weights = case.get("weights", {}).get(level, {})
        for name, history in case.get(level, {}).items():
            days = {date.fromisoformat(day).toordinal(): _decimals(u) for day, u in history.items()}
            weight = weights.get(name)
            result.setdefault(level, {})[name] = standing(
                days, today, None if weight is None else Decimal(weight), terms
            )
    return result


def _ranks(case: Json, standings: Mapping[str, Mapping[str, Standing]]) -> list[tuple[int, str]]:
    factors = {}
    for user, own in standings.get("users", {}).items():
        project = user.partition("/")[0]
        domain = case["project_domains"][project]
        factors[user] = Factors(
            standings["domains"][domain].factor, standings["projects"][project].factor, own.factor
        )
    return ranks(factors)


def _fair_share(case: Json) -> Json:
    standings = _standings(case, ours=False)
    answer: Json = {
        level: {
            name: {
                "decayed": {kind: _rounded(used, 6) for kind, used in found.decayed.items()},
                "normalized": _rounded(found.normalized, 9),
                "factor": _rounded(found.factor, 9),
            }
            for name, found in members.items()
        }
        for level, members in standings.items()
    }
    answer["ranks"] = [list(entry) for entry in _ranks(case, standings)]
    return answer


def _fair_share_better(case: Case) -> None:
    """More use of the pool, at one weight, is always a lower factor; see the rules inside.

    A weight of 0 entitles to nothing and fails nobody; equal factors share a rank.
    """
    standings = _standings(case.input, ours=True)
    weights = case.input.get("weights", {})
    capacity = {kind: Decimal(n) for kind, n in case.input["capacity"].items() if Decimal(n) > 0}
    for level, members in standings.items():
        for name, found in members.items():
            if weights.get(level, {}).get(name) == "0":
                assert found.factor == 0
            else:
                assert 0 < found.factor <= 1
        for one in members.values():
            heavier = standing(
                {0: {kind: 2 * used for kind, used in one.decayed.items()}},
                0,
                None,
                _terms(case.input, ours=True),
            )
            lighter = standing({0: one.decayed}, 0, None, _terms(case.input, ours=True))
            used_here = any(one.decayed.get(kind) for kind in capacity)
            assert heavier.factor < lighter.factor or not used_here
            for other in members.values():
                more = all(
                    other.decayed.get(kind, 0) >= one.decayed.get(kind, 0) for kind in capacity
                )
                assert not more or other.normalized >= one.normalized
    ranked = _ranks(case.input, standings)
    places = {user: rank for rank, user in ranked}
    for user, rank in places.items():
        own = standings["users"][user]
        for other, other_rank in places.items():
            same_project = user.partition("/")[0] == other.partition("/")[0]
            if same_project and standings["users"][other].factor == own.factor:
                assert rank == other_rank


OPERATIONS: Final = {
    "idle_check": Operation(_idle_check, _idle_check_better),
    "meter_usage": Operation(_meter_usage, _meter_usage_better, _meter_agrees),
    "fair_share_factors": Operation(_fair_share, _fair_share_better),
}
