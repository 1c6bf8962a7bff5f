"""Whether a waiting lease may be started now, rule by rule, each with a stable reason.

Rules are pure and all of them run, so that an owner learns everything at once. A *hard* refusal can
never turn: the lease is rejected. A *soft* one keeps it waiting until what it depends on changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from tenure_core.admission.quotas import Excess, Held, Limit, Scope, count_reached, exceeded
from tenure_core.admission.waiting import DependencyEnd, WaitingLease
from tenure_core.timebase import Millis


class Rule(Enum):
    """The rules, in the order in which they report."""

    DEPENDENCIES = "DEPENDENCIES"
    START_TIME = "START_TIME"
    OWNER_QUOTA = "OWNER_QUOTA"
    PROJECT_QUOTA = "PROJECT_QUOTA"
    DOMAIN_QUOTA = "DOMAIN_QUOTA"
    LEASE_COUNT = "LEASE_COUNT"
    POOL_ACCESS = "POOL_ACCESS"
    POOL_OPEN = "POOL_OPEN"
    NODE_ATTRIBUTES = "NODE_ATTRIBUTES"
    IMAGE = "IMAGE"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a lease may not start: the rule, a reason for machines, and the facts.

    `waiting_for` are leases that it depends on; `over` the kinds of a quota; `limit` the most
    leases of one owner; `until` when a start time is reached.
    """

    rule: Rule
    reason: str
    hard: bool = False
    waiting_for: tuple[str, ...] = ()
    over: tuple[Excess, ...] = ()
    limit: int | None = None
    until: Millis | None = None


@dataclass(frozen=True, slots=True)
class Standings:
    """What everybody holds and may hold, by name. Absent is nothing held, and no limit."""

    owners: Mapping[str, Held] = field(default_factory=dict)
    projects: Mapping[str, Held] = field(default_factory=dict)
    domains: Mapping[str, Held] = field(default_factory=dict)


class RunningStandings:
    """Standings that grow as leases are given what they ask for, within one pass."""

    def __init__(self, start: Standings) -> None:
        self._owners = dict(start.owners)
        self._projects = dict(start.projects)
        self._domains = dict(start.domains)
        self.now = Standings(self._owners, self._projects, self._domains)

    def add(self, lease: WaitingLease) -> None:
        """Count the lease for its owner, project and domain."""
        for held, name in (
            (self._owners, lease.owner),
            (self._projects, lease.project),
            (self._domains, lease.domain),
        ):
            before = held.get(name, Held())
            held[name] = before.with_lease(lease.amounts, private=lease.private)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits by name. Absent is no limit."""

    owners: Mapping[str, Limit] = field(default_factory=dict)
    projects: Mapping[str, Limit] = field(default_factory=dict)
    domains: Mapping[str, Limit] = field(default_factory=dict)


_NOTHING: Final = Held()


def dependencies(lease: WaitingLease) -> Refusal | None:
    """Refuse while a lease that this one depends on has not ended as it should.

    Hard when one never will: it failed, was cancelled, or does not exist.
    """
    unmet = [entry for entry in lease.dependencies if not entry.satisfied]
    if not unmet:
        return None
    waiting_for = tuple(entry.lease for entry in unmet)
    if any(entry.end is DependencyEnd.MISSING for entry in unmet):
        return Refusal(Rule.DEPENDENCIES, "DEPENDENCY_MISSING", True, waiting_for)
    if any(entry.hopeless for entry in unmet):
        return Refusal(Rule.DEPENDENCIES, "DEPENDENCY_FAILED", True, waiting_for)
    return Refusal(Rule.DEPENDENCIES, "DEPENDENCY_UNDER_WAY", False, waiting_for)


def start_time(not_before: Millis | None, now: Millis) -> Refusal | None:
    """Refuse before the start time; the instant itself is late enough."""
    if not_before is None or now >= not_before:
        return None
    return Refusal(Rule.START_TIME, "START_TIME_NOT_REACHED", until=not_before)


_QUOTA_RULES = {
    Scope.OWNER: (Rule.OWNER_QUOTA, "OWNER_QUOTA_EXCEEDED"),
    Scope.PROJECT: (Rule.PROJECT_QUOTA, "PROJECT_QUOTA_EXCEEDED"),
    Scope.DOMAIN: (Rule.DOMAIN_QUOTA, "DOMAIN_QUOTA_EXCEEDED"),
}


def quota(
    scope: Scope,
    held: Held,
    lease: WaitingLease,
    limit: Limit | None,
    *,
    raised_kinds_only: bool = True,
) -> Refusal | None:
    """Refuse what would make the scope hold more of some kind than its limit."""
    if limit is None or limit.amounts is None:
        return None
    over = exceeded(held.amounts, lease.amounts, limit.amounts, raised_kinds_only=raised_kinds_only)
    rule, reason = _QUOTA_RULES[scope]
    return Refusal(rule, reason, over=over) if over else None


def lease_count(held: Held, limit: Limit | None, *, private: bool) -> Refusal | None:
    """Refuse what would make the owner hold more leases than allowed; private ones count apart."""
    if limit is None:
        return None
    count, most = (
        (held.private_leases, limit.private_leases) if private else (held.leases, limit.leases)
    )
    if not count_reached(count, most):
        return None
    reason = "PRIVATE_LEASE_LIMIT_REACHED" if private else "LEASE_LIMIT_REACHED"
    return Refusal(Rule.LEASE_COUNT, reason, limit=most)


@dataclass(frozen=True, slots=True)
class PoolAccess:
    """Which pools a lease may be placed in; none of them is a refusal."""

    pools: tuple[str, ...]
    refusal: Refusal | None = None


def pool_access(asked: str | None, allowed: Iterable[str]) -> PoolAccess:
    """Return the pool asked for if it is allowed, or all allowed ones when none was asked.

    Placement is limited to what this returns. Refusals are hard: permissions are no queue.
    """
    pools = tuple(allowed)
    if asked is None:
        if pools:
            return PoolAccess(pools)
        return PoolAccess((), Refusal(Rule.POOL_ACCESS, "NO_POOL_ALLOWED", hard=True))
    if asked in pools:
        return PoolAccess((asked,))
    return PoolAccess((), Refusal(Rule.POOL_ACCESS, "POOL_NOT_ALLOWED", hard=True))


def pool_open(pool: str, cordoned: Collection[str]) -> Refusal | None:
    """Refuse while the pool takes nothing new."""
    return Refusal(Rule.POOL_OPEN, "POOL_CORDONED") if pool in cordoned else None


def image_allowed(image: str, allowed: Collection[str] | None) -> Refusal | None:
    """Refuse an image that the policy does not list; None lists all."""
    if allowed is None or not image or image in allowed:
        return None
    return Refusal(Rule.IMAGE, "IMAGE_NOT_ALLOWED", hard=True)


def refusals(
    lease: WaitingLease,
    now: Millis,
    standings: Standings,
    limits: Limits,
    *,
    raised_kinds_only: bool = True,
) -> list[Refusal]:
    """Return every rule that refuses the lease now, in order; none means that it may start."""
    owner = standings.owners.get(lease.owner, _NOTHING)
    owner_limit = limits.owners.get(lease.owner)
    scopes = (
        (Scope.OWNER, owner, owner_limit),
        (
            Scope.PROJECT,
            standings.projects.get(lease.project, _NOTHING),
            limits.projects.get(lease.project),
        ),
        (
            Scope.DOMAIN,
            standings.domains.get(lease.domain, _NOTHING),
            limits.domains.get(lease.domain),
        ),
    )
    found = [dependencies(lease), start_time(lease.not_before, now)]
    found += [
        quota(scope, held, lease, limit, raised_kinds_only=raised_kinds_only)
        for scope, held, limit in scopes
    ]
    found.append(lease_count(owner, owner_limit, private=lease.private))
    return [refusal for refusal in found if refusal is not None]


def dependency_cycle(edges: Mapping[str, Collection[str]], start: str) -> tuple[str, ...]:
    """Return the leases of a cycle that `start` is on, in order, or none. Cost: edges seen."""
    path: list[str] = []
    seen: set[str] = set()
    stack: list[tuple[str, int]] = [(start, 0)]
    while stack:
        lease, depth = stack.pop()
        del path[depth:]
        if lease == start and depth:
            return tuple(path)
        if lease in seen:
            continue
        seen.add(lease)
        path.append(lease)
        stack += [(needed, depth + 1) for needed in sorted(edges.get(lease, ()))]
    return ()
