"""What the slot table is told of machines that are yet to come."""

from __future__ import annotations

from dataclasses import replace

from tests.support.fleet_world import GROUP, FleetWorld

from tenure_autoscaler.values import GroupChange
from tenure_core.timebase import MINUTE_MS, SECOND_MS


async def test_every_machine_that_may_come_is_offered_from_its_lead_on() -> None:
    world = await FleetWorld(replace(GROUP, size_max=3)).begin()
    actor = await world.actor()
    now_ms = world.clock.now
    await actor.run_once()
    assert sorted(world.offered) == ["g-1", "g-2", "g-3"]
    waits = [world.offered[name] - now_ms for name in sorted(world.offered)]
    # Boot 60 s and a guard of 8 s, one launch a second, a quarter of the lead as slack.
    assert waits == [86 * SECOND_MS, 87 * SECOND_MS, 88 * SECOND_MS]


async def test_a_promise_is_renewed_before_it_is_too_early_and_not_at_each_look() -> None:
    world = await FleetWorld(replace(GROUP, size_max=1)).begin()
    actor = await world.actor()
    told = []
    for _ in range(60):
        await actor.run_once()
        told.append(world.offered["g-1"])
        assert world.offered["g-1"] >= world.clock.now + 68 * SECOND_MS
        world.clock.now += SECOND_MS
    assert len(set(told)) == 4


async def test_a_booked_offer_is_put_off_up_to_its_booking_and_its_machine_backs_it() -> None:
    """Until there is a machine nothing else may begin there sooner than one could come."""
    world = await FleetWorld(replace(GROUP, size_max=2), boot_ms=30_000).begin()
    actor = await world.actor()
    await actor.run_once()
    start_ms = world.offered["g-2"] + 9 * MINUTE_MS
    world.book_node("g-2", start_ms, start_ms + 10 * MINUTE_MS)
    while world.clock.now < start_ms:
        await actor.run_once()
        if not world.provider.machines:
            soonest_ms = min(start_ms, world.clock.now + 68 * SECOND_MS)
            assert soonest_ms <= world.offered["g-2"] <= start_ms
        world.clock.now += 5 * SECOND_MS
    assert (await world.states()) == {"g-2": "RUNNING"}
    assert [spec.machine for spec in world.provider.machines.values()] == ["g-2"]
    assert not world.retired


async def test_offers_beyond_the_cap_are_taken_back_unless_booked() -> None:
    world = await FleetWorld(replace(GROUP, size_max=3)).begin()
    actor = await world.actor()
    await actor.run_once()
    world.book_node("g-2", world.clock.now + 60 * MINUTE_MS, world.clock.now + 70 * MINUTE_MS)
    await world.store.change_group("g", GroupChange(size_max=1), None)
    await actor.run_once()
    assert world.offered.keys() == {"g-2"} and world.retired == {"g-1", "g-3"}


async def test_a_paused_group_offers_nothing() -> None:
    world = await FleetWorld(replace(GROUP, size_max=2)).begin()
    actor = await world.actor()
    await actor.run_once()
    await world.store.change_group("g", GroupChange(paused=True), None)
    await actor.run_once()
    assert not world.offered and world.retired == {"g-1", "g-2"}
    await world.store.change_group("g", GroupChange(paused=False), None)
    await actor.run_once()
    assert world.offered.keys() == {"g-1", "g-2"} and not world.retired


async def test_a_name_is_offered_only_once_its_former_agent_is_lost() -> None:
    world = await FleetWorld(replace(GROUP, size_max=1)).begin()
    world.queue(1)
    actor = await world.actor()
    for _ in range(3):
        await actor.run_once()
        world.clock.now += 1_000
    assert (await world.states()) == {"g-1": "RUNNING"}
    assert world.sights is not None
    still = world.sights["g-1"]
    world.provider.vanish("sim-1")
    world.sights["g-1"] = still
    world.queue(0)
    world.clock.now += 10 * MINUTE_MS
    await actor.run_once()
    assert (await world.states()) == {"g-1": "LOST"}
    assert "g-1" not in world.offered
