"""Fleets in the simulation: machines come for what is booked and waits, fail, idle, go and cost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tenure_core.leases.lease import Advance, BestEffort, LeaseSpec
from tenure_core.policies.bundle import Policies
from tenure_core.policies.preemption import NoPreemption
from tenure_core.resources import ResourceVector
from tenure_core.timebase import HOUR_MS, MINUTE_MS, SECOND_MS, Millis
from tenure_sim.fleet_figures import FleetFigures, figures_of
from tenure_sim.fleet_settings import FleetPolicy, FleetSettings
from tenure_sim.fleet_simulation import FleetSimulation
from tenure_sim.site import Site
from tenure_sim.workload import SimLease, Workload

CPU = ResourceVector({"cpu": 1000})
SURE = FleetSettings(boot_median_ms=60 * SECOND_MS, failed_ppm=0)
POLICIES = Policies(preemption=NoPreemption())


def lease(
    name: str, arrival: Millis, minutes: int, nodes: int = 1, start: Millis | None = None
) -> SimLease:
    terms = BestEffort() if start is None else Advance(start)
    duration = minutes * MINUTE_MS
    spec = LeaseSpec("ann", "p", "sim", terms, nodes, CPU, duration)
    return SimLease(name, arrival, spec, duration)


def run(
    leases: list[SimLease], settings: FleetSettings = SURE, *, nodes: int = 4, seed: int = 0
) -> FleetSimulation:
    workload = Workload.of("w", leases)
    site = Site.of_nodes(nodes, CPU)
    simulation = FleetSimulation(workload, site, POLICIES, settings, seed, checks=True)
    simulation.run()
    return simulation


def figures(
    leases: list[SimLease], settings: FleetSettings = SURE, *, nodes: int = 4, seed: int = 0
) -> FleetFigures:
    return figures_of(run(leases, settings, nodes=nodes, seed=seed))


def test_from_zero_what_waits_brings_machines_and_waits_for_their_boot_only() -> None:
    found = run([lease("a", 0, 30, nodes=2)])

    assert found.states == ["DONE"]
    booted = found.starts[0]
    assert booted is not None and 30 * SECOND_MS < booted < 3 * MINUTE_MS
    assert (found.fleet.time.boots, found.fleet.time.busy) == (2, 2 * 30 * MINUTE_MS)


def test_booked_machines_are_there_at_the_start_and_not_hours_before() -> None:
    booked = [lease("b", 0, 60, nodes=4, start=5 * HOUR_MS)]
    aware = figures(booked)
    blind = figures(booked, replace(SURE, policy=FleetPolicy.QUEUE))

    assert (aware.ahead, aware.complete, aware.late_max_ms) == (1, 1, 0)
    assert aware.wasted_hours < 1
    assert (blind.ahead, blind.complete) == (1, 0)
    assert 30 * SECOND_MS < blind.late_max_ms < 3 * MINUTE_MS


def test_boots_that_fail_are_replaced_before_the_booking_begins() -> None:
    half = replace(SURE, failed_ppm=200_000)
    bookings = [
        lease(f"b{place}", 0, 60, nodes=4, start=(1 + 9 * place) * HOUR_MS) for place in range(12)
    ]
    found = figures(bookings, half, seed=3)

    assert found.failed_boots > 3
    assert (found.ahead, found.complete) == (12, 12)


def test_who_begins_late_ends_late_unless_another_is_booked_behind() -> None:
    blind = replace(SURE, policy=FleetPolicy.QUEUE)
    alone = run([lease("b", 0, 60, start=HOUR_MS)], blind)
    pressed = run(
        [lease("b", 0, 60, 4, start=HOUR_MS), lease("c", 0, 60, 4, start=2 * HOUR_MS)], blind
    )

    late = alone.bookings()[0].late_ms
    assert late > 0 and alone.ends == [2 * HOUR_MS + late]
    assert pressed.ends == [2 * HOUR_MS, 3 * HOUR_MS]
    assert pressed.cut_ms == 4 * pressed.bookings()[0].late_ms


@pytest.mark.parametrize("keeps", [False, True])
def test_an_idle_machine_goes_for_a_long_gap_unless_it_is_to_stay(keeps: bool) -> None:
    """Three hours lie between what ran on the node and what is booked there."""
    settings = replace(SURE, keeps_booked=keeps)
    leases = [lease("now", 0, 30), lease("b", 0, 60, start=4 * HOUR_MS)]
    found = figures(leases, settings, nodes=1)

    assert found.complete == 1
    assert found.boots == (1 if keeps else 2)
    assert (found.idle_hours > 3) is keeps


def test_a_lease_that_a_booking_leaves_no_time_for_buys_no_machine() -> None:
    """Blind, its machines idle while it waits for the booking to end; aware, they are not there."""
    leases = [
        lease("b", 0, 60, nodes=4, start=7 * HOUR_MS),
        lease("long", HOUR_MS, 600, nodes=4),
    ]
    aware = figures(leases)
    blind = figures(leases, replace(SURE, policy=FleetPolicy.QUEUE))

    assert aware.wasted_hours < 2 < 20 < blind.wasted_hours
    assert aware.done == blind.done == 2


def test_a_static_fleet_is_all_there_all_the_time() -> None:
    found = figures([lease("a", 0, 60)], replace(SURE, policy=FleetPolicy.STATIC))

    assert (found.boots, found.machine_hours, found.busy_hours) == (0, 4.0, 1.0)
    assert found.cost == 4.0


def test_all_time_that_is_paid_for_is_accounted_for() -> None:
    """Booting, idle and in use together are the lives of the machines, whatever happened."""
    leases = [lease(str(n), n * 7 * MINUTE_MS, 20 + n % 3, 1 + n % 4) for n in range(40)]
    found = run(leases, replace(SURE, failed_ppm=100_000), seed=5)

    in_use = sum((stretch.end - stretch.start) * len(stretch.nodes) for stretch in found.stretches)
    assert found.fleet.time.busy == in_use
    assert found.states == ["DONE"] * 40
    assert found.fleet.time.most <= 4


def test_the_same_seed_gives_the_same_run_and_another_one_another() -> None:
    leases = [lease(str(n), n * 7 * MINUTE_MS, 20 + n % 3, 1 + n % 4) for n in range(20)]
    first, again, other = (figures(leases, seed=seed) for seed in (1, 1, 2))

    assert first == again
    assert first != other
