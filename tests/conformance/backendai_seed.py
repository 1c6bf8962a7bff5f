"""Suites seed-predicates and seed-pass: the first version's predicates and passes."""

from __future__ import annotations

from typing import Final

from tests.conformance.backendai_case import Case, Json, Operation, amounts, instant, known, scaled

from tenure_core.admission.greedy_pass import (
    Decision,
    GreedyLease,
    GreedyNode,
    GreedyPolicy,
    ShareOf,
    run_greedy_pass,
)
from tenure_core.admission.predicates import pool_access, start_time
from tenure_core.admission.quantities import plain
from tenure_core.admission.quotas import (
    Charge,
    QuotaBook,
    Scope,
    count_reached,
    exceeded,
)
from tenure_core.admission.slots import SlotType, Unnamed, from_policy


def _reserved_batch(case: Json) -> Json:
    known(case, {"now", "session_type", "starts_at"})
    starts = case["starts_at"] if case["session_type"] == "batch" else None
    refusal = start_time(None if starts is None else instant(starts), instant(case["now"]))
    return {"passed": refusal is None}


def _concurrency(case: Json) -> Json:
    """The predicate is pure; the charge comes with the verdict and can be given back."""
    known(case, {"used", "max_concurrent_sessions"})
    used = case["used"]
    passed = not count_reached(used, case["max_concurrent_sessions"])
    book = QuotaBook()
    account = (Scope.KEY, "key")
    if passed:
        book.charge("session", Charge((account,), {}))
    after_check = used + book.held(*account).leases
    book.release("session")
    return {
        "passed": passed,
        "counter_after_check": after_check,
        "counter_after_failure_rollback": used + book.held(*account).leases,
        "has_rollback": passed,
    }


def _quota(case: Json, *, ours: bool = False) -> Json:
    known(
        case,
        {"scope", "known_slot_types", "total", "default_for_unspecified", "occupied", "requested"},
    )
    types = {kind: SlotType(name) for kind, name in case["known_slot_types"].items()}
    allowed = from_policy(case["total"], Unnamed(case["default_for_unspecified"]), types)
    limit = {
        kind: scaled(plain(amount)) if amount.is_finite() else None
        for kind, amount in allowed.items()
    }
    over = exceeded(
        amounts(case["occupied"]), amounts(case["requested"]), limit, raised_kinds_only=ours
    )
    return {"passed": not over, "message_empty": not over}


def _quota_better(case: Case) -> None:
    """Only the slots that the request raises are looked at."""
    raised = {kind: n for kind, n in case.input["requested"].items() if scaled(n) > 0}
    held = {kind: n for kind, n in case.input["occupied"].items() if kind in raised}
    total = {kind: n for kind, n in case.input["total"].items() if kind in raised}
    types = {kind: n for kind, n in case.input["known_slot_types"].items() if kind in raised}
    alone = {
        **case.input, "requested": raised, "occupied": held, "total": total,
        "known_slot_types": types,
    }  # fmt: skip
    assert _quota(case.input, ours=True) == _quota(alone)


def _scaling_group(case: Json) -> Json:
    known(case, {"preferred", "allowed"})
    access = pool_access(case["preferred"], case["allowed"])
    return {"passed": access.refusal is None, "targets": list(access.pools)}


_POLICIES: Final = {
    "fifo": GreedyPolicy.FIFO,
    "lifo": GreedyPolicy.LIFO,
    "drf": GreedyPolicy.DRF,
    "mof": GreedyPolicy.LEAST_OCCUPIED,
}


def _decisions(case: Json, share_of: ShareOf) -> list[Decision]:
    known(
        case,
        {"scheduler", "total_capacity", "agents", "pending", "existing", "charge_agents"},
    )
    total = case["total_capacity"]
    return run_greedy_pass(
        _POLICIES[case["scheduler"]],
        [
            GreedyNode(agent["id"], amounts(agent["capacity"]), amounts(agent["occupied"]))
            for agent in (known(a, {"id", "capacity", "occupied"}) for a in case["agents"])
        ],
        [_lease(session) for session in case["pending"]],
        [_lease(session) for session in case["existing"]],
        total_capacity=None if total is None else amounts(total),
        charge_nodes=case["charge_agents"],
        share_of=share_of,
    )


def _lease(session: Json) -> GreedyLease:
    known(session, {"id", "key", "slots"})
    return GreedyLease(session["id"], session["key"], amounts(session["slots"]))


def _pass(case: Json) -> Json:
    decisions = _decisions(case, ShareOf.LARGEST_LEASE)
    return {
        "decisions": [{"session": d.lease, "agent": d.node} for d in decisions],
        "case": case,
    }


def _pass_agrees(answer: Json, expect: Json) -> None:
    """Ties may go either way; where the first version raised, every decision must be sound.

    Raising also kept a share from growing, so what it picked next is no rule of its own.
    """
    known(expect, {"decisions", "any_of"})
    outcomes = expect["any_of"] if "any_of" in expect else [expect["decisions"]]
    if any(entry.get("seed_crashes") for outcome in outcomes for entry in outcome):
        _check_sound(answer["decisions"], answer["case"])
        return
    assert answer["decisions"] in outcomes


def _check_sound(decisions: Json, case: Json) -> None:
    """A session is skipped exactly when no agent has, slot by slot, what it asks for."""
    free = {
        agent["id"]: {
            kind: scaled(n) - scaled(agent["occupied"].get(kind, 0))
            for kind, n in agent["capacity"].items()
        }
        for agent in case["agents"]
    }
    asked = {session["id"]: amounts(session["slots"]) for session in case["pending"]}
    assert sorted(entry["session"] for entry in decisions) == sorted(asked)
    for entry in decisions:
        want = asked[entry["session"]]
        able = [
            agent
            for agent, left in free.items()
            if all(left.get(k, 0) >= want.get(k, 0) for k in {*left, *want})
        ]
        assert (entry["agent"] in able) if able else entry["agent"] is None
        if able and case["charge_agents"]:
            for kind, amount in want.items():
                left = free[entry["agent"]]
                left[kind] = left.get(kind, 0) - amount


def _pass_better(case: Case) -> None:
    """Shares are sums, so whoever is picked had the least share of all who wait."""
    decisions = [
        {"session": entry.lease, "agent": entry.node}
        for entry in _decisions(case.input, ShareOf.ALL_LEASES)
    ]
    _check_sound(decisions, case.input)


OPERATIONS: Final = {
    "reserved_batch": Operation(_reserved_batch),
    "concurrency": Operation(_concurrency),
    "quota": Operation(_quota, _quota_better),
    "scaling_group": Operation(_scaling_group),
    "pass": Operation(_pass, _pass_better, _pass_agrees),
}
