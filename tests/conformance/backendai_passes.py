"""Sessions, agents and limits of one pass as the suites write them, translated into the core's."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from tests.conformance.backendai_case import Json, amounts, instant, known, scaled

from tenure_core.admission.amounts import added_up, plus
from tenure_core.admission.fair_share import Factors
from tenure_core.admission.nodes import Node
from tenure_core.admission.ordering import Ordering, OrderingFacts
from tenure_core.admission.passes import PassInput
from tenure_core.admission.predicates import Limits, Standings
from tenure_core.admission.preemption import (
    Preemptee,
    Preemption,
    PreemptionOrder,
    PreemptionScope,
    PreemptionTerms,
)
from tenure_core.admission.quotas import Held, Limit
from tenure_core.admission.strategies import Strategy, StrategyTerms
from tenure_core.admission.waiting import (
    DependencyEnd,
    DependencyState,
    Direction,
    GroupWish,
    Member,
    WaitingLease,
)

NOW: Final = "2026-07-23T12:00:00Z"
ARCHITECTURE: Final = "x86_64"
DEFAULT_SLOTS: Final = {"cpu": "1", "mem": "1024"}

_STRATEGIES: Final = {
    "concentrated": Strategy.CONCENTRATED,
    "dispersed": Strategy.DISPERSED,
    "legacy": Strategy.LEGACY,
    "roundrobin": Strategy.ROUND_ROBIN,
}
_ORDERINGS: Final = {
    "fifo": Ordering.FIFO,
    "lifo": Ordering.LIFO,
    "drf": Ordering.DRF,
    "fair-share": Ordering.FAIR_SHARE,
}
_DIRECTIONS: Final = {
    "spread": Direction.SPREAD,
    "pack": Direction.PACK,
    "none": Direction.NONE,
}
_ORDERS: Final = {
    "oldest": PreemptionOrder.OLDEST,
    "newest": PreemptionOrder.NEWEST,
    "fewest-sessions": PreemptionOrder.FEWEST_LEASES,
    "smallest-resources": PreemptionOrder.SMALLEST,
}
_SCOPES: Final = {
    "user": PreemptionScope.OWNER,
    "project": PreemptionScope.PROJECT,
    "domain": PreemptionScope.DOMAIN,
    "resource-group": PreemptionScope.POOL,
}
_ENDED_BADLY: Final = {"CANCELLED", "ERROR"}
_NO_HISTORY_IN_ANCESTOR: Final = Factors(Decimal(0), Decimal(0), Decimal(0))

_SESSION_FIELDS: Final = {
    "id", "slots", "kernels", "cluster", "user", "project", "domain", "priority", "job_priority",
    "type", "starts_at", "depends_on", "designated", "designated_policy", "group",
}  # fmt: skip
_AGENT_FIELDS: Final = {
    "id", "capacity", "used", "reserved", "prereserved", "arch", "containers", "failed_sessions",
    "group_members",
}  # fmt: skip
PASS_FIELDS: Final = {
    "agents", "sessions", "scheduler", "strategy", "resource_priority", "max_containers_per_agent",
    "now", "occupancy", "limits", "fair_share", "preemption",
}  # fmt: skip


def node(agent: Json) -> Node:
    """Return an agent as a node."""
    known(agent, _AGENT_FIELDS)
    taken = plus(
        amounts(agent.get("used")),
        amounts(agent.get("reserved")),
        amounts(agent.get("prereserved")),
    )
    return Node(
        agent["id"],
        amounts(agent["capacity"]),
        taken,
        agent.get("arch", ARCHITECTURE),
        agent.get("containers", 0),
        frozenset(agent.get("failed_sessions", ())),
        agent.get("group_members", {}),
    )


def lease(session: Json) -> WaitingLease:
    """Return a session as a waiting lease."""
    known(session, _SESSION_FIELDS)
    kernels = session.get("kernels", [{"slots": session.get("slots", DEFAULT_SLOTS)}])
    starts = session.get("starts_at") if session.get("type") == "batch" else None
    group = session.get("group")
    return WaitingLease(
        id=session["id"],
        owner=session.get("user", session["id"]),
        project=session.get("project", "p1"),
        domain=session.get("domain", "d1"),
        members=tuple(
            Member(amounts(kernel["slots"]), kernel.get("arch", ARCHITECTURE))
            for kernel in (known(k, {"slots", "arch"}) for k in kernels)
        ),
        many_nodes={"single-node": False, "multi-node": True}[
            session.get("cluster", "single-node")
        ],
        priority=session.get("priority", 10),
        preemption_rank=session.get("job_priority", 0),
        private=session.get("type") == "system",
        not_before=None if starts is None else instant(starts),
        dependencies=tuple(_dependency(entry) for entry in session.get("depends_on", ())),
        designated=tuple(session.get("designated", ())),
        designated_strict={"strict": True, "preferred": False}[
            session.get("designated_policy", "strict")
        ],
        wish=None if group is None else _wish(group),
    )


def _wish(group: Json) -> GroupWish:
    known(group, {"id", "direction", "enforcement"})
    strict = {"strict": True, "preferred": False}[group["enforcement"]]
    return GroupWish(group["id"], _DIRECTIONS[group["direction"]], strict)


def _dependency(entry: Json) -> DependencyState:
    known(entry, {"session", "status", "result"})
    if entry["status"] == "TERMINATED":
        success = entry.get("result") == "success"
        end = DependencyEnd.SUCCEEDED if success else DependencyEnd.OTHERWISE
    else:
        bad = entry["status"] in _ENDED_BADLY
        end = DependencyEnd.OTHERWISE if bad else DependencyEnd.UNDER_WAY
    return DependencyState(entry["session"], end)


def _held(entry: Json) -> Held:
    known(entry, {"slots", "sessions", "sftp_sessions"})
    slots = {
        kind: sum(scaled(n) for n in known(parts, {"reserved", "used"}).values())
        for kind, parts in entry.get("slots", {}).items()
    }
    return Held(slots, entry.get("sessions", 0), entry.get("sftp_sessions", 0))


def _limit(entry: Json) -> Limit:
    known(entry, {"slots", "max_sessions", "max_sftp_sessions"})
    slots = entry.get("slots")
    return Limit(
        None
        if slots is None
        else {kind: None if n == "Infinity" else scaled(n) for kind, n in slots.items()},
        entry.get("max_sessions"),
        entry.get("max_sftp_sessions"),
    )


def _by_scope(scopes: Json) -> tuple[Json, Json, Json]:
    known(scopes, {"users", "projects", "domains"})
    return scopes.get("users", {}), scopes.get("projects", {}), scopes.get("domains", {})


def standings(case: Json) -> Standings:
    """Return the occupancy of a pass."""
    users, projects, domains = _by_scope(case.get("occupancy", {}))
    return Standings(
        {name: _held(entry) for name, entry in users.items()},
        {name: _held(entry) for name, entry in projects.items()},
        {name: _held(entry) for name, entry in domains.items()},
    )


def limits(case: Json) -> Limits:
    """Return the limits of a pass."""
    users, projects, domains = _by_scope(case.get("limits", {}))
    return Limits(
        {name: _limit(entry) for name, entry in users.items()},
        {name: _limit(entry) for name, entry in projects.items()},
        {name: _limit(entry) for name, entry in domains.items()},
    )


def _factors(entry: Mapping[str, str]) -> Factors:
    known(entry, {"domain", "project", "user"})
    return Factors(Decimal(entry["domain"]), Decimal(entry["project"]), Decimal(entry["user"]))


def _preemption(entry: Json, now: int) -> Preemption:
    known(entry, {"order", "scope", "candidates"})
    return Preemption(
        PreemptionTerms(_ORDERS[entry["order"]], _SCOPES[entry["scope"]]),
        [_preemptee(candidate) for candidate in entry["candidates"]],
        now,
    )


def _preemptee(candidate: Json) -> Preemptee:
    known(
        candidate,
        {"id", "job_priority", "started_at", "allocations", "user", "project", "domain"},
    )
    started = candidate["started_at"]
    return Preemptee(
        candidate["id"],
        candidate["job_priority"],
        None if started is None else instant(started),
        {agent: amounts(slots) for agent, slots in candidate["allocations"].items()},
        candidate.get("user", ""),
        candidate.get("project", "p1"),
        candidate.get("domain", "d1"),
    )


def ordering(case: Json) -> Ordering:
    """Return the ordering; a name that is not known means DRF."""
    return _ORDERINGS.get(case.get("scheduler", "fifo"), Ordering.DRF)


def strategy(case: Json, *, ours: bool) -> StrategyTerms:
    """Return the strategy; a name that is not known means concentrated."""
    return StrategyTerms(
        _STRATEGIES.get(case.get("strategy", "concentrated"), Strategy.CONCENTRATED),
        tuple(case.get("resource_priority", ("cpu", "mem"))),
        by_family=ours,
    )


def pool_usage(case: Json) -> dict[str, dict[str, int]]:
    """Return what each user can hold in this pool at most: no more than its agents have taken."""
    taken = added_up(node(agent).taken for agent in case["agents"])
    return {
        name: {kind: min(n, taken.get(kind, 0)) for kind, n in held.amounts.items()}
        for name, held in standings(case).owners.items()
    }


def facts(case: Json, *, ours: bool) -> OrderingFacts:
    """Return what the orderings look at; the ancestor's usage is that of all pools."""
    held = standings(case).owners
    factors = {name: _factors(entry) for name, entry in case.get("fair_share", {}).items()}
    capacity = added_up(amounts(agent["capacity"]) for agent in case["agents"])
    if ours:
        return OrderingFacts(pool_usage(case), capacity, factors=factors)
    return OrderingFacts(
        {name: entry.amounts for name, entry in held.items()},
        capacity,
        factors=factors,
        no_history=_NO_HISTORY_IN_ANCESTOR,
        progressive=False,
    )


def pass_input(case: Json, *, ours: bool) -> PassInput:
    """Return the whole input of a pass."""
    known(case, PASS_FIELDS)
    now = instant(case.get("now", NOW))
    entry = case.get("preemption")
    return PassInput(
        nodes=[node(agent) for agent in case["agents"]],
        waiting=[lease(session) for session in case["sessions"]],
        now=now,
        ordering=ordering(case),
        facts=facts(case, ours=ours),
        strategy=strategy(case, ours=ours),
        standings=standings(case),
        limits=limits(case),
        preemption=None if entry is None else _preemption(entry, now),
    )
