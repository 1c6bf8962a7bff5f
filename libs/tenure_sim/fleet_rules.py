"""A simulated fleet as the autoscaler's rules take it: machine types, settings, when to look again.

The rules themselves are `tenure_core.autoscaling.fleet`'s.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from tenure_core.autoscaling.booked_demand import NodeBooking
from tenure_core.autoscaling.fleet import FleetDecision, FleetInputs
from tenure_core.autoscaling.fleet_values import FleetConfig
from tenure_core.autoscaling.future_node import NodeState
from tenure_core.autoscaling.group_config import Damping
from tenure_core.autoscaling.lead_times import (
    Measured,
    boot_lead_ms,
    measured_times,
    replacing_ms,
)
from tenure_core.autoscaling.machine_types import DEFAULT_TIMES, MachineType
from tenure_core.leases.lease import Advance, Deadline
from tenure_core.leases.states import WAITING
from tenure_core.planning.snapshot import LeaseView, ReservationKind, ReservationView
from tenure_core.resources import ResourceVector
from tenure_core.timebase import FOREVER, SECOND_MS, Millis
from tenure_sim.fleet_machines import SimMachines
from tenure_sim.fleet_settings import FleetSettings

GUARD_MS: Final[Millis] = 30 * SECOND_MS
"""The rule is asked so seldom: what it has to order may have to wait for that."""


class FleetRules:
    """What the rules are told of one run's fleet."""

    def __init__(self, settings: FleetSettings, fleet: SimMachines) -> None:
        self._settings = settings
        self._fleet = fleet
        self._kinds: dict[str, tuple[Measured, MachineType]] = {}

    def types(self) -> list[MachineType]:
        """Return the machine types with their boots as measured so far."""
        return [self.type(name) for name in self._fleet.types]

    def type(self, name: str) -> MachineType:
        """Return one machine type."""
        boots = self._fleet.measured[name]
        known = self._kinds.get(name)
        if known is None or known[0] is not boots:
            known = self._kinds[name] = (boots, self._measured(name, boots))
        return known[1]

    def _measured(self, name: str, boots: Measured) -> MachineType:
        settings = self._settings
        times = measured_times(
            replace(
                DEFAULT_TIMES,
                boot_p95_ms=settings.boot_p95_ms,
                guard_ms=GUARD_MS,
                idle_suspend_after_ms=settings.idle_ms,
                idle_terminate_after_ms=settings.idle_ms,
            ),
            boot=boots, resume=Measured(), suspend=Measured(),
        )  # fmt: skip
        return MachineType(
            name,
            self._fleet.types[name],
            settings.price_micros,
            can_suspend=False,
            launches_per_minute=settings.launches_per_minute,
            times=times,
            replace_ms=replacing_ms(times, boots),
            can_leave=not settings.keeps_booked,
        )

    def config(self) -> FleetConfig:
        """Return the settings of the fleet."""
        window = min(Damping().in_window_ms, self._settings.idle_ms)
        return FleetConfig(
            len(self._fleet.machines),
            horizon_ms=self._settings.horizon_ms,
            damping=Damping(in_window_ms=window, in_cooldown_ms=window),
        )

    def next_look(self, decided: FleetDecision, inputs: FleetInputs) -> Millis:
        """Return the next instant at which the same state would be decided otherwise."""
        now, period = inputs.now_ms, self._settings.period_ms
        if decided.orders:
            return now + period
        looks = [FOREVER]
        first = first_of(inputs.bookings)
        for kind in self.types():
            target = decided.targets[kind.name]
            mine = [node for node in inputs.nodes if node.type_name == kind.name]
            up = sum(node.usable for node in mine)
            if target.queue != target.queue_damped or target.size > up:
                looks.append(now + 2 * period)
            for node in mine:
                if node.state is NodeState.STARTING:
                    limit = kind.times.start_deadline_factor * kind.times.boot_p95_ms
                    looks.append(now - node.since_ms + node.launch_wait_ms + limit + 1)
                elif node.state is NodeState.RUNNING and not node.busy:
                    looks.append(now - node.since_ms + self._settings.idle_ms)
            absent = sorted(
                first[node.node_id]
                for node in mine
                if node.state is NodeState.ABSENT and node.node_id in first
            )
            looks += [
                start - boot_lead_ms(kind, place) - kind.replace_ms
                for place, start in enumerate(absent, start=1)
            ]
        return max(now + period, min(at for at in looks if at > now))


def waits(view: LeaseView, now: Millis) -> bool:
    """Say whether a lease waits for capacity now, as the live scheduler tells its demand."""
    if view.state not in WAITING:
        return False
    match view.spec.terms:
        case Advance(start=start):
            return start <= now
        case Deadline(earliest_start=earliest):
            return earliest is None or earliest <= now
        case _:
            return True


def used(
    rows: Iterable[ReservationView], running: set[str], now: Millis
) -> dict[str, ResourceVector]:
    """Return what is taken of each node now by leases that run or are kept there."""
    taken: dict[str, ResourceVector] = {}
    for row in rows:
        if row.interval.start <= now and (
            row.lease in running or row.kind is not ReservationKind.RUN
        ):
            before = taken.get(row.node)
            taken[row.node] = row.amounts if before is None else before + row.amounts
    return taken


def first_starts(rows: Iterable[ReservationView]) -> dict[str, Millis]:
    """Return of each node the first start of what is booked there and not over."""
    first: dict[str, Millis] = {}
    for row in rows:
        first[row.node] = min(row.interval.start, first.get(row.node, FOREVER))
    return first


def first_of(bookings: Iterable[NodeBooking]) -> dict[str, Millis]:
    """Return of each node the first start of the bookings that are seen."""
    first: dict[str, Millis] = {}
    for booking in bookings:
        first[booking.node_id] = min(booking.span.start, first.get(booking.node_id, FOREVER))
    return first
