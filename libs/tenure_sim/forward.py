"""Simulates a pool forward from a snapshot, to tell when each waiting lease starts.

That is if nothing new comes, and everybody takes all the time that was asked for. Leases under
way go on, what is booked starts at its time, and the planner of the live system decides the rest,
under whatever policies are asked about.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from heapq import heappush
from typing import Final

from tenure_core.leases.states import WAITING, LeaseState
from tenure_core.planning.book import PlanningBook
from tenure_core.planning.plan import Queue, Reject
from tenure_core.planning.planner import run_pass
from tenure_core.planning.snapshot import LeaseView, ReservationKind, ReservationView, Snapshot
from tenure_core.policies.bundle import Policies
from tenure_core.timebase import FOREVER, Millis
from tenure_sim.binding import _END, _START, _SUSPENDED, BoundSimulation, _Live
from tenure_sim.site import Site
from tenure_sim.workload import SimLease, Workload

_RUNNING: Final = frozenset(
    {LeaseState.STARTING, LeaseState.ACTIVE, LeaseState.PREPARING, LeaseState.RESUMING}
)
_LEAVING: Final = frozenset({LeaseState.STOPPING, LeaseState.CANCELLING})


@dataclass(frozen=True, slots=True)
class Forecast:
    """What becomes of one lease: when it starts (or resumes), None for never, and why it waits."""

    lease: str
    start: Millis | None
    nodes: tuple[str, ...]
    reason: str
    message: str
    preemptions: int


def forecast(snapshot: Snapshot, policies: Policies) -> list[Forecast]:
    """Return the forecast of each lease that waits, is booked or is suspended, by arrival.

    Deterministic; costs as much as simulating the leases of the snapshot to their end.
    """
    return _Forward(snapshot, policies).run_forward()


class _Forward(BoundSimulation):
    """A simulation that begins in the middle."""

    def __init__(self, snapshot: Snapshot, policies: Policies) -> None:
        views = sorted(snapshot.leases, key=lambda view: view.arrival)
        leases = [
            SimLease(view.id, snapshot.now, view.spec, view.spec.duration_ms) for view in views
        ]
        workload = Workload.of("forward", leases)
        super().__init__(workload, Site(snapshot.nodes), policies)
        self._snapshot = snapshot
        self._views = views
        self._next = len(workload)
        self._changes = [at for at in self._changes if at > snapshot.now]
        self._book = PlanningBook.of(snapshot, policies)
        self._why: dict[str, tuple[str, str]] = {}
        self._rows: dict[str, list[ReservationView]] = {}
        for row in sorted(snapshot.reservations, key=lambda each: (each.interval.start, each.id)):
            self._rows.setdefault(row.lease, []).append(row)
        for index, view in enumerate(views):
            self._join(index, view)

    def run_forward(self) -> list[Forecast]:
        """Live through everything that follows and return what became of those that wait."""
        book = self._book
        run_pass(book)
        for decision in book.take_decisions():
            if isinstance(decision, Queue | Reject):
                self._why[decision.lease] = (decision.reason, decision.message)
            if decision.lease in self._live:
                self._enact(decision)
        self.run()
        return [
            self._told(index, view)
            for index, view in enumerate(self._views)
            if view.state in WAITING
            or view.state in (LeaseState.SCHEDULED, LeaseState.SUSPENDED, LeaseState.SUSPENDING)
        ]

    def _told(self, index: int, view: LeaseView) -> Forecast:
        start = self.starts[index]
        reason, message = self._why.get(view.id, ("", ""))
        if view.blocked is not None:
            reason, message = view.blocked.reason, view.blocked.message
        if start is None and not reason:
            reason = self.reasons[index]
        return Forecast(view.id, start, self.nodes[index], reason, message, self.preemptions[index])

    def _join(self, index: int, view: LeaseView) -> None:
        """Take a lease in as it stands, with the event that ends its present state."""
        now = self._snapshot.now
        rows = self._rows.get(view.id, [])
        runs = [row for row in rows if row.kind is ReservationKind.RUN]
        live = _Live(index, view, view.spec.duration_ms)
        live.ran_ms = max(0, view.spec.duration_ms - view.remaining_ms)
        live.nodes = tuple(row.node for row in sorted(runs, key=lambda row: row.rank))
        self._live[view.id] = live
        if view.state in _LEAVING:
            ends = [row.interval.end for row in rows if row.interval.end < FOREVER]
            self._await(_END, max(now + 1, *ends) if ends else now + 1, live)
        elif view.state in _RUNNING:
            began = view.run_started
            if began is None:
                began = min((row.interval.start for row in runs), default=now)
            live.run_started = began
            live.view = replace(view, state=LeaseState.ACTIVE, run_started=began)
            self._book.put(live.view)
            self._await(_END, max(now + 1, began + view.remaining_ms), live)
        elif view.state is LeaseState.SUSPENDING:
            ends = [row.interval.end for row in rows if row.kind is ReservationKind.SUSPEND]
            self._await(_SUSPENDED, max(now + 1, *ends) if ends else now + 1, live)
        elif view.state not in WAITING and runs:
            start = min(row.interval.start for row in runs)
            self._await(_START, max(now + 1, start) if start <= now else start, live)

    def _await(self, what: int, at: Millis, live: _Live) -> None:
        heappush(self._events, (at, what, live.token, live.view.id))
