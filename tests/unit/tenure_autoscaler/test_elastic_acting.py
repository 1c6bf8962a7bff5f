"""What the acting loop does for an elastic group: a master, and workers by its queue."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.elastic_farm import ELASTIC, Farm

from tenure_autoscaler.deciding import machines_of
from tenure_autoscaler.executing import LeadershipOverError
from tenure_autoscaler.providers.port import Capabilities
from tenure_autoscaler.values import GroupChange, MachineState
from tenure_core.errors import Stale


async def farm(**group: Any) -> Farm:
    """Return a farm with a master and a worker in service."""
    world = Farm(replace(ELASTIC, **group))
    await world.begin()
    await world.tick(8)
    return world


async def test_a_master_comes_first_and_then_the_workers_that_it_is_told_of() -> None:
    world = await farm()
    assert await world.roles() == {"g-1": "MASTER RUNNING", "g-2": "WORKER RUNNING"}
    master, worker = world.told["g-1"], world.told["g-2"]
    assert (master.start, master.is_master, master.members) == (True, True, ("g-2",))
    assert (worker.start, worker.is_master, worker.master_address) == (True, False, "at-g-1")
    assert (master.machine, worker.machine) == ("g-1", "g-2")
    assert [c for c in world.provider.calls if c.startswith("create")] == [
        "create g-1",
        "create g-2",
    ]
    assert (await world.rules())[:4] == [
        "MASTER_AWAITED",
        "MASTER_AWAITED",
        "MASTER_RUNS",
        "NO_ACTIVE_WORKER",
    ]


async def test_a_queue_that_drains_too_slowly_brings_workers_up_to_the_most() -> None:
    world = await farm()
    world.job_ms, world.waiting_jobs = 10_000, 100
    await world.tick(10)
    assert sorted((await world.roles()).values()) == ["MASTER RUNNING"] + ["WORKER RUNNING"] * 3
    [grown] = [d for d in await world.decisions() if d.rule == "DRAINS_TOO_SLOWLY"]
    assert (grown.current, grown.target) == (1, 3)
    assert dict(grown.inputs)["drainMs"] == "166666.667"
    assert "AT_LIMIT" in await world.rules()


async def test_p14_workers_that_are_not_needed_end_their_work_and_sleep_and_are_woken_first() -> (
    None
):
    world = await farm()
    world.job_ms, world.waiting_jobs = 10_000, 100
    await world.tick(10)
    world.waiting_jobs = 0
    await world.tick(40)
    assert len(world.provider.asleep) == 2 and len(world.provider.machines) == 4
    shown = machines_of(world.agents() or [], [world.group], await world.records())
    assert [machine.state.value for machine in shown] == [
        "RUNNING",
        "RUNNING",
        "SUSPENDED",
        "SUSPENDED",
    ]
    assert [world.told[n].start for n in ("g-2", "g-3", "g-4")] == [True, False, False]
    made = len([c for c in world.provider.calls if c.startswith("create")])
    world.waiting_jobs = 100
    await world.tick(10)
    assert world.provider.asleep == set()
    assert len([c for c in world.provider.calls if c.startswith("create")]) == made
    assert all(world.told[n].start for n in ("g-2", "g-3", "g-4"))


async def test_p20_p21_a_lost_master_is_replaced_and_only_what_its_outage_suspended_wakes() -> None:
    world = await farm()
    world.job_ms, world.waiting_jobs = 10_000, 100
    await world.tick(10)
    world.waiting_jobs = 0
    await world.tick(40)
    asleep = set(world.provider.asleep)
    [lost] = [known for known, spec in world.provider.machines.items() if spec.machine == "g-1"]
    world.provider.vanish(lost)
    await world.tick()
    assert world.provider.asleep == {*asleep, "sim-2"}
    assert "MASTER_LOST" in await world.rules()
    for _ in range(12):
        await world.tick()
        assert len(world.masters()) <= 1
    assert world.masters() == ["g-5"] and world.told["g-5"].master_epoch == 1
    assert world.provider.asleep == asleep
    assert (world.told["g-2"].master_address, world.told["g-2"].master_epoch) == ("at-g-5", 1)


async def test_p20_a_silent_master_that_cannot_be_removed_keeps_the_next_one_waiting() -> None:
    world = await farm()
    world.provider._gone_after_ms = 10**9
    world.silent.add("g-1")
    assert world.sights is not None
    world.sights["g-1"] = replace(world.sights["g-1"], state=MachineState.LOST)
    await world.tick(30)
    assert (await world.roles())["g-1"] == "MASTER REMOVING"
    assert world.told["g-1"].start is False
    new = [n for n, role in (await world.roles()).items() if role == "MASTER RUNNING"]
    assert len(new) == 1 and new[0] not in world.told
    world.provider._gone_after_ms = 0
    await world.tick(5)
    assert world.masters() == new


async def test_p17_the_order_is_written_before_the_provider_is_asked() -> None:
    world = Farm()
    await world.begin()
    world.leads = lambda: False
    actor = await world.leader()
    with pytest.raises(LeadershipOverError):
        await actor.run_once()
    assert await world.roles() == {"g-1": "MASTER REQUESTED"}
    assert not world.provider.machines
    [decision] = await world.decisions()
    assert decision.enacted and "VM_CREATE:g-1:no_master" in dict(decision.inputs)["commands"]


async def test_p18_a_refused_creation_is_asked_for_again_under_another_token() -> None:
    world = Farm()
    await world.begin()
    world.provider.out_of_stock = True
    await world.tick(5)
    assert not world.provider.machines
    world.provider.out_of_stock = False
    await world.tick(5, period_ms=600_000)
    assert next(spec.token for spec in world.provider.machines.values()) != "g-1"


async def test_p22_p23_the_next_leader_goes_on_and_the_former_one_is_refused() -> None:
    world = await farm()
    former = world.acting
    assert former is not None
    world.acting = await world.leader()
    await world.tick(8)
    assert await world.roles() == {"g-1": "MASTER RUNNING", "g-2": "WORKER RUNNING"}
    assert len(world.provider.machines) == 2 and not world.provider.asleep
    with pytest.raises(Stale):
        await former.run_once()


async def test_p20_a_master_lost_while_nobody_leads_is_followed_by_one_of_a_higher_epoch() -> None:
    world = await farm()
    world.provider.vanish("sim-1")
    world.acting = await world.leader()
    await world.tick(8)
    [master] = world.masters()
    assert master != "g-1" and world.told[master].master_epoch == 1
    assert (world.told["g-2"].start, world.told["g-2"].master_epoch) == (True, 1)
    world.provider.vanish("sim-3")
    world.acting = await world.leader()
    await world.tick(2)
    world.provider.vanish("sim-4")
    await world.tick(8)
    [master] = world.masters()
    assert world.told[master].master_epoch == 3


async def test_a_dry_run_decides_and_does_nothing() -> None:
    world = Farm(replace(ELASTIC, dry_run=True))
    await world.begin()
    await world.tick(10)
    assert set(world.provider.calls) == {"list"} and await world.records() == []
    first = (await world.decisions())[-1]
    assert not first.enacted and "VM_CREATE:g-1:no_master" in dict(first.inputs)["commands"]


async def test_a_largest_size_of_nothing_ends_the_workers_and_then_the_master() -> None:
    world = await farm()
    await world.store.change_group("g", GroupChange(size_min=0, size_max=0), None)
    await world.tick()
    assert (world.told["g-1"].start, world.told["g-2"].start) == (True, False)
    await world.tick(6)
    assert not world.provider.machines and await world.roles() == {}
    ends = [c for c in world.provider.calls if c.startswith("remove")]
    assert ends == ["remove sim-2", "remove sim-1"]
    await world.store.delete_group("g", None)


async def test_a_provider_that_cannot_suspend_is_not_asked_for_anything() -> None:
    world = Farm()
    world.provider._capabilities = Capabilities()
    await world.begin()
    await world.tick(3)
    assert await world.rules() == ["CANNOT_SUSPEND"]
    assert set(world.provider.calls) == {"list"}
