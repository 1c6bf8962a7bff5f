"""Judges a pass of ours by the case alone: by every assignment there is, not by the core's sums."""

from __future__ import annotations

from itertools import combinations, product

from tests.conformance.backendai_case import Json, amounts, scaled
from tests.conformance.backendai_passes import ARCHITECTURE, DEFAULT_SLOTS

from tenure_core.admission.outcomes import Obstacle, Placed
from tenure_core.admission.passes import PassResult


def kernels_of(session: Json) -> list[tuple[dict[str, int], str]]:
    kernels = session.get("kernels", [{"slots": session.get("slots", DEFAULT_SLOTS)}])
    return [(amounts(entry["slots"]), entry.get("arch", ARCHITECTURE)) for entry in kernels]


class Judge:
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
        kernels = kernels_of(session)
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
            for agents in product(self.agents, repeat=len(kernels_of(session)))
        )

    def take(self, session: Json, agents: list[str]) -> None:
        """Give the session its agents."""
        for agent, (slots, _) in zip(agents, kernels_of(session), strict=True):
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


def judge_pass(case: Json, result: PassResult) -> None:
    """What is given fits; an assignment that exists is found; only competitors wait; and so on.

    Preemption takes nobody needlessly, and a second preemptor may claim who is left.
    """
    sessions = {session["id"]: session for session in case["sessions"]}
    judge = Judge(case)
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
    if "preemption" in case:
        _check_all_claimed(case, judge, result)


def _check_held(judge: Judge, session: Json, held: Placed) -> None:
    victims, agents = list(held.makes_room), list(held.nodes)
    judge.credit(victims)
    assert judge.fits(session, agents)
    for victim in victims:
        judge.credit([victim], -1)
        assert not judge.fits(session, agents), f"{victim} is taken needlessly"
        judge.credit([victim])
    judge.take(session, agents)


def _check_unplaced(judge: Judge, session: Json, result: PassResult, waits: list[str]) -> None:
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
        open_to_all = Judge(judge.case)
        open_to_all.free = {n: dict(v) for n, v in judge.free.items()}
        open_to_all.containers = dict(judge.containers)
        for agent, slots in claim.amounts.items():
            for kind, amount in slots.items():
                left = open_to_all.free[agent].get(kind, 0)
                open_to_all.free[agent][kind] = max(min(left, 0), left - amount)
            open_to_all.containers[agent] += claim.members.get(agent, 0)
        assert not open_to_all.any_assignment(session)
    waits.append(session["id"])


def _check_all_claimed(case: Json, judge: Judge, result: PassResult) -> None:
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
                assert len(kernels_of(session)) > 1 or not judge.any_assignment(session)
                judge.credit(list(victims), -1)
