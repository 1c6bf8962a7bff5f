"""A provider that is slow, lies about its effects and fails by halves, over many seeds.

The queue rises and falls, bookings come, leaders change. At every instant: the cap holds, a token
has one machine, a booked machine is not removed. Once the faults end, records and machines agree.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from tests.support.fleet_world import GROUP, FleetWorld

from tenure_autoscaler.providers.port import ProvidedMachine
from tenure_autoscaler.providers.simulated import Faults
from tenure_autoscaler.values import MachineState
from tenure_core.timebase import MINUTE_MS, SECOND_MS

CAP = 4
BAD = Faults(
    lost_answer_ppm=150_000, no_effect_ppm=100_000, refused_ppm=100_000, never_boots_ppm=50_000,
    incomplete_ppm=100_000,
)  # fmt: skip


async def troubled(seed: int) -> FleetWorld:
    world = FleetWorld(
        replace(GROUP, size_max=CAP, idle_ms=2 * MINUTE_MS, boot_ms=30_000),
        boot_ms=20_000, listed_after_ms=15_000, gone_after_ms=40_000, faults=BAD, seed=seed,
    )  # fmt: skip
    world.provider.foreign = [ProvidedMachine("theirs")]
    return await world.begin()


@pytest.mark.parametrize("seed", range(12))
async def test_no_fault_breaks_the_cap_or_makes_a_twin(seed: int) -> None:
    chance = random.Random(seed)
    world = await troubled(seed)
    actor = await world.actor()
    for step in range(400):
        if step % 40 == 0:
            world.queue(chance.randrange(7))
        if chance.random() < 0.03:
            actor = await world.actor()
        world.provider.away = chance.random() < 0.05
        book_one(world, chance)
        await actor.run_once()
        check(world)
        world.clock.now += chance.choice((1, 5, 20)) * SECOND_MS
    world.provider.faults, world.provider.away = Faults(), False
    world.queue(0)
    for _ in range(90):
        await actor.run_once()
        check(world)
        world.clock.now += MINUTE_MS
    live = {r.token for r in await world.records() if r.live}
    assert live == {spec.token for spec in world.provider.machines.values()}
    booked = {b.node for b in world.bookings or () if b.span.end > world.clock.now}
    assert {r.machine for r in await world.records() if r.live} <= booked
    assert all(r.state is MachineState.RUNNING for r in await world.records() if r.live)


def book_one(world: FleetWorld, chance: random.Random) -> None:
    """Now and then book a node that can be booked, as the slot table would allow."""
    free = sorted((set(world.offered) | serving(world)) - world.retired)
    if free and chance.random() < 0.05:
        node = chance.choice(free)
        earliest = max(world.clock.now, world.offered.get(node, 0))
        start_ms = earliest + chance.randrange(10) * MINUTE_MS
        world.book_node(node, start_ms, start_ms + 5 * MINUTE_MS)


def serving(world: FleetWorld) -> set[str]:
    return {n for n, s in (world.sights or {}).items() if s.state is MachineState.RUNNING}


def check(world: FleetWorld) -> None:
    """Check what must hold at every instant."""
    specs = list(world.provider.machines.values())
    assert len({spec.token for spec in specs}) == len(specs)
    assert len(specs) <= CAP and world.provider.most_at_once <= CAP
    assert not any("theirs" in call for call in world.provider.calls)
    booked = {b.node for b in world.bookings or () if b.span.end > world.clock.now}
    assert not booked & world.retired
