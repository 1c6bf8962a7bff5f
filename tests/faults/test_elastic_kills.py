"""The acting leader of an elastic group is killed at every await of each of its stories.

The stories: a master and its worker come; the queue grows; workers are put to sleep and woken; the
master is lost; the group ends. After every death the next leader finishes what was begun.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable

import pytest
from tests.support.elastic_farm import Farm
from tests.support.mortal import Killed, Mortal, When, mortal_actor

from tenure_autoscaler.elastic_acting import ElasticActor
from tenure_autoscaler.values import GroupChange
from tenure_core.errors import Stale

WORKERS_MAX = 3


async def nothing(world: Farm) -> None:
    """Begin with nothing."""


async def grows(world: Farm) -> None:
    """Have more queued than one worker can work off."""
    await world.tick(8)
    world.job_ms, world.waiting_jobs = 10_000, 100


async def shrinks(world: Farm) -> None:
    """Have nothing queued any more, and nearly long enough."""
    await grows(world)
    await world.tick(10)
    world.waiting_jobs = 0
    await world.tick(11)


async def wakes(world: Farm) -> None:
    """Have workers asleep and much queued again."""
    await shrinks(world)
    await world.tick(20)
    assert len(world.provider.asleep) == 2
    world.waiting_jobs = 100


async def loses_master(world: Farm) -> None:
    """Have workers asleep on purpose; the master goes while the one who dies is at work."""
    await wakes(world)
    world.waiting_jobs = 0
    world.master_goes_in = 3


async def ends(world: Farm) -> None:
    """Have a group that may have no machines any more."""
    await world.tick(8)
    await world.store.change_group("g", GroupChange(size_min=0, size_max=0), None)


Story = Callable[[Farm], Awaitable[None]]
STORIES: dict[str, tuple[Story, int, set[str], dict[str, int]]] = {
    "comes": (nothing, 7, {"order", "create", "fence", "reports"}, {"MASTER": 1, "WORKER": 1}),
    "grows": (grows, 6, {"order", "create", "reports"}, {"MASTER": 1, "WORKER": 3}),
    "shrinks": (shrinks, 6, {"order", "suspend", "reports"}, {"MASTER": 1, "WORKER": 3}),
    "wakes": (wakes, 6, {"order", "resume", "reports"}, {"MASTER": 1, "WORKER": 3}),
    "loses_master": (loses_master, 12, {"order", "suspend", "resume", "create"},
                     {"MASTER": 1, "WORKER": 3}),
    "ends": (ends, 6, {"order", "remove", "reports"}, {}),
}  # fmt: skip


def strike(world: Farm) -> None:
    """Count down to the end of the first master."""
    world.master_goes_in -= 1
    if world.master_goes_in == 0:
        [lost] = [known for known, spec in world.provider.machines.items() if spec.token == "g-1"]
        world.provider.vanish(lost)


async def dies(world: Farm, mortal: Mortal, runs: int) -> bool:
    """Act until killed or `runs` are over; say whether it was killed."""
    actor = await mortal_actor(world, mortal)
    assert isinstance(actor, ElasticActor)
    world.acting = actor
    for _ in range(runs):
        strike(world)
        try:
            await world.tick()
        except Killed:
            return True
        check(world)
    return False


async def next_leader(world: Farm, mortal: Mortal) -> None:
    """Take over, let late effects come, and act until nothing is open any more."""
    world.acting = await world.leader()
    await world.tick()
    for call in mortal.late:
        with contextlib.suppress(Stale):
            await call()
    for _ in range(40):
        strike(world)
        await world.tick()
        check(world)
        if world.master_goes_in <= 0 and await settled(world):
            break


async def settled(world: Farm) -> bool:
    """Say whether the last runs found nothing to do."""
    said = len(await world.decisions())
    await world.tick(3)
    return said == len(await world.decisions())


def check(world: Farm) -> None:
    """Check what must hold at every instant: one machine a token, the cap, one active master."""
    tokens = [spec.token for spec in world.provider.machines.values()]
    assert len(tokens) == len(set(tokens)), "a token made two machines"
    assert len(world.masters()) <= 1, "two masters serve"
    assert world.provider.most_at_once <= WORKERS_MAX + 1, "the cap was exceeded"


@pytest.mark.parametrize(
    "story",
    ["comes", *(pytest.param(name, marks=pytest.mark.slow) for name in STORIES if name != "comes")],
)
@pytest.mark.parametrize("when", list(When), ids=lambda when: when.name.lower())
async def test_killed_at_every_await(story: str, when: When) -> None:
    """P16, P17, P20, P21, P22: no leak, no double create, one active master at every instant."""
    prepare, runs, wanted, roles = STORIES[story]
    places: list[str] = []
    while True:
        world = Farm()
        await world.begin()
        await prepare(world)
        mortal = Mortal(len(places), when)
        if not await dies(world, mortal, runs):
            break
        places.append(mortal.died_in)
        await next_leader(world, mortal)
        where = (len(places), mortal.died_in)
        live = [record for record in await world.records() if record.live]
        machines = {spec.token for spec in world.provider.machines.values()}
        assert {record.token for record in live} == machines, where
        found = [record.role for record in live]
        assert {role: found.count(role) for role in set(found)} == roles, where
        assert len(world.masters()) == roles.get("MASTER", 0), where
        asleep = {"shrinks": 2, "loses_master": 2}.get(story, 0)
        assert len(world.provider.asleep) == asleep, where
    assert wanted <= set(places), set(places)
    assert len(places) >= 20
