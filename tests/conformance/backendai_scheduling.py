"""Suites sequencing, validation, strategy-pick, placement, preemption and queue-pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tests.conformance.backendai_case import (
    Case,
    Json,
    Operation,
    amounts,
    known,
    scaled,
    text,
    texts,
)
from tests.conformance.backendai_judge import judge_pass
from tests.conformance.backendai_passes import (
    PASS_FIELDS,
    facts,
    lease,
    node,
    ordering,
    pass_input,
    pool_usage,
    strategy,
)

from tenure_core.admission.filters import Filter
from tenure_core.admission.nodes import Room
from tenure_core.admission.ordering import ordered
from tenure_core.admission.outcomes import Obstacle, Unplaced
from tenure_core.admission.passes import ANCESTOR, PassResult, PassRules, run_pass
from tenure_core.admission.predicates import Refusal, Rule
from tenure_core.admission.strategies import Chooser

_RULES: Final = {
    Rule.DEPENDENCIES: "dependencies",
    Rule.START_TIME: "start-time",
    Rule.OWNER_QUOTA: "user-quota",
    Rule.PROJECT_QUOTA: "project-quota",
    Rule.DOMAIN_QUOTA: "domain-quota",
    Rule.LEASE_COUNT: "session-count",
}
_FILTERS: Final = {
    Filter.ARCHITECTURE: "architecture",
    Filter.DESIGNATION: "designated-strict",
    Filter.GROUP: "session-group-strict",
    Filter.RESOURCES: "resource",
    Filter.MEMBER_LIMIT: "container-limit",
}
_OBSTACLES: Final = {
    Obstacle.NO_NODES: "no-agents",
    Obstacle.MIXED_ARCHITECTURES: "mixed-architecture",
    Obstacle.INCOMPATIBLE: "incompatible",
    Obstacle.EXHAUSTED: "exhausted",
    Obstacle.IMPOSSIBLE: "impossible",
}


def _rules(case: Json, *, ours: bool) -> PassRules:
    rules = PassRules() if ours else ANCESTOR
    most = case.get("max_containers_per_agent")
    return replace(rules, placement=replace(rules.placement, members_max=most))


def _run(case: Json, *, ours: bool) -> PassResult:
    return run_pass(pass_input(case, ours=ours), _rules(case, ours=ours))


def _violation(refusal: Refusal) -> Json:
    entry: Json = {"rule": _RULES[refusal.rule]}
    if refusal.waiting_for:
        entry["waiting_for"] = list(refusal.waiting_for)
    if refusal.over:
        entry["over"] = {
            excess.kind: {
                "occupied": text(excess.held),
                "requested": text(excess.requested),
                "limit": text(excess.limit),
                "excess": text(excess.by),
            }
            for excess in refusal.over
        }
    if refusal.rule is Rule.LEASE_COUNT:
        entry["limit"] = str(refusal.limit)
        entry["kind"] = "sftp" if refusal.reason.startswith("PRIVATE") else "compute"
    return entry


def _failure(session: str, result: PassResult) -> Json:
    if session in result.refused:
        violations = [_violation(refusal) for refusal in result.refused[session]]
        return {"session": session, "stage": "validation", "violations": violations}
    found: Unplaced = result.unplaced[session]
    entry: Json = {
        "session": session, "stage": "placement", "kind": _OBSTACLES[found.obstacle],
    }  # fmt: skip
    if found.filter is not None:
        entry["filter"] = _FILTERS[found.filter]
    if found.lacks:
        entry["requirements"] = [
            {
                "index": lack.index,
                "filter": _FILTERS[lack.filter],
                "missing": texts(lack.missing),
                "missing_containers": lack.missing_members,
            }
            for lack in found.lacks
        ]
    return entry


def _printed(result: PassResult) -> Json:
    answer: Json = {
        "scheduled": [
            {"session": session, "agents": list(placed.nodes)}
            for session, placed in result.placed.items()
        ],
        "failed": [
            _failure(session, result)
            for session in result.sequence
            if session in result.refused or session in result.unplaced
        ],
        "not_attempted": list(result.not_attempted),
        "sequence": list(result.sequence),
        "pending_queue": list(result.still_waiting),
        "reserved": [
            {"session": session, "agents": list(held.nodes), "victims": list(held.makes_room)}
            for session, held in result.held.items()
        ],
    }
    return answer


def _schedule_pass(case: Json) -> Json:
    return _printed(_run(case, ours=False))


_ALWAYS: Final = {"scheduled", "failed", "not_attempted"}
_SOMETIMES: Final = {"sequence", "pending_queue", "reserved"}


def _pass_agrees(answer: Json, expect: Json) -> None:
    """Suites leave out what they are not about; nothing may be reserved unless they say so."""
    known(expect, _ALWAYS | _SOMETIMES)
    expect = {"reserved": [], **expect}
    assert {key: answer[key] for key in {*expect, *_ALWAYS}} == expect


def _sequence(case: Json) -> Json:
    known(case, PASS_FIELDS)
    waiting = [lease(session) for session in case["sessions"]]
    found = ordered(waiting, ordering(case), facts(case, ours=False))
    return {"sequence": [entry.id for entry in found]}


def _sequence_better(case: Case) -> None:
    """Inside a band whoever is lightest *now* is next; who never used anything is lightest."""
    given = case.input
    waiting = [lease(session) for session in given["sessions"]]
    ours = facts(given, ours=True)
    sequence = [entry.id for entry in ordered(waiting, ordering(given), ours)]
    assert sorted(sequence) == sorted(entry.id for entry in waiting)
    sessions = {entry.id: entry for entry in waiting}
    arrival = [entry.id for entry in waiting]
    usage = {name: dict(used) for name, used in pool_usage(given).items()}
    capacity = {
        kind: sum(scaled(agent["capacity"].get(kind, 0)) for agent in given["agents"])
        for agent in given["agents"]
        for kind in agent["capacity"]
    }

    def weight(session: str) -> tuple[object, ...]:
        owner = sessions[session].owner
        if given.get("scheduler", "fifo") in ("fifo", "lifo"):
            return (-arrival.index(session) if given.get("scheduler") == "lifo" else 0,)
        if "fair_share" in given:
            entry = given["fair_share"].get(owner, {"domain": 1, "project": 1, "user": 1})
            return tuple(-float(entry[level]) for level in ("domain", "project", "user"))
        shares = [n / capacity[k] for k, n in usage.get(owner, {}).items() if capacity.get(k)]
        return (max(shares, default=0),)

    left = list(arrival)
    for session in sequence:
        top = max(sessions[entry].priority for entry in left)
        band = [entry for entry in left if sessions[entry].priority == top]
        assert session == min(band, key=lambda entry: (weight(entry), arrival.index(entry)))
        left.remove(session)
        own = usage.setdefault(sessions[session].owner, {})
        for kind, amount in sessions[session].amounts.items():
            own[kind] = own.get(kind, 0) + amount


def _validate(case: Json) -> Json:
    result = _run(case, ours=False)
    sessions = []
    for entry in case["sessions"]:
        session = entry["id"]
        answer: Json = {"session": session, "admitted": session not in result.refused}
        if session in result.refused:
            answer["violations"] = [_violation(refusal) for refusal in result.refused[session]]
        sessions.append(answer)
    return {"sessions": sessions}


def _validate_better(case: Case) -> None:
    """A dependency that can never succeed is a hard refusal, which ends the session.

    And being over a quota in one slot refuses nobody who asks nothing of it.
    """
    result = _run(case.input, ours=True)
    for session in case.input["sessions"]:
        refused = result.refused.get(session["id"], ())
        ends = [
            entry["status"] in ("CANCELLED", "ERROR", "TERMINATED")
            for entry in session.get("depends_on", ())
            if entry["status"] != "TERMINATED" or entry.get("result") != "success"
        ]
        found = [refusal for refusal in refused if refusal.rule is Rule.DEPENDENCIES]
        assert [refusal.hard for refusal in found] == ([any(ends)] if ends else [])
        assert all((refusal.reason == "DEPENDENCY_FAILED") == refusal.hard for refusal in found)
        assert all(excess.requested > 0 for refusal in refused for excess in refusal.over)


def _strategy_pick(case: Json, *, ours: bool = False) -> Json:
    known(case, {"strategy", "resource_priority", "agents", "request", "picks"})
    nodes = [node(agent) for agent in case["agents"]]
    room, chooser = Room(nodes), Chooser(strategy(case, ours=ours))
    wanted = amounts(case["request"])
    return {
        "picks": [
            chooser.choose(nodes, wanted, lambda one: room.free(one.id)).id
            for _ in range(case["picks"])
        ]
    }


def _strategy_pick_better(case: Case) -> None:
    """An entry of the list stands for its family: as if the list named the kinds asked for."""
    given = case.input
    named = [
        kind
        for entry in given["resource_priority"]
        for kind in sorted(given["request"])
        if kind == entry or kind.split(".")[0] == entry
    ]
    spelled_out = {**given, "resource_priority": list(dict.fromkeys(named))}
    assert _strategy_pick(given, ours=True) == _strategy_pick(spelled_out)


def schedule_pass_better(case: Case) -> None:
    """What is given fits, what fits is given, only competitors wait, nobody goes needlessly."""
    judge_pass(case.input, _run(case.input, ours=True))


OPERATIONS: Final = {
    "sequence": Operation(_sequence, _sequence_better),
    "validate": Operation(_validate, _validate_better),
    "strategy_pick": Operation(_strategy_pick, _strategy_pick_better),
    "schedule_pass": Operation(_schedule_pass, schedule_pass_better, _pass_agrees),
}
