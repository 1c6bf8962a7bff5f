"""What the acting loop does with a simulated provider, over the memory store."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from tests.support.fleet_world import GROUP, FleetWorld

from tenure_autoscaler.executing import LeadershipOverError
from tenure_autoscaler.providers.port import Capabilities, ProvidedMachine
from tenure_autoscaler.records import GroupClaim
from tenure_autoscaler.values import GroupChange, MachineState
from tenure_core.autoscaling.disruption import TokenBucket
from tenure_core.autoscaling.fleet import FleetState
from tenure_core.errors import Stale
from tenure_core.timebase import MINUTE_MS


async def served(count: int, **group: object) -> FleetWorld:
    """Return a world whose queue has brought so many machines up."""
    world = await FleetWorld(replace(GROUP, **group)).begin()  # type: ignore[arg-type]
    world.queue(count)
    actor = await world.actor()
    for _ in range(3):
        await actor.run_once()
        world.clock.now += 1_000
    assert list((await world.states()).values()) == ["RUNNING"] * count
    world.queue(0)
    return world


async def test_a_queue_brings_machines_and_its_end_lets_them_go() -> None:
    world = await served(2)
    assert world.provider.calls.count("list") == 3
    assert len([c for c in world.provider.calls if c.startswith("create")]) == 2
    actor = await world.actor()
    for _ in range(30):
        await actor.run_once()
        world.clock.now += 30_000
    assert set((await world.states()).values()) == {"REMOVED"}
    assert not world.provider.machines
    assert world.retired == {"g-1", "g-2"}


async def test_p17_the_order_is_written_before_the_provider_is_asked() -> None:
    world = await FleetWorld().begin()
    world.queue(1)
    world.leads = lambda: False
    actor = await world.actor()
    with pytest.raises(LeadershipOverError):
        await actor.run_once()
    [record] = await world.records()
    assert (record.token, record.state) == ("g.g-1.1", MachineState.REQUESTED)
    assert not world.provider.machines
    [decision] = await world.decisions()
    assert decision.enacted and dict(decision.inputs)["orders"] == "BOOT:new:target"


async def test_p17_a_lost_answer_is_resolved_by_the_listing_and_makes_one_machine() -> None:
    world = FleetWorld()
    await world.begin()
    world.queue(1)
    world.provider.faults = replace(world.provider.faults, lost_answer_ppm=1_000_000)
    actor = await world.actor()
    await actor.run_once()
    assert (await world.states()) == {"g-1": "REQUESTED"}
    await actor.run_once()
    assert (await world.states()) == {"g-1": "RUNNING"}
    assert len(world.provider.machines) == 1
    assert [c for c in world.provider.calls if c != "list"] == ["create g.g-1.1"]


async def test_p17_a_lost_request_is_repeated_with_its_token_after_its_wait() -> None:
    world = await FleetWorld().begin()
    world.queue(1)
    world.provider.faults = replace(world.provider.faults, no_effect_ppm=1_000_000)
    actor = await world.actor()
    await actor.run_once()
    world.provider.faults = replace(world.provider.faults, no_effect_ppm=0)
    await actor.run_once()
    assert len(world.provider.calls) == 3
    world.clock.now += MINUTE_MS
    await actor.run_once()
    assert [c for c in world.provider.calls if c != "list"] == ["create g.g-1.1"] * 2
    assert len(world.provider.machines) == 1


async def test_p18_a_stock_out_is_left_alone_for_a_while_and_then_asked_again() -> None:
    world = await FleetWorld().begin()
    world.queue(3)
    world.provider.out_of_stock = True
    actor = await world.actor()
    for _ in range(10):
        await actor.run_once()
        world.clock.now += 1_000
    creates = [c for c in world.provider.calls if c.startswith("create")]
    assert len(creates) == 3
    assert set((await world.states()).values()) == {"REMOVED"}
    told = dict((await world.decisions())[-1].results)
    assert "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY" in told.values()
    world.provider.out_of_stock = False
    world.clock.now += 10 * MINUTE_MS
    await actor.run_once()
    await actor.run_once()
    assert len(world.provider.machines) == 3


async def test_p01_p02_foreign_machines_are_counted_and_never_touched() -> None:
    world = await served(1)
    world.provider.foreign = [
        ProvidedMachine("theirs-1"),
        ProvidedMachine("theirs-2", "g-9", "tenure/other", "other.g-9.1"),
    ]
    actor = await world.actor()
    for _ in range(30):
        await actor.run_once()
        world.clock.now += MINUTE_MS
    assert not any("theirs" in call for call in world.provider.calls)
    assert dict((await world.decisions())[0].inputs)["foreign"] == "2"


async def test_p22_nothing_is_commanded_before_a_complete_listing() -> None:
    world = await FleetWorld().begin()
    world.queue(2)
    world.provider.faults = replace(world.provider.faults, incomplete_ppm=1_000_000)
    actor = await world.actor()
    await actor.run_once()
    assert world.provider.calls == ["list"]
    assert [d.rule for d in await world.decisions()] == ["INCOMPLETE_LISTING"]
    world.provider.away = True
    await actor.run_once()
    assert (await world.decisions())[0].rule == "PROVIDER_AWAY"
    world.provider.away, world.sights = False, None
    world.provider.faults = replace(world.provider.faults, incomplete_ppm=0)
    await actor.run_once()
    assert (await world.decisions())[0].rule == "REGISTRY_UNKNOWN"
    assert set(world.provider.calls) == {"list"}


async def test_p13_p25_a_booking_that_comes_in_between_keeps_the_machine() -> None:
    world = await served(1)
    retire = world.retire

    async def booked_first(claim: object, node: str) -> bool:
        world.book_node(node, world.clock.now + 60_000, world.clock.now + 600_000)
        return await retire(claim, node)  # type: ignore[arg-type]

    world.retire = booked_first  # type: ignore[method-assign]
    actor = await world.actor()
    for _ in range(15):
        world.clock.now += MINUTE_MS
        await actor.run_once()
        if (await world.decisions())[0].enacted:
            break
    assert dict((await world.decisions())[0].results) == {"g-1": "KEPT:BOOKED"}
    assert (await world.states()) == {"g-1": "RUNNING"}
    assert len(world.provider.machines) == 1 and not world.retired


async def test_p13_what_still_runs_is_waited_for_with_the_node_closed() -> None:
    world = await served(1)
    actor = await world.actor()
    record = (await world.records())[0]
    claim = actor._claim
    await world.book.write(claim, [record.turned(MachineState.DRAINING, world.clock.now, "idle")])
    world.runs("g-1", 1)
    await actor.run_once()
    assert (await world.states()) == {"g-1": "DRAINING"} and world.retired == {"g-1"}
    assert len(world.provider.machines) == 1
    world.runs("g-1", 0)
    await actor.run_once()
    await actor.run_once()
    assert (await world.states()) == {"g-1": "REMOVED"}


async def test_p16_a_machine_being_removed_counts_towards_the_cap() -> None:
    world = await served(2, size_max=2)
    world.provider._gone_after_ms = 10 * MINUTE_MS
    actor = await world.actor()
    for record in await world.records():
        draining = record.turned(MachineState.DRAINING, world.clock.now, "idle")
        await world.book.write(actor._claim, [draining])
    await actor.run_once()
    world.queue(5)
    for _ in range(5):
        await actor.run_once()
        world.clock.now += MINUTE_MS
    assert len(world.provider.machines) == 2
    assert sum(c.startswith("create") for c in world.provider.calls) == 2
    for _ in range(12):
        await actor.run_once()
        world.clock.now += MINUTE_MS
    assert sorted((await world.states()).values()) == ["REMOVED"] * 2 + ["RUNNING"] * 2
    assert world.provider.most_at_once == 2


async def test_p16_a_cap_lowered_meanwhile_refuses_the_order() -> None:
    world = await FleetWorld().begin()
    world.queue(3)
    actor = await world.actor()
    view = world.view

    async def lowered(pool: str, now_ms: int) -> object:
        seen = await view(pool, now_ms)
        await world.store.change_group("g", GroupChange(size_max=1), None)
        return seen

    world.view = lowered  # type: ignore[method-assign,assignment]
    await actor.run_once()
    assert not world.provider.machines and not await world.records()
    assert (await world.decisions())[0].rule == "CAP_REACHED"
    await actor.run_once()
    assert len(world.provider.machines) == 1


async def test_p23_a_deposed_leader_writes_and_commands_nothing() -> None:
    world = await FleetWorld().begin()
    world.queue(1)
    old = await world.actor()
    await world.actor()
    with pytest.raises(Stale):
        await old.run_once()
    assert world.provider.calls == ["list"] and not await world.records()


async def test_p03_p09_vanished_and_never_booted_machines_are_replaced() -> None:
    world = await served(1)
    world.book_node("g-1", world.clock.now, world.clock.now + 100 * MINUTE_MS)
    world.clock.now += 3 * MINUTE_MS
    world.provider.vanish("sim-1")
    actor = await world.actor()
    for _ in range(3):
        await actor.run_once()
        world.clock.now += 1_000
    [record] = await world.records()
    assert (record.machine, record.generation, record.state) == ("g-1", 2, MachineState.RUNNING)


async def test_p09_a_boot_that_never_ends_is_replaced() -> None:
    world = await FleetWorld().begin()
    world.queue(1)
    world.provider.faults = replace(world.provider.faults, never_boots_ppm=1_000_000)
    actor = await world.actor()
    await actor.run_once()
    world.provider.faults = replace(world.provider.faults, never_boots_ppm=0)
    for _ in range(10):
        world.clock.now += MINUTE_MS
        await actor.run_once()
    assert [spec.token for spec in world.provider.machines.values()] == ["g.g-2.1"]
    assert (await world.states()) == {"g-1": "REMOVED", "g-2": "RUNNING"}


async def test_p06_a_fleet_that_falls_silent_at_once_is_not_removed() -> None:
    world = await served(4)
    assert world.sights is not None
    for name, sight in list(world.sights.items())[:3]:
        world.sights[name] = replace(sight, state=MachineState.LOST)
    actor = await world.actor()
    for _ in range(14):
        await actor.run_once()
        world.clock.now += MINUTE_MS
    assert not any(call.startswith("remove") for call in world.provider.calls)


async def test_p05_one_silent_machine_is_removed_after_its_time() -> None:
    world = await served(1)
    assert world.sights is not None
    world.sights["g-1"] = replace(world.sights["g-1"], state=MachineState.LOST)
    actor = await world.actor()
    await actor.run_once()
    world.clock.now += 4 * MINUTE_MS
    await actor.run_once()
    assert (await world.states()) == {"g-1": "RUNNING"}
    world.clock.now += 2 * MINUTE_MS
    await actor.run_once()
    await actor.run_once()
    assert (await world.states()) == {"g-1": "REMOVED"}


async def test_an_orphan_is_removed_after_its_grace_and_a_duplicate_at_once() -> None:
    world = await served(1)
    actor = await world.actor()
    spec = world.provider.machines["sim-1"]
    world.provider._capabilities = Capabilities(creates_once=False)
    await world.provider.create(spec)
    await world.provider.create(replace(spec, machine="g-7", token="g.g-7.1"))
    world.book_node("g-1", world.clock.now, world.clock.now + 100 * MINUTE_MS)
    await actor.run_once()
    assert "remove sim-2" in world.provider.calls and "remove sim-3" not in world.provider.calls
    world.clock.now += 11 * MINUTE_MS
    await actor.run_once()
    assert "remove sim-3" in world.provider.calls
    assert list(world.provider.machines) == ["sim-1"]


@pytest.mark.parametrize("field", ["paused", "dry_run"])
async def test_a_paused_or_dry_group_only_says_what_it_would_do(field: str) -> None:
    world = await FleetWorld(replace(GROUP, **{field: True})).begin()  # type: ignore[arg-type]
    world.queue(2)
    actor = await world.actor()
    await actor.run_once()
    [decision] = await world.decisions()
    assert (decision.target, decision.rule, decision.enacted) == (2, "BACKLOG", False)
    assert not await world.records() and world.provider.calls == ["list"]


async def test_p12_an_unknown_queue_removes_nothing() -> None:
    world = await served(2)
    world.waiting = None
    actor = await world.actor()
    for _ in range(30):
        await actor.run_once()
        world.clock.now += MINUTE_MS
    assert list((await world.states()).values()) == ["RUNNING", "RUNNING"]


async def test_p26_a_booking_brings_its_machine_up_before_its_start() -> None:
    world = await FleetWorld(boot_ms=30_000).begin()
    start_ms = world.clock.now + 10 * MINUTE_MS
    world.book_node("g-1", start_ms, start_ms + 10 * MINUTE_MS)
    actor = await world.actor()
    up_ms = None
    while world.clock.now < start_ms:
        await actor.run_once()
        if up_ms is None and (await world.states()).get("g-1") == "RUNNING":
            up_ms = world.clock.now
        world.clock.now += 5_000
    assert up_ms is not None
    # In time for two more starts, should one fail, each given up after twice a minute.
    assert 0 < start_ms - up_ms <= 60_000 + 2 * 128_000


async def test_a_name_that_is_used_again_gets_a_new_token_and_its_node_opens() -> None:
    world = await FleetWorld(capabilities=Capabilities(names=("only",))).begin()
    for generation in (1, 2):
        world.queue(1)
        actor = await world.actor()
        for _ in range(12):
            await actor.run_once()
            world.clock.now += 1_000
        assert [spec.token for spec in world.provider.machines.values()] == [f"g.only.{generation}"]
        assert (await world.states()) == {"only": "RUNNING"} and not world.retired
        world.queue(0)
        for _ in range(15):
            world.clock.now += MINUTE_MS
            await actor.run_once()
        assert (await world.states()) == {"only": "REMOVED"}
        # Its agent is lost by then, so it is offered again for a machine to come.
        assert world.offered.keys() == {"only"} and not world.retired


async def test_a_fleet_at_rest_costs_one_listing_a_look_whatever_its_size() -> None:
    world = await FleetWorld(replace(GROUP, size_min=100, size_max=100)).begin()
    actor = await world.actor()
    for _ in range(12):
        await actor.run_once()
        world.clock.now += 20_000
    assert list((await world.states()).values()) == ["RUNNING"] * 100
    world.provider.calls.clear()
    for _ in range(3):
        await actor.run_once()
        world.clock.now += 20_000
    assert world.provider.calls == ["list"] * 3


@pytest.mark.slow
async def test_a_thousand_machines_are_reconciled_by_their_listing_alone() -> None:
    """Once they are up and busy, a look costs the provider one listing, however many there are."""
    quick = Capabilities(launches_per_minute=60_000)
    world = await FleetWorld(replace(GROUP, size_max=1_000), capabilities=quick).begin()
    actor = await world.actor()
    memory = (await world.book.open_book("g")).memory
    bucket = TokenBucket(60_000, 1_000)
    memory = replace(memory, fleet=FleetState(creations=bucket))
    await world.book.write(GroupClaim("g", world.epoch), [], memory)
    world.queue(1_000)
    for _ in range(3):
        await actor.run_once()
        world.clock.now += 1_000
    assert Counter((await world.states()).values()) == {"RUNNING": 1_000}
    world.queue(0)
    for name in await world.states():
        world.runs(name, 1)
    world.provider.calls.clear()
    for _ in range(5):
        await actor.run_once()
        world.clock.now += MINUTE_MS
    assert world.provider.calls == ["list"] * 5
