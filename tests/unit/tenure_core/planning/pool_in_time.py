"""A pool that lives on plans alone: commits what the planner says and lets time pass.

Stands for scheduler, slottable and agents together, with agents that obey at once. Every plan is
applied operation by operation, so that its preconditions and the capacity are checked again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tenure_core.leases.lease import BestEffort, LeaseSpec, Terms
from tenure_core.leases.states import LeaseState, may_follow
from tenure_core.planning.applying import apply_group
from tenure_core.planning.plan import (
    Lose,
    Plan,
    Preempt,
    PreemptHow,
    Queue,
    Reject,
    Resume,
    Schedule,
)
from tenure_core.planning.planner import plan
from tenure_core.planning.snapshot import (
    Blocked,
    LeaseView,
    NodeView,
    ReservationKind,
    ReservationView,
    Snapshot,
)
from tenure_core.policies.bundle import Policies
from tenure_core.resources import ResourceVector
from tenure_core.slots.table import SlotTable

CPU = 1000


def node(name: str, cpu: int = 1, memory: int = 4, **attributes: str) -> NodeView:
    """Return a node with so many cores and bytes from the beginning."""
    capacity = ResourceVector({"cpu": cpu * CPU, "memory": memory})
    return NodeView(name, ((0, capacity),), attributes)


def spec(
    terms: Terms | None = None,
    *,
    nodes: int = 1,
    cpu: int = 1,
    memory: int = 1,
    duration: int = 10,
    **more: object,
) -> LeaseSpec:
    """Return what an owner asks for; best-effort unless terms are given."""
    amounts = ResourceVector({"cpu": cpu * CPU, "memory": memory})
    terms = BestEffort() if terms is None else terms
    return LeaseSpec("ann", "lab", "main", terms, nodes, amounts, duration, **more)  # type: ignore[arg-type]


@dataclass
class Pool:
    """Nodes, leases and reservations at `now`."""

    nodes: list[NodeView]
    policies: Policies = field(default_factory=Policies)
    now: int = 0
    leases: dict[str, LeaseView] = field(default_factory=dict)
    ended: dict[str, LeaseState] = field(default_factory=dict)
    starts: dict[str, list[int]] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    real: dict[str, int] = field(default_factory=dict)
    rejected: dict[str, str] = field(default_factory=dict)
    queued: dict[str, Queue] = field(default_factory=dict)
    promised: dict[str, list[int]] = field(default_factory=dict)
    arrivals: int = 0
    table: SlotTable = field(init=False)

    def __post_init__(self) -> None:
        self.table = SlotTable(self.nodes)

    def submit(
        self,
        name: str,
        what: LeaseSpec,
        *,
        real: int | None = None,
        kept: Mapping[str, int] | None = None,
        blocked: Blocked | None = None,
    ) -> None:
        """Let a lease arrive; `real` is how long it will really run."""
        if kept is None:
            kept = {kind: n for kind, n in what.amounts.items() if kind != "cpu"}
        self.leases[name] = LeaseView(
            name,
            what,
            LeaseState.PENDING,
            attempt=0,
            arrival=self.arrivals,
            created=self.now,
            remaining_ms=what.duration_ms,
            kept=ResourceVector(kept),
            blocked=blocked,
        )
        self.real[name] = what.duration_ms if real is None else min(real, what.duration_ms)
        self.arrivals += 1

    def snapshot(self) -> Snapshot:
        rows = tuple(row for row in self.table.reservations() if row.interval.end > self.now)
        return Snapshot(self.now, tuple(self.table.nodes()), rows, tuple(self.leases.values()))

    def cycle(self) -> Plan:
        """Plan, commit, and do what is due now."""
        result = plan(self.snapshot(), self.policies)
        assert result == plan(self.snapshot(), self.policies)
        assert result.to_json() == plan(self.snapshot(), self.policies).to_json()
        for group in result.groups:
            apply_group(self.table, group)
        self.queued = {}
        for decision in result.decisions:
            self._record(decision)
        self.table.check()
        self._enact()
        return result

    def run(self, until: int) -> None:
        """Let time pass: at each instant ends and starts, then one cycle."""
        while self.now < until:
            self.now = min([until, *self._instants()])
            self._enact()
            self.cycle()

    def lose(self, name: str) -> None:
        """Take all capacity from a node."""
        self.table.set_node(replace(self.table.node(name), capacity=((0, ResourceVector()),)))

    def end(self, name: str, state: LeaseState = LeaseState.DONE) -> None:
        """End a lease now and release what it holds."""
        for row in self.table.of_lease(name):
            self.table.remove(row.id)
        del self.leases[name]
        self.ended[name] = state
        self.ends[name] = self.now

    def run_rows(self, name: str) -> list[ReservationView]:
        rows = self.table.of_lease(name)
        return [row for row in rows if row.kind is ReservationKind.RUN]

    def _set(self, name: str, state: LeaseState, **more: object) -> None:
        view = self.leases[name]
        assert view.state is state or may_follow(view.state, state), (name, view.state, state)
        self.leases[name] = replace(view, state=state, **more)  # type: ignore[arg-type]

    def _record(self, decision: object) -> None:
        match decision:
            case Schedule(lease=name, attempt=attempt, interval=interval):
                view = self.leases[name]
                if view.state is not LeaseState.ACTIVE:
                    assert attempt == view.attempt + (view.state is not LeaseState.SCHEDULED)
                    self._set(name, LeaseState.SCHEDULED, attempt=attempt)
                    self.promised.setdefault(name, []).append(interval.start)
            case Resume(lease=name, attempt=attempt, interval=interval):
                assert attempt == self.leases[name].attempt
                self.promised.setdefault(name, []).append(interval.start)
            case Queue(lease=name):
                self._set(name, self._waiting(name))
                self.queued[name] = decision
            case Reject(lease=name, reason=reason):
                assert self.leases[name].state in (LeaseState.PENDING, LeaseState.QUEUED)
                self.rejected[name] = reason
                self.end(name, LeaseState.REJECTED)
            case Lose(lease=name, reason=reason):
                self.rejected[name] = reason
                self.end(name, LeaseState.FAILED)
            case Preempt(lease=name, how=how, at=at):
                view = self.leases[name]
                if at <= self.now and how is PreemptHow.REQUEUE:
                    self._requeue(name)
                self.leases[name] = replace(self.leases[name], preemptions=view.preemptions + 1)

    def _waiting(self, name: str) -> LeaseState:
        state = self.leases[name].state
        return LeaseState.QUEUED if state is not LeaseState.SUSPENDED else state

    def _requeue(self, name: str) -> None:
        spec_ = self.leases[name].spec
        self._set(name, LeaseState.QUEUED, remaining_ms=spec_.duration_ms, run_started=None)

    def _instants(self) -> list[int]:
        points = [
            instant
            for row in self.table.reservations()
            for instant in (row.interval.start, row.interval.end)
        ]
        points += [at for name in self.leases if (at := self._real_end(name)) is not None]
        return [instant for instant in points if instant > self.now]

    def _real_end(self, name: str) -> int | None:
        view = self.leases[name]
        if view.run_started is None:
            return None
        ran = view.spec.duration_ms - view.remaining_ms
        return view.run_started + self.real[name] - ran

    def _enact(self) -> None:
        for name in list(self.leases):
            end = self._real_end(name)
            if end is not None and end <= self.now:
                assert end == self.now
                self.end(name)
        for name in list(self.leases):
            self._end_run(name)
        for row in self.table.reservations():
            if row.interval.end <= self.now:
                self.table.remove(row.id)
        for name in list(self.leases):
            self._start_run(name)

    def _end_run(self, name: str) -> None:
        view = self.leases[name]
        rows = self.run_rows(name)
        if view.run_started is None or any(row.interval.end > self.now for row in rows):
            return
        if any(row.kind is ReservationKind.RESIDENT for row in self.table.of_lease(name)):
            ran = max(row.interval.end for row in rows) - view.run_started if rows else 0
            left = view.remaining_ms - ran
            assert left > 0
            self._set(name, LeaseState.SUSPENDING)
            self._set(name, LeaseState.SUSPENDED, remaining_ms=left, run_started=None)
        else:
            self._requeue(name)

    def _start_run(self, name: str) -> None:
        view = self.leases[name]
        due = [row for row in self.run_rows(name) if row.interval.contains(self.now)]
        if view.run_started is not None or not due:
            return
        assert len(due) == view.spec.node_count
        assert all(row.interval.start == self.now for row in due)
        between = LeaseState.RESUMING if view.state is LeaseState.SUSPENDED else LeaseState.STARTING
        self._set(name, between)
        self._set(name, LeaseState.ACTIVE, run_started=self.now)
        self.starts.setdefault(name, []).append(self.now)
