"""Suites sequencing, validation, strategy-pick, placement, preemption and queue-pass."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product
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
from tests.conformance.backendai_passes import (
    ARCHITECTURE,
    DEFAULT_SLOTS,
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
from tenure_core.admission.outcomes import Obstacle, Placed, Unplaced
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
    known(case, {"agents", "sessions", "scheduler", "occupancy", "fair_share"})
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
    known(case, {"agents", "sessions", "limits", "occupancy", "now"})
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
    """A dependency that ended without success can never succeed: a hard refusal, which ends it."""
    result = _run(case.input, ours=True)
    for session in case.input["sessions"]:
        hopeless = any(
            entry["status"] in ("CANCELLED", "ERROR")
            or (entry["status"] == "TERMINATED" and entry.get("result") != "success")
            for entry in session.get("depends_on", ())
        )
        refused = [
            refusal
            for refusal in result.refused.get(session["id"], ())
            if refusal.rule is Rule.DEPENDENCIES
        ]
        assert [refusal.hard for refusal in refused] == ([True] if hopeless else [])
        assert all(refusal.reason == "DEPENDENCY_FAILED" for refusal in refused)


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
    """An entry of the list stands for its whole family: as if the list named the kinds asked for."""
    given = case.input
    named = [
        kind
        for entry in given["resource_priority"]
        for kind in sorted(given["request"])
        if kind == entry or kind.split(".")[0] == entry
    ]
    spelled_out = {**given, "resource_priority": list(dict.fromkeys(named))}
    assert _strategy_pick(given, ours=True) == _strategy_pick(spelled_out)


# What follows judges our own passes, from the case alone and not by the core's arithmetic.


def _kernels(session: Json) -> list[tuple[dict[str, int], str]]:
    kernels = session.get("kernels", [{"slots": session.get("slots", DEFAULT_SLOTS)}])
    return [(amounts(entry["slots"]), entry.get("arch", ARCHITECTURE)) for entry in kernels]


class _Judge:
    """The agents of a case and what a sequence of decisions leaves of them."""

    def __init__(self, case: Json) -> None:
        self.case = case
        self.agents = {agent["id"]: agent for agent in case["agents"]}
        self.free = {
            name: {
                kind: scaled(n)
                - sum(
                    scaled(agent.get(part, {}).get(kind, 0))
                    for part in ("used", "reserved", "prereserved")
                )
                for kind, n in agent["capacity"].items()
            }
            for name, agent in self.agents.items()
        }
        self.whole = {name: amounts(agent["capacity"]) for name, agent in self.agents.items()}
        self.containers = {n: agent.get("containers", 0) for n, agent in self.agents.items()}
        self.groups = {n: dict(agent.get("group_members", {})) for n, agent in self.agents.items()}

    def allows(self, session: Json, agents: list[str]) -> bool:
        """Say whether a strict wish of the session's group allows these agents."""
        group = session.get("group")
        if group is None or group["enforcement"] != "strict":
            return True
        members = {name: groups.get(group["id"], 0) for name, groups in self.groups.items()}
        single = session.get("cluster", "single-node") == "single-node"
        for agent in agents[:1] if single else agents:
            if group["direction"] == "spread" and members[agent]:
                return False
            if group["direction"] == "pack" and any(members.values()) and not members[agent]:
                return False
            members[agent] += 1
        return True

    def fits(self, session: Json, agents: list[str], *, empty: bool = False) -> bool:
        """Say whether the session's kernels fit on these agents, in kernel order."""
        kernels = _kernels(session)
        if session.get("cluster", "single-node") == "single-node" and len(set(agents)) > 1:
            return False
        if not self.allows(session, agents):
            return False
        pinned = session.get("designated")
        strict = session.get("designated_policy", "strict") == "strict"
        room = {n: dict(v) for n, v in (self.whole if empty else self.free).items()}
        count = dict.fromkeys(self.agents, 0) if empty else dict(self.containers)
        for agent, (slots, arch) in zip(agents, kernels, strict=True):
            if self.agents[agent].get("arch", ARCHITECTURE) != arch:
                return False
            if pinned and strict and agent not in pinned:
                return False
            count[agent] += 1
            for kind, amount in slots.items():
                room[agent][kind] = room[agent].get(kind, 0) - amount
                if room[agent][kind] < 0:
                    return False
        most = self.case.get("max_containers_per_agent")
        return most is None or all(count[agent] <= most for agent in agents)

    def any_assignment(self, session: Json, *, empty: bool = False) -> bool:
        """Try every assignment of kernels to agents."""
        return any(
            self.fits(session, list(agents), empty=empty)
            for agents in product(self.agents, repeat=len(_kernels(session)))
        )

    def take(self, session: Json, agents: list[str]) -> None:
        """Give the session its agents."""
        for agent, (slots, _) in zip(agents, _kernels(session), strict=True):
            self.containers[agent] += 1
            for kind, amount in slots.items():
                self.free[agent][kind] = self.free[agent].get(kind, 0) - amount
        group = session.get("group")
        single = session.get("cluster", "single-node") == "single-node"
        if group is not None:
            for agent in agents[:1] if single else agents:
                groups = self.groups[agent]
                groups[group["id"]] = groups.get(group["id"], 0) + 1

    def credit(self, victims: list[str], sign: int = 1) -> None:
        """Free (or take back) what the victims hold."""
        for candidate in self.case["preemption"]["candidates"]:
            if candidate["id"] in victims:
                for agent, slots in candidate["allocations"].items():
                    for kind, amount in amounts(slots).items():
                        self.free[agent][kind] = self.free[agent].get(kind, 0) + sign * amount
                    self.containers[agent] -= sign


def _schedule_pass_better(case: Case) -> None:
    """What is given fits; an assignment that exists is found; only competitors wait; and so on.

    Preemption takes nobody needlessly, and a second preemptor may claim who is left.
    """
    result = _run(case.input, ours=True)
    sessions = {session["id"]: session for session in case.input["sessions"]}
    judge = _Judge(case.input)
    assert result.not_attempted == ()
    waits: list[str] = []
    for session in result.sequence:
        if session in result.refused:
            continue
        if session in result.placed:
            agents = list(result.placed[session].nodes)
            assert judge.fits(sessions[session], agents)
            judge.take(sessions[session], agents)
        elif session in result.held:
            _check_held(judge, sessions[session], result.held[session])
        else:
            _check_unplaced(judge, sessions[session], result, waits)
    if "preemption" in case.input:
        _check_all_claimed(case.input, judge, result)


def _check_held(judge: _Judge, session: Json, held: Placed) -> None:
    victims, agents = list(held.makes_room), list(held.nodes)
    judge.credit(victims)
    assert judge.fits(session, agents)
    for victim in victims:
        judge.credit([victim], -1)
        assert not judge.fits(session, agents), f"{victim} is taken needlessly"
        judge.credit([victim])
    judge.take(session, agents)


def _check_unplaced(judge: _Judge, session: Json, result: PassResult, waits: list[str]) -> None:
    found = result.unplaced[session["id"]]
    possible = judge.any_assignment(session, empty=True)
    if found.obstacle in (Obstacle.EXHAUSTED, Obstacle.IMPOSSIBLE):
        assert (found.obstacle is Obstacle.EXHAUSTED) == possible
    if found.obstacle is not Obstacle.EXHAUSTED:
        return
    if not waits:
        # Nobody ahead waits, so nothing was kept for anybody: really nothing fits.
        assert not judge.any_assignment(session)
    elif judge.any_assignment(session):
        # It could run but must not touch what is kept for the first that waits.
        claim = result.claims[waits[0]]
        open_to_all = _Judge(judge.case)
        open_to_all.free = {n: dict(v) for n, v in judge.free.items()}
        open_to_all.containers = dict(judge.containers)
        for agent, slots in claim.amounts.items():
            for kind, amount in slots.items():
                left = open_to_all.free[agent].get(kind, 0)
                open_to_all.free[agent][kind] = max(min(left, 0), left - amount)
            open_to_all.containers[agent] += claim.members.get(agent, 0)
        assert not open_to_all.any_assignment(session)
    waits.append(session["id"])


def _check_all_claimed(case: Json, judge: _Judge, result: PassResult) -> None:
    """No set of victims that are left would let a waiting session in."""
    gone = {victim for held in result.held.values() for victim in held.makes_room}
    scope = {"user": "user", "project": "project", "domain": "domain"}.get(
        case["preemption"]["scope"]
    )
    for session in case["sessions"]:
        if session["id"] not in result.unplaced:
            continue
        left = [
            candidate["id"]
            for candidate in case["preemption"]["candidates"]
            if candidate["id"] not in gone
            and candidate["job_priority"] < session.get("job_priority", 0)
            and (scope is None or candidate.get(scope) == session.get(scope))
        ]
        for size in range(1, len(left) + 1):
            for victims in combinations(left, size):
                judge.credit(list(victims))
                assert len(_kernels(session)) > 1 or not judge.any_assignment(session)
                judge.credit(list(victims), -1)


OPERATIONS: Final = {
    "sequence": Operation(_sequence, _sequence_better),
    "validate": Operation(_validate, _validate_better),
    "strategy_pick": Operation(_strategy_pick, _strategy_pick_better),
    "schedule_pass": Operation(_schedule_pass, _schedule_pass_better, _pass_agrees),
}
