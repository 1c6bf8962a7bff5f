"""Requests to lists of violations: all of them, not the first."""

from __future__ import annotations

import re
from typing import Any, Final

from tenure.scheduler.v1 import pool_pb2 as ppb
from tenure.scheduler.v1 import scheduler_pb2 as spb
from tenure_core.errors import DomainError, Invalid, Violation
from tenure_core.policies.ordering import parse_ordering
from tenure_core.resources import AMOUNT_MAX, KINDS_MAX, is_kind
from tenure_core.timebase import DAY_MS, MINUTE_MS
from tenure_runtime.rpc.wire import span_to_millis
from tenure_scheduler.policy_choices import (
    ADMISSIONS,
    PLACEMENTS,
    PREEMPTIONS,
    WORDS,
    Choices,
)

ID: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
TEXT_MAX: Final = 1_000
SLOTS_MAX: Final = 10_000
DURATION_MS_MAX: Final = 366 * 86_400_000
OVERHEAD_MS_MAX: Final = 3_600_000
HALF_LIFE_MS_MAX: Final = 31 * DAY_MS
WEIGHTS_MAX: Final = 1_000
WEIGHT_MAX: Final = 1_000
NAME_MAX: Final = 63


def _check(found: list[Violation]) -> None:
    if found:
        raise Invalid(found)


def check_name(name: str, kind: str, field: str) -> None:
    """Raise Invalid unless `name` is `kind/ID` or a plain ID."""
    _check(_name(name, kind, field))


def _name(name: str, kind: str, field: str) -> list[Violation]:
    prefix, slash, identifier = name.rpartition("/")
    if (slash and prefix != kind) or not ID.fullmatch(identifier):
        text = f"is {kind}/ID, where ID is 1 to 63 lower-case letters, digits and hyphens"
        return [Violation(field, "NAME_INVALID", text)]
    return []


def check_pool(pool: ppb.Pool) -> None:
    """Raise Invalid with every violation of a pool."""
    found = _name(pool.name, "pools", "pool.name")
    if pool.policy:
        found += _name(pool.policy, "policies", "pool.policy")
    if len(pool.description) > TEXT_MAX:
        text = f"has at most {TEXT_MAX} characters"
        found.append(Violation("pool.description", "TOO_LONG", text))
    _check(found)


def check_policy(policy: ppb.Policy) -> None:
    """Raise Invalid with every violation of a policy."""
    found = _name(policy.name, "policies", "policy.name")
    found += _order(policy)
    known: tuple[tuple[str, str, Choices[Any]], ...] = (
        ("placement", policy.placement, PLACEMENTS),
        ("preemption_policy", policy.preemption_policy, PREEMPTIONS),
        ("admission", policy.admission, ADMISSIONS),
    )
    for field, name, choices in known:
        found += _choice(f"policy.{field}", name, choices) if name else []
    if policy.backfilling == ppb.Policy.BACKFILLING_INTERMEDIATE and not (
        1 <= policy.promise_count <= 1_000
    ):
        text = "lies in 1..1000 for intermediate backfilling"
        found.append(Violation("policy.promise_count", "OUT_OF_RANGE", text))
    if not 0 <= policy.depth <= 100_000:
        found.append(Violation("policy.depth", "OUT_OF_RANGE", "lies in 1..100000"))
    for field, span in (
        ("suspend_duration", policy.suspend_duration),
        ("resume_duration", policy.resume_duration),
    ):
        if not 0 <= span_to_millis(span) <= OVERHEAD_MS_MAX:
            found.append(Violation(f"policy.{field}", "OUT_OF_RANGE", "lies in 0..1 hour"))
    for field, number, numbers in (
        ("backfilling", policy.backfilling, ppb.Policy.Backfilling.values()),
        ("preemption", policy.preemption, ppb.Policy.Preemption.values()),
    ):
        if number not in numbers:
            text = f"is {number}, which this release does not know"
            found.append(Violation(f"policy.{field}", "UNKNOWN", text))
    _check(found)


def _choice(field: str, name: str, choices: Choices[Any]) -> list[Violation]:
    """Return what is wrong with the name of a policy: nobody offers it, or it cannot be made."""
    try:
        if choices.find(name) is not None:
            return []
    except DomainError as error:
        return [Violation(field, error.reason, error.message)]
    text = f"is one of {', '.join(choices.names())}, not {name[:NAME_MAX]!r}"
    return [Violation(field, "UNKNOWN", text)]


def _order(policy: ppb.Policy) -> list[Violation]:
    """Return what is wrong with the order of the queue and what goes with it."""
    found = []
    try:
        parse_ordering(policy.ordering or "fifo", offered=WORDS.find)
    except ValueError as error:
        found.append(Violation("policy.ordering", "UNKNOWN", str(error)))
    except DomainError as error:
        found.append(Violation("policy.ordering", error.reason, error.message))
    if len(policy.weights) > WEIGHTS_MAX:
        found.append(Violation("policy.weights", "TOO_MANY", f"names at most {WEIGHTS_MAX}"))
    for name, weight in policy.weights.items():
        if not (1 <= len(name) <= NAME_MAX and 1 <= weight <= WEIGHT_MAX):
            text = f"gives an owner or project a weight in 1..{WEIGHT_MAX}"
            found.append(Violation(f"policy.weights[{name[:NAME_MAX]}]", "OUT_OF_RANGE", text))
    if policy.HasField("age_duration") and not (
        MINUTE_MS <= span_to_millis(policy.age_duration) <= DURATION_MS_MAX
    ):
        text = "lies in 1 minute..366 days"
        found.append(Violation("policy.age_duration", "OUT_OF_RANGE", text))
    if policy.HasField("half_life_duration") and not (
        DAY_MS <= span_to_millis(policy.half_life_duration) <= HALF_LIFE_MS_MAX
    ):
        text = "lies in 1..31 days"
        found.append(Violation("policy.half_life_duration", "OUT_OF_RANGE", text))
    return found


def check_explain(request: spb.ExplainWaitingRequest) -> None:
    """Raise Invalid with every violation of a question about a waiting lease."""
    found = _name(request.pool, "pools", "pool") + _name(request.lease, "leases", "lease")
    if request.node_count_max < 0:
        found.append(Violation("node_count_max", "OUT_OF_RANGE", "is not negative"))
    if not 0 <= span_to_millis(request.duration_max) <= DURATION_MS_MAX:
        found.append(Violation("duration_max", "OUT_OF_RANGE", "lies in 0..366 days"))
    _check(found)


def check_what_if(request: spb.WhatIfRequest) -> None:
    """Raise Invalid with every violation of a hypothetical lease."""
    found = _name(request.pool, "pools", "pool")
    if not 1 <= request.node_count <= SLOTS_MAX:
        found.append(Violation("node_count", "OUT_OF_RANGE", f"lies in 1..{SLOTS_MAX}"))
    if not any(request.amounts.values()) or len(request.amounts) > KINDS_MAX:
        text = f"names 1 to {KINDS_MAX} kinds, one with an amount above 0"
        found.append(Violation("amounts", "REQUIRED", text))
    for kind, amount in request.amounts.items():
        if not is_kind(kind) or not 0 <= amount <= AMOUNT_MAX:
            field = f"amounts[{kind[:64]!r}]"
            found.append(Violation(field, "OUT_OF_RANGE", f"is a kind with 0..{AMOUNT_MAX}"))
    if not 1_000 <= span_to_millis(request.duration) <= DURATION_MS_MAX:
        found.append(Violation("duration", "OUT_OF_RANGE", "lies in 1 second..366 days"))
    chosen = [
        request.immediate,
        request.HasField("advance_start_time"),
        request.HasField("deadline_time"),
    ]
    if sum(chosen) > 1:
        text = "is given alone: a lease has one kind of terms"
        found.append(Violation("immediate", "CONFLICT", text))
    _check(found)
