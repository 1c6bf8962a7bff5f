"""Simulates leases on a fleet that an autoscaler sizes, by the rules of the live one.

The planner plans on nodes that may have no machine yet: they are available from now + lead, or from
the start of what is booked on them. A lease whose start has come waits until all of its machines
are there. Sizes are decided by `tenure_core.autoscaling.fleet`; nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from tenure_core.autoscaling.booked_demand import NodeBooking
from tenure_core.autoscaling.fleet import FleetDecision, FleetInputs, FleetState, decide_fleet
from tenure_core.autoscaling.future_node import NodeAction, NodeState
from tenure_core.autoscaling.lead_times import boot_lead_ms
from tenure_core.autoscaling.offered_nodes import offered_nodes
from tenure_core.autoscaling.queue_packing import WaitingLease
from tenure_core.errors import Exhausted
from tenure_core.leases.lease import Advance, BestEffort
from tenure_core.leases.states import WAITING, LeaseState
from tenure_core.planning.plan import Decision, Schedule
from tenure_core.planning.snapshot import LeaseView, ReservationView
from tenure_core.policies.bundle import Policies
from tenure_core.timebase import FOREVER, SECOND_MS, Interval, Millis
from tenure_sim.binding import BoundSimulation, _Live
from tenure_sim.fleet_machines import SimMachines
from tenure_sim.fleet_rules import GUARD_MS, FleetRules, first_starts, used, waits
from tenure_sim.fleet_settings import FleetPolicy, FleetSettings
from tenure_sim.progress import Progress
from tenure_sim.site import Site
from tenure_sim.workload import Workload

_SLACK_SHARE: Final = 4
"""As the live autoscaler: what is offered need not be put off at each look."""


@dataclass(frozen=True, slots=True)
class BookingOutcome:
    """One booking: when it was accepted, its start, and when it was complete (None: never)."""

    index: int
    admitted: Millis
    start: Millis
    complete: Millis | None
    ahead: bool
    """It was accepted earlier than the lead of its machines."""

    @property
    def late_ms(self) -> Millis:
        """Return by how much it was complete too late."""
        return 0 if self.complete is None else max(0, self.complete - self.start)


class FleetSimulation(BoundSimulation):
    """One run of a workload on machines that come and go."""

    def __init__(
        self,
        workload: Workload,
        site: Site,
        policies: Policies,
        settings: FleetSettings,
        seed: int = 0,
        *,
        checks: bool = False,
        progress: Progress | None = None,
    ) -> None:
        super().__init__(workload, site, policies, checks=checks, progress=progress)
        self.settings = settings
        self.fleet = SimMachines(site.nodes, settings.boots(seed))
        self.decisions = 0
        self.cut_ms: Millis = 0
        self._admitted: dict[int, tuple[Millis, bool]] = {}
        self._waiting_for: dict[str, set[str]] = {}
        self._from: dict[str, Millis] = dict.fromkeys(self.fleet.machines, 0)
        self._state = FleetState()
        self._rules = FleetRules(settings, self.fleet)
        self._looked_at: Millis = -settings.period_ms
        self._look_at: Millis = FOREVER
        if settings.policy is FleetPolicy.STATIC:
            self.fleet.start_all()

    def run(self) -> None:
        """Go on until the last lease has ended."""
        super().run()
        self.fleet.close(max((end for end in self.ends if end is not None), default=0))

    def bookings(self) -> list[BookingOutcome]:
        """Return the bookings that were accepted, in the order of arrival."""
        found = []
        for index, (at, ahead) in sorted(self._admitted.items()):
            terms = self.workload.spec(index).terms
            assert isinstance(terms, Advance)
            found.append(BookingOutcome(index, at, terms.start, self.starts[index], ahead))
        return found

    def step(self) -> bool:
        """Live through the next instant."""
        happens = self._next_instant()
        now = min(happens, self.fleet.next_ready(), self._look_at)
        if now == FOREVER or not (self._live or self._next < len(self.workload)):
            return False
        self._book.now = now
        up = self.fleet.ready(now)
        for node in up:
            self._put(node, 0)
        if up or now == happens:
            self._offer()
            self._start_complete(up)
            self._live_through(now, grew=bool(up))
            self._look_at = min(self._look_at, now)
        if self.settings.policy is FleetPolicy.STATIC:
            self._look_at = FOREVER
        elif now >= self._look_at:
            due = self._looked_at + self.settings.period_ms
            self._look_at = due if now < due else self._look()
        return True

    # What the planner is told of nodes

    def _put(self, node: str, since: Millis) -> None:
        self._from[node] = since
        machine = self.fleet.machines[node]
        self._book.table.set_node(replace(machine.node, capacity=((since, machine.capacity),)))

    def _offer(self) -> None:
        """Have nodes without a machine available only once one could be there."""
        if self.settings.policy is FleetPolicy.STATIC:
            return
        now = self._book.now
        soonest = now + min(boot_lead_ms(kind, 1) for kind in self._rules.types())
        if not any(
            self._from[node] < soonest
            for node, machine in self.fleet.machines.items()
            if machine.state is not NodeState.RUNNING
        ):
            return
        first = first_starts(self._rows())
        nodes = self.fleet.seen(now, {})
        for change in offered_nodes(
            nodes, self._rules.types(), self._rules.config(), booked=first, now_ms=now
        ):
            if self._from[change.node_id] < change.available_from_ms:
                kind = self._rules.type(change.type_name)
                slack = boot_lead_ms(kind, 1) // _SLACK_SHARE + SECOND_MS
                until = change.available_from_ms + slack
                self._put(change.node_id, min(until, first.get(change.node_id, until)))
        for node, machine in self.fleet.machines.items():
            overdue = machine.state is NodeState.STARTING and self._from[node] <= now
            if overdue and first.get(node, FOREVER) > now:
                self._put(node, min(now + GUARD_MS, first.get(node, FOREVER)))

    def _rows(self) -> Iterable[ReservationView]:
        now, table = self._book.now, self._book.table
        for name, live in self._live.items():
            if live.view.state not in WAITING:
                for row in table.of_lease(name):
                    if row.interval.end > now:
                        yield row

    # Leases and their machines

    def _start(self, name: str, live: _Live) -> None:
        nodes = {row.node for row in self._book.runs(name)}
        absent = {n for n in nodes if self.fleet.machines[n].state is not NodeState.RUNNING}
        if absent:
            self._waiting_for[name] = absent
            return
        super()._start(name, live)
        self.fleet.begin(live.nodes, self._book.now)

    def _start_complete(self, up: Iterable[str]) -> None:
        """Start the leases whose last machine has just come up."""
        for name, absent in list(self._waiting_for.items()):
            absent.difference_update(up)
            live = self._live.get(name)
            if live is None or live.view.state is not LeaseState.SCHEDULED:
                del self._waiting_for[name]
            elif not absent:
                del self._waiting_for[name]
                self._shift(name, live)
                self._start(name, live)

    def _shift(self, name: str, live: _Live) -> None:
        """Let a lease that begins late end later, or as booked where that is taken by another."""
        book, now = self._book, self._book.now
        rows = book.runs(name)
        late = now - rows[0].interval.start
        moved = [_moved(row, now, row.interval.end + late) for row in rows]
        book.table.begin()
        try:
            for row in moved:
                book.table.change(row)
            book.table.keep()
        except Exhausted:
            book.table.undo()
            for row in rows:
                book.table.change(_moved(row, now, row.interval.end))
            left = rows[0].interval.end - now
            self.cut_ms += max(0, live.run_ms - live.ran_ms - left) * len(rows)
            live.run_ms = min(live.run_ms, live.ran_ms + left)

    def _note_stretch(self, live: _Live, end: Millis) -> None:
        super()._note_stretch(live, end)
        if live.run_started is not None:
            self.fleet.end(live.nodes, end)

    def _enact(self, decision: Decision) -> None:
        live = self._live[decision.lease]
        terms = live.view.spec.terms
        if isinstance(decision, Schedule) and isinstance(terms, Advance):
            lead = boot_lead_ms(self._rules.types()[0], live.view.spec.node_count)
            now = self._book.now
            self._admitted.setdefault(live.index, (now, terms.start - now >= lead))
        super()._enact(decision)

    # What the autoscaler sees and orders

    def _look(self) -> Millis:
        """Decide once, carry it out, and return when to look again unless something happens."""
        now = self._book.now
        self._looked_at = now
        self.decisions += 1
        rows = list(self._rows())
        running = {name for name, live in self._live.items() if live.run_started is not None}
        taken = used(rows, running, now)
        bookings = self._bookings(rows, running)
        nodes = self.fleet.seen(now, taken)
        inputs = FleetInputs(now, nodes, bookings, self._waiting())
        decided = decide_fleet(self._state, inputs, self._rules.types(), self._rules.config())
        self._state = decided.state
        self._carry_out(decided, first_starts(rows) if decided.orders else {})
        until = now + self.settings.horizon_ms
        unseen = min((r.interval.start for r in rows if r.interval.start > until), default=FOREVER)
        return min(self._rules.next_look(decided, inputs), unseen - self.settings.horizon_ms)

    def _bookings(self, rows: list[ReservationView], running: set[str]) -> list[NodeBooking]:
        now = self._book.now
        if self.settings.policy is FleetPolicy.QUEUE:
            rows = [r for r in rows if r.interval.start <= now and r.lease not in running]
        until = now + self.settings.horizon_ms
        return [
            NodeBooking(row.node, row.interval, row.amounts)
            for row in rows
            if row.interval.start <= until
        ]

    def _waiting(self) -> list[WaitingLease]:
        blind = self.settings.policy is FleetPolicy.QUEUE
        waiting = []
        for live in self._live.values():
            view = live.view
            if waits(view, self._book.now) or (blind and self._is_promised(view)):
                spec = view.spec
                waiting.append(
                    WaitingLease(
                        view.id,
                        spec.node_count,
                        spec.amounts,
                        distinct=spec.spread,
                        duration_ms=0 if blind else spec.duration_ms,
                    )
                )
        return waiting

    def _is_promised(self, view: LeaseView) -> bool:
        return (
            view.state is LeaseState.SCHEDULED
            and isinstance(view.spec.terms, BestEffort)
            and view.id not in self._waiting_for
        )

    def _carry_out(self, decided: FleetDecision, first: dict[str, Millis]) -> None:
        now = self._book.now
        for order in decided.orders:
            node = order.node_id
            if order.action is NodeAction.BOOT:
                if not node:
                    continue
                self.fleet.order(node, now, order.launch_wait_ms)
                kind = self._rules.type(order.type_name)
                there = now + order.launch_wait_ms + kind.times.cold_ms
                self._put(node, min(there, first.get(node, there)))
            else:
                self.fleet.remove(node, now)
                there = now + boot_lead_ms(self._rules.type(order.type_name), 1)
                self._put(node, min(there, first.get(node, there)))


def _moved(row: ReservationView, start: Millis, end: Millis) -> ReservationView:
    return replace(row, interval=Interval(start, end), version=row.version + 1)
