"""Simulates leases bound to nodes, with the planner that the live scheduler uses.

At one instant: ends and cut runs, then booked starts, then arrivals, then one planning pass. Agents
obey at once; suspending and resuming take what the policies say. Nothing is decided here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from heapq import heappop, heappush

from tenure_core.admission.usage_meter import METER_MS, UsageMeter
from tenure_core.leases.states import LeaseState
from tenure_core.planning.book import PlanningBook
from tenure_core.planning.kinds import kind_of
from tenure_core.planning.plan import (
    Decision,
    Lose,
    Preempt,
    PreemptHow,
    Queue,
    Reject,
    Resume,
    Schedule,
)
from tenure_core.planning.planner import run_pass
from tenure_core.planning.snapshot import LeaseView, ReservationKind
from tenure_core.policies.bundle import Policies
from tenure_core.policies.pricing import Free, Quote
from tenure_core.resources import ResourceVector
from tenure_core.timebase import FOREVER, Interval, Millis
from tenure_sim.progress import Progress
from tenure_sim.result import SimulationResult, Stretch
from tenure_sim.scores import score
from tenure_sim.site import Site
from tenure_sim.workload import Workload

_END, _WORKED, _CUT, _SUSPENDED, _CANCEL, _START = range(6)
_FORGET_EVERY = 64
_ALWAYS = -1
"""The token of an event that counts whatever became of the lease meanwhile."""


@dataclass(slots=True)
class _Live:
    """A lease under way; `token` names its newest events, older ones are void."""

    index: int
    view: LeaseView
    run_ms: Millis
    token: int = 0
    ran_ms: Millis = 0
    run_started: Millis | None = None
    nodes: tuple[str, ...] = ()


class BoundSimulation:
    """One run; `step` goes from one instant to the next."""

    def __init__(
        self,
        workload: Workload,
        site: Site,
        policies: Policies,
        *,
        checks: bool = False,
        progress: Progress | None = None,
    ) -> None:
        """Prepare a run; with `checks`, the slot table is verified after every instant."""
        count = len(workload)
        self.workload = workload
        self.checks = checks
        self.starts: list[Millis | None] = [None] * count
        self.ends: list[Millis | None] = [None] * count
        self.states = [""] * count
        self.reasons = [""] * count
        self.preemptions = [0] * count
        self.nodes: list[tuple[str, ...]] = [()] * count
        self.stretches: list[Stretch] = []
        self.lost_ms = 0
        self._progress = progress or Progress()
        self._site = site
        self.policies = policies
        self._book = PlanningBook(0, policies, explains=False)
        for node in site.nodes:
            self._book.table.add_node(node)
        self._meter = UsageMeter(0) if policies.ordering.remembers else None
        self._changes = sorted({at for node in site.nodes for at, _ in node.capacity if at > 0})
        self._live: dict[str, _Live] = {}
        self._events: list[tuple[Millis, int, int, str]] = []
        self._next = 0
        self._instants = 0

    def run(self) -> None:
        """Go on until nothing is left that could happen; what waits then never starts."""
        while self.step():
            pass
        for name in list(self._live):
            self._finish(name, "REJECTED", "NEVER_STARTED", None)

    def quotes(self) -> list[Quote | None]:
        """Return what each lease was asked to pay."""
        return [self._book.quotes.by_lease.get(name) for name in self.workload.ids]

    def step(self) -> bool:
        """Live through the next instant; False when there is none."""
        now = self._next_instant()
        if now == FOREVER:
            return False
        self._live_through(now)
        return True

    def _next_instant(self) -> Millis:
        arrivals = self.workload.arrivals
        now = self._events[0][0] if self._events else FOREVER
        if self._next < len(arrivals):
            now = min(now, arrivals[self._next])
        if self._changes:
            now = min(now, self._changes[0])
        return now

    def _live_through(self, now: Millis, *, grew: bool = False) -> None:
        """Live through one instant; `grew` says that nodes have gained capacity at it."""
        arrivals = self.workload.arrivals
        book = self._book
        book.now = now
        grew = grew or (bool(self._changes) and self._changes[0] == now)
        freed = self._due(now) or grew
        arrived: list[str] = []
        while self._next < len(arrivals) and arrivals[self._next] == now:
            arrived.append(self._arrive(self._next))
            self._next += 1
        self._progress.done = self._next
        if self._meter is not None:
            self._remember(self._meter, now)
        run_pass(book, None if freed else arrived, continued=not grew)
        for decision in book.take_decisions():
            self._enact(decision)
        self._instants += 1
        if self._instants % _FORGET_EVERY == 0:
            book.table.forget_before(now)
        if self.checks:
            book.table.check()

    def _remember(self, meter: UsageMeter, now: Millis) -> None:
        """Say what was used so far, as often as a leader does."""
        if now - meter.until >= METER_MS:
            meter.take(now)
            policies = self._book.policies
            self._book.factors = meter.factors(
                policies.ordering.remembers, policies.half_life_ms, self._book.held().capacity
            )

    def _arrive(self, index: int) -> str:
        workload = self.workload
        name = workload.ids[index]
        spec = workload.spec(index)
        freed = self._site.freed_by_suspending
        kept = {kind: amount for kind, amount in spec.amounts.items() if kind not in freed}
        view = LeaseView(
            id=name,
            spec=spec,
            state=LeaseState.PENDING,
            attempt=0,
            arrival=index,
            created=workload.arrivals[index],
            remaining_ms=spec.duration_ms,
            kept=ResourceVector(kept),
        )
        assert name not in self._live, f"lease id {name} is used twice"
        self._live[name] = _Live(index, view, workload.runs[index])
        self._book.put(view)
        cancel = None if workload.cancels is None else workload.cancels[index]
        if cancel is not None:
            at = max(cancel, workload.arrivals[index])
            heappush(self._events, (at, _CANCEL, _ALWAYS, name))
        return name

    def _due(self, now: Millis) -> bool:
        """Do what is due; say whether capacity may have become free or a promise was used up."""
        freed = False
        while self._changes and self._changes[0] == now:
            self._changes.pop(0)
            freed = True
        while self._events and self._events[0][0] == now:
            _, what, token, name = heappop(self._events)
            live = self._live.get(name)
            if live is None or token not in (live.token, _ALWAYS):
                continue
            freed = True
            if what == _END:
                self._finish(name, "DONE", "", now)
            elif what == _CANCEL:
                self._finish(name, "CANCELLED", "", now)
            elif what == _WORKED:
                self._shut_down(name, live)
            elif what == _START:
                self._start(name, live)
            elif what == _CUT:
                self._cut(name, live)
            else:
                self._suspended(name, live)
        return freed

    def _finish(self, name: str, state: str, reason: str, end: Millis | None) -> None:
        live = self._live.pop(name)
        if end is not None:
            self._note_stretch(live, end)
        table = self._book.table
        for row in table.of_lease(name):
            table.remove(row.id)
        self._book.drop(name)
        self.states[live.index], self.reasons[live.index] = state, reason
        self.ends[live.index] = end
        self.nodes[live.index] = live.nodes

    def _note_stretch(self, live: _Live, end: Millis) -> None:
        if self._meter is not None:
            self._meter.end(live.view.id, end)
        if live.run_started is not None and live.run_started < end:
            self.stretches.append(Stretch(live.index, live.run_started, end, live.nodes))

    def _view(self, live: _Live, state: LeaseState, **more: object) -> None:
        live.view = replace(live.view, state=state, **more)  # type: ignore[arg-type]  # its fields
        self._book.put(live.view)

    def _forget_past(self, name: str) -> None:
        table, now = self._book.table, self._book.now
        for row in table.of_lease(name):
            if row.interval.end <= now:
                table.remove(row.id)

    def _start(self, name: str, live: _Live) -> None:
        """Begin the booked run, after a resumption if that takes time."""
        self._forget_past(name)
        runs = self._book.runs(name)
        live.run_started = runs[0].interval.start
        live.nodes = tuple(row.node for row in runs)
        if self._meter is not None:
            self._meter.begin(name, live.view.spec, live.run_started)
        if self.starts[live.index] is None:
            self.starts[live.index] = live.run_started
        self._view(live, LeaseState.ACTIVE, run_started=live.run_started)
        self._await_end(live)

    def _await_end(self, live: _Live) -> None:
        assert live.run_started is not None
        live.token += 1
        end = live.run_started + live.run_ms - live.ran_ms
        what = _WORKED if self.policies.overheads.shutdown_ms else _END
        if self.policies.partial_starts:
            cut = self._cut_at(live)
            if cut is not None and cut < end:
                end, what = cut, _CUT
        heappush(self._events, (end, what, live.token, live.view.id))

    def _cut_at(self, live: _Live) -> Millis | None:
        """Return when the run is to be suspended by what is booked, None when it may end."""
        rows = self._book.table.of_lease(live.view.id)
        if not any(row.interval.end == FOREVER for row in rows):
            return None
        return max(row.interval.end for row in rows if row.kind is ReservationKind.RUN)

    def _shut_down(self, name: str, live: _Live) -> None:
        """Hold the nodes until the lease is shut down, no longer than it may hold them."""
        table, now = self._book.table, self._book.now
        rows = table.of_lease(name)
        held = [row for row in rows if row.kind is not ReservationKind.RESIDENT]
        end = min(now + self.policies.overheads.shutdown_ms, max(row.interval.end for row in held))
        for row in rows:
            if row.kind is not ReservationKind.RUN:
                table.remove(row.id)
        for row in self._book.runs(name):
            table.change(replace(row, interval=Interval(row.interval.start, end)))
        self._view(live, LeaseState.STOPPING)
        live.token += 1
        heappush(self._events, (end, _END, live.token, name))

    def _cut(self, name: str, live: _Live) -> None:
        """Stop the run at the instant at which it must give way."""
        assert live.run_started is not None
        self._forget_past(name)
        now = self._book.now
        kinds = {row.kind for row in self._book.table.rows_of(name)}
        if ReservationKind.RESIDENT not in kinds:
            self._lose_progress(live)
            self._view(live, LeaseState.QUEUED)
            return
        live.ran_ms += max(0, now - live.run_started)
        self._note_stretch(live, now)
        left = live.view.spec.duration_ms - live.ran_ms
        live.run_started = None
        state = LeaseState.SUSPENDED
        if ReservationKind.SUSPEND in kinds:
            state = LeaseState.SUSPENDING
            free_by = now + self._book.policies.overheads.suspend_ms
            heappush(self._events, (free_by, _SUSPENDED, live.token, name))
        self._view(live, state, remaining_ms=left, run_started=None)

    def _suspended(self, name: str, live: _Live) -> None:
        self._forget_past(name)
        self._view(live, LeaseState.SUSPENDED)

    def _lose_progress(self, live: _Live) -> None:
        ran = live.ran_ms
        if live.run_started is not None:
            ran += max(0, self._book.now - live.run_started)
            self._note_stretch(live, self._book.now)
        self.lost_ms += ran * live.view.spec.node_count
        live.ran_ms = 0
        live.run_started = None
        live.token += 1
        live.view = replace(
            live.view,
            state=LeaseState.QUEUED,
            remaining_ms=live.view.spec.duration_ms,
            run_started=None,
        )

    def _enact(self, decision: Decision) -> None:
        live = self._live[decision.lease]
        match decision:
            case Schedule() | Resume():
                self._booked(decision, live)
            case Preempt():
                self._preempted(decision, live)
            case Reject(reason=reason) | Lose(reason=reason):
                state = "REJECTED" if isinstance(decision, Reject) else "FAILED"
                self._finish(decision.lease, state, reason, None)
            case Queue(reason=reason):
                if not self._changes and reason == "NO_SUITABLE_NODES":
                    self._finish(decision.lease, "REJECTED", reason, None)

    def _booked(self, decision: Schedule | Resume, live: _Live) -> None:
        if live.view.state is LeaseState.ACTIVE:
            self._view(live, LeaseState.ACTIVE)
            self._await_end(live)
            return
        if isinstance(decision, Schedule):
            self._view(live, LeaseState.SCHEDULED, attempt=decision.attempt)
        else:
            self._view(live, LeaseState.SUSPENDED)
        live.token += 1
        start = decision.interval.start
        if start <= self._book.now:
            self._start(decision.lease, live)
        else:
            heappush(self._events, (start, _START, live.token, decision.lease))

    def _preempted(self, decision: Preempt, live: _Live) -> None:
        live.view = replace(live.view, preemptions=live.view.preemptions + 1)
        self.preemptions[live.index] += 1
        now = self._book.now
        if live.view.state is not LeaseState.ACTIVE:
            live.token += 1
            if decision.how is PreemptHow.REQUEUE:
                self._lose_progress(live)
            self._book.put(live.view)
            return
        assert live.run_started is not None
        if decision.at <= now:
            live.token += 1
            if decision.how is PreemptHow.REQUEUE:
                self._lose_progress(live)
                self._book.put(live.view)
            else:
                self._cut(decision.lease, live)
            return
        self._book.put(live.view)
        end = live.run_started + live.run_ms - live.ran_ms
        if end > decision.at:
            live.token += 1
            heappush(self._events, (decision.at, _CUT, live.token, decision.lease))


def simulate_bound(
    workload: Workload,
    site: Site,
    policies: Policies,
    seed: int = 0,
    *,
    checks: bool = False,
    progress: Progress | None = None,
) -> SimulationResult:
    """Run the workload with leases bound to nodes and return what became of each."""
    run = BoundSimulation(workload, site, policies, checks=checks, progress=progress)
    run.run()
    return result_of(run, site, seed)


def result_of(run: BoundSimulation, site: Site, seed: int) -> SimulationResult:
    """Return what became of each lease of a run that is over."""
    workload = run.workload
    kinds = [kind_of(workload.spec(index).terms) for index in range(len(workload))]
    slots = site.slots_of(workload.slot) or 0
    return SimulationResult(
        workload=workload,
        policies=str(run.policies.backfilling),
        seed=seed,
        states=run.states,
        reasons=run.reasons,
        starts=run.starts,
        ends=run.ends,
        preemptions=run.preemptions,
        kinds=kinds,
        nodes=run.nodes,
        scores=score(
            workload,
            slots=slots,
            kinds=kinds,
            states=run.states,
            starts=run.starts,
            ends=run.ends,
            preemptions=run.preemptions,
            lost_ms=run.lost_ms,
        ),
        stretches=run.stretches,
        quotes=None if isinstance(run.policies.pricing, Free) else run.quotes(),
    )
