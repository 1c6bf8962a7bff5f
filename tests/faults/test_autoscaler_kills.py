"""The acting leader is killed at every await of a create and of a remove: enumerated, not sampled.

Each call that leaves the process (provider, database, slot table, registry) is a place to die:
before it had its effect, after it had it, or so that its effect comes only once the next leader is
at work. A dead leader does nothing more. The next leader then finishes what was begun.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
from tests.support.fleet_world import GROUP, FleetWorld
from tests.support.mortal import Killed, Mortal, When, mortal_actor

from tenure_autoscaler.providers.port import Capabilities
from tenure_autoscaler.values import MachineState
from tenure_core.errors import Stale
from tenure_core.timebase import MINUTE_MS

CAP = 2


async def dies(world: FleetWorld, mortal: Mortal, runs: int) -> bool:
    """Act until killed or `runs` are over; say whether it was killed."""
    actor = await mortal_actor(world, mortal)
    for _ in range(runs):
        try:
            await actor.run_once()
        except Killed:
            return True
        world.clock.now += 1_000
    return False


async def next_leader(world: FleetWorld, mortal: Mortal) -> None:
    """Take over, let late effects come, and act until nothing is open any more."""
    actor = await world.actor()
    await actor.run_once()
    for call in mortal.late:
        with contextlib.suppress(Stale):
            await call()
    for _ in range(20):
        world.clock.now += MINUTE_MS
        await actor.run_once()


def check(world: FleetWorld, most: int = CAP) -> None:
    """Check what must hold whatever happened: the cap, and one machine a token."""
    tokens = [spec.token for spec in world.provider.machines.values()]
    assert len(tokens) == len(set(tokens)), "a token made two machines"
    assert world.provider.most_at_once <= most, "the cap was exceeded"


async def no_leak(world: FleetWorld) -> None:
    """Check that records and machines say the same."""
    live = {r.token for r in await world.records() if r.live}
    assert live == {spec.token for spec in world.provider.machines.values()}
    opened = {r.machine for r in await world.records() if r.state is MachineState.RUNNING}
    assert not opened & world.retired, "a machine serves behind a closed node"


@pytest.mark.parametrize("creates_once", [True, False], ids=["tokens", "no-tokens"])
@pytest.mark.parametrize("when", list(When), ids=lambda when: when.name.lower())
async def test_killed_at_every_await_of_a_create(when: When, creates_once: bool) -> None:
    if when is When.LATE and not creates_once:
        pytest.skip("without tokens only the listing protects, and a late effect is not in it yet")
    places: list[str] = []
    while True:
        world = FleetWorld(
            replace(GROUP, size_max=CAP), capabilities=Capabilities(creates_once=creates_once)
        )
        await world.begin()
        world.queue(3)
        mortal = Mortal(len(places), when)
        if not await dies(world, mortal, runs=3):
            break
        places.append(mortal.died_in)
        await next_leader(world, mortal)
        check(world)
        await no_leak(world)
        assert len(world.provider.machines) == CAP, (len(places), mortal.died_in)
    assert {"order", "create", "write", "list_machines", "unretire"} <= set(places)
    assert len(places) >= 20


@pytest.mark.parametrize("when", list(When), ids=lambda when: when.name.lower())
async def test_killed_at_every_await_of_a_remove(when: When) -> None:
    places: list[str] = []
    while True:
        world = FleetWorld(replace(GROUP, size_max=CAP, idle_ms=60_000))
        await world.begin()
        world.queue(CAP)
        actor = await world.actor()
        for _ in range(3):
            await actor.run_once()
            world.clock.now += 1_000
        world.queue(0)
        for _ in range(2):
            await actor.run_once()
            world.clock.now += 50_000
        mortal = Mortal(len(places), when)
        if not await dies(world, mortal, runs=4):
            break
        places.append(mortal.died_in)
        await next_leader(world, mortal)
        check(world)
        await no_leak(world)
        assert not world.provider.machines, (len(places), mortal.died_in)
        assert {r.state for r in await world.records()} == {MachineState.REMOVED}
    assert {"order", "retire", "running", "remove", "write"} <= set(places)


@pytest.mark.parametrize("when", list(When), ids=lambda when: when.name.lower())
async def test_a_booking_that_comes_while_leaders_change_keeps_its_machine(when: When) -> None:
    """P25: booked after the death, its machine is there at the start or not closed at all."""
    places: list[str] = []
    while True:
        world = FleetWorld(replace(GROUP, size_max=1, idle_ms=60_000))
        await world.begin()
        world.queue(1)
        actor = await world.actor()
        for _ in range(3):
            await actor.run_once()
            world.clock.now += 1_000
        world.queue(0)
        for _ in range(2):
            await actor.run_once()
            world.clock.now += 50_000
        mortal = Mortal(len(places), when)
        if not await dies(world, mortal, runs=3):
            break
        places.append(mortal.died_in)
        open_node = "g-1" not in world.retired
        start_ms = world.clock.now + MINUTE_MS
        if open_node:
            # Only an open node can be booked: the slot table decides, in one transaction.
            world.book_node("g-1", start_ms, start_ms + 60 * MINUTE_MS)
        await next_leader(world, mortal)
        check(world, most=1)
        await no_leak(world)
        if open_node:
            assert not any(call.startswith("remove") for call in world.provider.calls)
            assert (await world.states()) == {"g-1": "RUNNING"}, mortal.died_in
    assert "retire" in places
