"""Suite ledger: moves of reservations, and what every agent, kernel and session says afterwards."""

from __future__ import annotations

from itertools import permutations
from typing import Final

from tests.conformance.backendai_case import (
    Case,
    Json,
    Operation,
    UnknownCase,
    amounts,
    known,
    text,
)
from tests.conformance.backendai_states import STAGES, STATUSES

from tenure_core.admission.capacity_ledger import CapacityLedger
from tenure_core.admission.ledger_rows import (
    Bucket,
    LeaseRow,
    MemberRow,
    NodeAccount,
    Report,
)
from tenure_core.admission.lifecycle import Stage

_REPORTS: Final = {
    "pulling": Report.PULLING,
    "creating": Report.STARTING,
    "running": Report.ACTIVE,
    "terminated": Report.ENDED,
    "cancelled": Report.CANCELLED,
}
_SESSION_FIELDS: Final = {"id", "kernels", "status", "kernel_status", "placed"}


def _member(kernel: Json, session: Json) -> MemberRow:
    asked = amounts({kind: n for kind, n in kernel.items() if kind != "agent"})
    row = MemberRow(kernel["agent"], asked, STAGES[session.get("kernel_status", "PENDING")])
    if session.get("placed"):
        row.node = kernel["agent"]
        row.bucket = Bucket.USED if row.stage is Stage.ACTIVE else Bucket.RESERVED
        row.counted = asked
    return row


class Trace:
    """A ledger, the steps of a case as calls of it, and its state as the suite writes it.

    `ancestor` asks for the ancestor's values where the core offers them.
    """

    def __init__(self, case: Json, *, ancestor: bool) -> None:
        known(case, {"agents", "sessions", "steps"})
        nodes = {}
        for agent in case["agents"]:
            known(agent, {"id", "capacity", "used", "reserved", "prereserved"})
            account = NodeAccount(amounts(agent["capacity"]))
            account.buckets[Bucket.USED] = amounts(agent.get("used"))
            account.buckets[Bucket.RESERVED] = amounts(agent.get("reserved"))
            account.buckets[Bucket.HELD] = amounts(agent.get("prereserved"))
            nodes[agent["id"]] = account
        leases = {}
        for session in case["sessions"]:
            known(session, _SESSION_FIELDS)
            members = [_member(kernel, session) for kernel in session["kernels"]]
            leases[session["id"]] = LeaseRow(members, STAGES[session.get("status", "PENDING")])
        self.ledger = CapacityLedger(nodes, leases)
        self._kinds = {agent["id"]: list(agent["capacity"]) for agent in case["agents"]}
        self._ancestor = ancestor

    def state(self) -> Json:
        """Return what every agent, kernel and session says."""
        ledger = self.ledger
        return {
            "agents": {
                node: {
                    kind: [
                        text(account.amount(bucket, kind))
                        for bucket in (Bucket.RESERVED, Bucket.HELD, Bucket.USED)
                    ]
                    for kind in self._kinds[node]
                }
                for node, account in ledger.nodes.items()
            },
            "kernels": {
                f"{lease}#{rank}": [STATUSES[member.stage], member.node]
                for lease, row in ledger.leases.items()
                for rank, member in enumerate(row.members)
            },
            "sessions": {lease: STATUSES[row.stage] for lease, row in ledger.leases.items()},
        }

    def do(self, step: Json) -> Json:
        """Do one step; return its result as the suite writes it, wrapped in a mapping."""
        name = step["do"]
        method = getattr(self, f"_{name}", None)
        if method is None:
            raise UnknownCase(f"step {name}")
        result = method(**{key: value for key, value in step.items() if key != "do"})
        return {} if result is None else {"result": result}

    def _allocate(self, sessions: Json) -> Json:
        return self.ledger.allocate(sessions, all_or_none=self._ancestor)

    def _reserve(self, sessions: Json) -> Json:
        return self.ledger.hold(sessions, all_or_none=self._ancestor)

    def _admit(self, sessions: Json) -> Json:
        return [f"{lease}#{rank}" for lease, rank in self.ledger.admit(sessions)]

    def _kernel(self, session: Json, kernel: Json, event: Json, reported: Json = None) -> Json:
        return self.ledger.report(session, kernel, _REPORTS[event], used=amounts(reported))

    def _bulk_terminated(self, kernels: Json) -> Json:
        return sum(self.ledger.report(*kernel, Report.ENDED) for kernel in kernels)

    def _set_kernel(self, session: Json, kernel: Json, status: Json) -> None:
        self.ledger.leases[session].members[kernel].stage = STAGES[status]

    def _set_session(self, session: Json, status: Json) -> None:
        self.ledger.leases[session].stage = STAGES[status]

    def _set_capacity(self, agent: Json, capacity: Json) -> None:
        account = self.ledger.nodes[agent]
        account.capacity = {**account.capacity, **amounts(capacity)}

    def _requeue(self, sessions: Json) -> Json:
        return self.ledger.requeue(sessions)

    def _terminate(self, sessions: Json, forced: Json) -> Json:
        result: Json = {}
        for session in sessions:
            stage = self.ledger.stop(session, forced=forced, releases=not self._ancestor)
            name = {
                Stage.CANCELLED: "cancelled",
                Stage.DONE: "force_terminated",
                Stage.STOPPING: "terminating",
                None: "skipped",
            }[stage]
            result.setdefault(name, []).append(session)
        return result

    def _apply_transition(self, session: Json, read_as: Json, to: Json) -> None:
        self.ledger.write_stage(session, STAGES[read_as], STAGES[to])

    def _concurrently(self, steps: Json) -> None:
        for step in steps:
            self.do(step)


def _trace(case: Json, *, ancestor: bool = True) -> Json:
    trace = Trace(case, ancestor=ancestor)
    steps = []
    for step in case["steps"]:
        result = trace.do(step)
        steps.append({**result, **trace.state()})
    placed = sum(
        all(member.stage is Stage.SCHEDULED for member in row.members)
        for row in trace.ledger.leases.values()
    )
    return {"steps": steps, "scheduled_sessions": placed}


def _ledger_trace(case: Json) -> Json:
    orders = [case]
    for place, step in enumerate(case["steps"]):
        if step["do"] == "concurrently":
            orders += [
                {
                    **case,
                    "steps": [
                        *case["steps"][:place],
                        {**step, "steps": list(order)},
                        *case["steps"][place + 1 :],
                    ],
                }
                for order in list(permutations(step["steps"]))[:60]
            ]
    return [_trace(order) for order in orders]


def _agrees(answers: Json, expect: Json) -> None:
    """Every interleaving ends where the suite says; an invariant names what it is about."""
    for answer in answers:
        if "invariant" in expect:
            invariant = known(expect["invariant"], {"scheduled_sessions", "agents"})
            last = answer["steps"][-1]
            found = {"scheduled_sessions": answer["scheduled_sessions"], "agents": last["agents"]}
            assert {key: found[key] for key in invariant} == invariant
        else:
            assert {"steps": answer["steps"]} == expect


def _ledger_trace_better(case: Case) -> None:
    """Leases settle one by one, attempts fence, writes compare, and reports above are flagged."""
    trace = Trace(case.input, ancestor=False)
    drift_at_start = trace.ledger.drift()
    requeued: set[str] = set()
    for step in case.input["steps"]:
        before = trace.state()
        if step["do"] == "kernel" and step["session"] in requeued:
            # The suite is about reports of the first attempt that reach a later one.
            report = _REPORTS[step["event"]]
            rank = step["kernel"]
            assert not trace.ledger.report(step["session"], rank, report, attempt=1)
            assert trace.state() == before
            continue
        result = trace.do(step)
        _check_step(trace, step, result, before, trace.state())
        if step["do"] == "requeue":
            requeued |= set(step["sessions"])
    assert trace.ledger.drift() == drift_at_start


def _check_step(trace: Trace, step: Json, result: Json, before: Json, after: Json) -> None:
    if step["do"] == "allocate":
        reported = result["result"]
        for session in step["sessions"]:
            kernels = [key for key in after["kernels"] if key.split("#")[0] == session]
            scheduled = all(after["kernels"][key][0] == "SCHEDULED" for key in kernels)
            assert (session in reported) == scheduled
            if session not in reported:
                assert all(after["kernels"][key] == before["kernels"][key] for key in kernels)
        _check_no_room_left(trace, step["sessions"], reported)
    if step["do"] == "apply_transition":
        session = step["session"]
        stale = before["sessions"][session] != step["read_as"]
        assert after["sessions"][session] == (before["sessions"][session] if stale else step["to"])
    if step["do"] == "kernel" and step["event"] == "running" and result["result"]:
        row = trace.ledger.leases[step["session"]].members[step["kernel"]]
        above = {
            kind: n - row.amounts.get(kind, 0)
            for kind, n in amounts(step.get("reported")).items()
            if n > row.amounts.get(kind, 0)
        }
        flagged = [
            entry.excess
            for entry in trace.ledger.overreports
            if (entry.lease, entry.rank) == (step["session"], step["kernel"])
        ]
        assert flagged == ([above] if above else [])


def _check_no_room_left(trace: Trace, sessions: Json, reported: Json) -> None:
    """A session of the batch that still waits really does not fit any more."""
    for session in sessions:
        row = trace.ledger.leases[session]
        if session in reported or any(m.stage is not Stage.WAITING for m in row.members):
            continue
        need: dict[str, dict[str, int]] = {}
        for member in row.members:
            asked = need.setdefault(member.planned, {})
            for kind, amount in member.amounts.items():
                asked[kind] = asked.get(kind, 0) + amount
        assert any(
            sum(trace.ledger.nodes[node].amount(bucket, kind) for bucket in Bucket) + amount
            > trace.ledger.nodes[node].capacity.get(kind, 0)
            for node, asked in need.items()
            for kind, amount in asked.items()
        )


OPERATIONS: Final = {"ledger_trace": Operation(_ledger_trace, _ledger_trace_better, _agrees)}
