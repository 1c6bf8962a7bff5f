"""The ancestor's rules on small sites where the timeline can be written down by hand."""

from __future__ import annotations

import pytest

from tenure_core.planning.haizea.amounts import fits_in, least, minus, plus, total
from tenure_core.planning.haizea.entries import HaizeaLease, Kind, State
from tenure_core.planning.haizea.placing import HaizeaWorld
from tenure_core.planning.haizea.pricing import REFUSED, Prices
from tenure_core.planning.haizea.settings import HaizeaRules, Suspension
from tenure_core.planning.haizea.table import HaizeaTable
from tenure_core.planning.haizea.timing import suspend_estimate, threshold
from tenure_core.policies.bundle import Migration
from tenure_core.policies.pricing import Adaptive, Constant
from tenure_sim.haizea import HaizeaSimulation, StopWhen

NODE = (100, 1024, 1_000_000, 1_000_000, 1_000_000)
VNODE = (100, 1024, 0, 0, 0)


def lease(number, kind=Kind.BEST_EFFORT, arrival=0, start=None, duration=3600, count=1, **more):
    return HaizeaLease(
        number, kind, arrival, start, duration, (VNODE,) * count, (1024,) * count, **more
    )


def rules(**more) -> HaizeaRules:
    options = {"futures_max": 1, "passing": True, "suspension": Suspension.ALL} | more
    return HaizeaRules(**options)


def run(leases, nodes=4, stop=StopWhen.ALL_DONE, prices=None, **options) -> None:
    world = HaizeaWorld(rules(**options), HaizeaTable([NODE] * nodes), prices=prices or Prices())
    HaizeaSimulation(world, leases, stop).run()


def test_an_advance_lease_suspends_the_one_that_runs_and_it_resumes():
    victim = lease(1)
    booked = lease(2, Kind.ADVANCE, arrival=900, start=1800, duration=1800, count=4)
    run([victim, booked])
    assert victim.segments == [(0, 1768, (1,), False), (3632, 5464, (1,), False)]
    assert victim.events == [
        ("preempted", 900, 1800, "suspend"),
        ("suspend", 1768, 1800, (1,)),
        ("resume", 3600, 3632, (1,)),
    ]
    assert (victim.state, victim.ran, booked.first_start) == (State.DONE, 3600, 1800)


def test_without_suspension_the_victim_loses_its_nodes_and_its_work():
    victim = lease(1)
    booked = lease(2, Kind.ADVANCE, arrival=900, start=1800, duration=1800, count=4)
    run([victim, booked], suspension=Suspension.NONE)
    assert victim.segments == [(0, 900, (1,), True), (3600, 7200, (1,), False)]


def test_a_best_effort_lease_may_run_for_less_before_a_booking_and_go_on_after():
    booked = lease(1, Kind.ADVANCE, start=1800, duration=600, count=4)
    early = lease(2, arrival=0, duration=3600)
    run([booked, early])
    assert [segment[:2] for segment in early.segments] == [(0, 1768), (2432, 4264)]


def test_a_suspended_lease_migrates_where_it_may():
    victim = lease(1, duration=3000)
    first = lease(2, Kind.ADVANCE, arrival=10, start=1000, duration=500, count=2)
    second = lease(3, Kind.ADVANCE, arrival=20, start=1500, duration=5000)
    run([victim, first, second], nodes=2, migration=Migration.YES)
    moves = [event for event in victim.events if event[0] == "migrate-mem"]
    assert [event[2] - event[1] for event in moves] == [82]
    assert victim.state is State.DONE


def test_an_image_is_brought_before_the_run_and_shared_with_who_comes_meanwhile():
    image = ("a.img", 1024)
    first, second = lease(1, image=image), lease(2, image=image)
    run([first, second], transfers=True)
    assert first.events == [("transfer", 0, 82, "a.img", {1: [(1, 1)], 2: [(2, 1)]})]
    assert (first.first_start, second.first_start) == (82, 82)


def test_an_early_end_moves_a_booked_start_forward():
    running = lease(1, duration=3600, count=4, known_duration=600)
    waiting = lease(2, duration=600, count=4)
    run([running, waiting])
    assert waiting.first_start == 600


def test_deadline_leases_make_room_for_one_another():
    loose = lease(1, Kind.DEADLINE, start=1800, duration=7200, count=4, deadline=36_000)
    tight = lease(2, Kind.DEADLINE, 900, 3600, 900, 4, deadline=4500)
    run([loose, tight], suspension=Suspension.NONE)
    assert (tight.first_start, loose.first_start) == (3600, 4500)


def test_deadline_leases_that_yield_are_suspended_and_resume_in_time():
    loose = lease(1, Kind.DEADLINE, start=1800, duration=7200, count=4, deadline=36_000)
    tight = lease(2, Kind.DEADLINE, 900, 3600, 900, 4, deadline=4500)
    run([loose, tight], deadlines_yield=True, migration=Migration.YES)
    assert [segment[:2] for segment in loose.segments] == [(1800, 3568), (4532, 9964)]


@pytest.mark.parametrize(("rate", "state"), [(1.0, State.DONE), (20.0, State.REJECTED_BY_USER)])
def test_a_user_refuses_a_price_above_their_rate(rate, state):
    asked = lease(1, Kind.ADVANCE, start=100, count=2, user_rate=2.0)
    run([asked], prices=Prices(Constant(rate)))
    assert asked.state is state
    assert asked.price == (2.0 if state is State.DONE else REFUSED)


def test_adaptive_prices_rise_with_what_is_accepted():
    prices = Prices(Adaptive(1.0))
    offers = [lease(n, Kind.ADVANCE, start=0, user=7, user_rate=2.0) for n in range(4)]
    accepted = [prices.offer(offer) for offer in offers]
    assert accepted == [True, True, False, True]
    assert [offer.price for offer in offers] == [1.0, 1.5, REFUSED, 1.875]


def test_what_killed_the_ancestor_ends_here():
    """Short notice (fault 5), a lease larger than the site (7), a start in the past (8)."""
    run([lease(1, count=9), lease(2, count=1)])
    run([lease(1), lease(2, Kind.ADVANCE, arrival=900, start=905, count=4)])
    run([lease(1, Kind.ADVANCE, arrival=100, start=50)])


def test_the_run_stops_when_it_is_told_to():
    first, late = lease(1), lease(2, Kind.ADVANCE, arrival=900, start=1800)
    run([first, late], stop=StopWhen.BEST_EFFORT_SUBMITTED)
    assert (first.state, late.state) == (State.ACTIVE, State.PENDING)


def test_estimates_add_up_the_vnodes_and_the_threshold_doubles_them():
    wide = lease(1, count=3)
    assert suspend_estimate(rules(), wide) == 96
    assert threshold(rules(), wide, suspended=False) == 192
    assert threshold(rules(), wide, suspended=True) == 384
    assert threshold(rules(threshold=5), wide, suspended=True) == 5
    assert suspend_estimate(rules(first_release=True), wide) == 288


def test_instances_are_placed_first_fit_and_listed_when_added():
    free = ((100, 50), 10)
    assert fits_in(((50, 50), 5), free)
    assert not fits_in(((50, 50, 100), 5), free)
    assert minus(free, ((50,), 4)) == ((50, 50), 6)
    assert plus(((50,), 1), ((100,), 2)) == ((50, 100), 3)
    assert least(free, ((30, 90), 20)) == ((30, 50), 10)
    assert total((100, 50)) == 150
