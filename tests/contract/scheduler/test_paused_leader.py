"""A leader that is paused at any point and goes on when another leads changes nothing.

The paused one even goes on to believe that it leads (its clock stood still with it): what keeps it
from doing harm is that every service compares its epoch where it writes, not what it knows itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

import pytest
from tests.support.control_plane import ControlPlane, ObedientAgent, control_plane, leading
from tests.support.suite import until

from tenure_core.errors import Stale
from tenure_runtime.election.elector import Leader
from tenure_runtime.election.fixed import FixedElector, Seats
from tenure_scheduler.leader import PoolLeader
from tenure_scheduler.ports import Neighbours

CALLS = (
    "slots.acquire_epoch",
    "leases.fence",
    "fleet.fence",
    "slots.state",
    "leases.held",
    "fleet.agents",
    "fleet.reports",
    "slots.set_capacity",
    "leases.record#charge",
    "slots.submit",
    "leases.record#step",
    "fleet.dispatch",
)
"""What a leader calls until work starts, in this order. The snapshot is read between `fleet.fence`
and `slots.set_capacity`, the plan is made just before the charge."""

POINTS = [f"{when} {call}" for call in CALLS for when in ("before", "after")]


class Gate:
    """Holds whoever reaches one point, the first time."""

    def __init__(self, point: str) -> None:
        self.point = point
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()
        self.refused: list[str] = []

    async def at(self, point: str) -> None:
        if point == self.point and not self.reached.is_set():
            self.reached.set()
            await self.opened.wait()


class Gated:
    """A port whose calls pass the gate before and after."""

    def __init__(self, port: Any, name: str, gate: Gate) -> None:
        self._port = port
        self._name = name
        self._gate = gate

    def __getattr__(self, method: str) -> Any:
        real = getattr(self._port, method)
        if method.startswith("watch"):
            return real

        async def call(*arguments: Any, **named: Any) -> Any:
            name = _called(f"{self._name}.{method}", arguments)
            await self._gate.at(f"before {name}")
            try:
                answer = await real(*arguments, **named)
            except Stale as error:
                self._gate.refused.append(f"{name} {error.reason}")
                raise
            await self._gate.at(f"after {name}")
            return answer

        return call


def _called(name: str, arguments: tuple[Any, ...]) -> str:
    """Tell the charge, which comes before the commit, from the other records."""
    if name != "leases.record":
        return name
    _, transitions, _ = arguments
    charges = any(each.charge is not None for each in transitions)
    return f"{name}#{'charge' if charges else 'step'}"


def gated(real: Neighbours, gate: Gate) -> Neighbours:
    return Neighbours(
        Gated(real.leases, "leases", gate),
        Gated(real.slots, "slots", gate),
        Gated(real.fleet, "fleet", gate),
    )


class Believing:
    """A leadership that its holder goes on to believe in, whatever happens."""

    def __init__(self, scope: str) -> None:
        self.scope = scope
        self.token = 1
        self.lost = asyncio.Event()

    def valid(self) -> bool:
        return True

    async def resign(self) -> None:
        return None


class BelievingElector:
    """Lets its replica win once, and never again."""

    def __init__(self) -> None:
        self.campaigns = 0

    async def campaign(self, scope: str, value: str) -> Believing:
        self.campaigns += 1
        if self.campaigns > 1:
            await asyncio.Event().wait()
        return Believing(scope)

    async def leader(self, scope: str) -> Leader | None:
        return None

    async def observe(self, scope: str) -> AsyncGenerator[Leader | None, None]:
        yield None

    async def close(self) -> None:
        return None


async def _everything(plane: ControlPlane, agent: ObedientAgent) -> dict[str, Any]:
    """Return all that a leader can change, as the services and the agent have it."""
    return {
        "leases": await plane.leases(),
        "rows": await plane.rows(),
        "nodes": await plane.nodes(),
        "commands": list(agent.commands),
    }


async def _settled(plane: ControlPlane) -> None:
    """Wait until the new leader has done all there is to do: one runs, two wait."""
    await plane.until_state("runs", "active")
    await plane.until_state("promised", "scheduled")
    await plane.until_state("waits", "queued")


async def _submit(plane: ControlPlane) -> None:
    await plane.submit("runs", amounts={"cpu": 3_000})
    await plane.submit("promised", amounts={"cpu": 3_000})
    await plane.submit("waits", amounts={"cpu": 3_000})


async def _acts(old: PoolLeader, elector: BelievingElector) -> None:
    """Wait until the old leader has done what it still would, were it let.

    It may find that nothing is left to do: then nobody needed to refuse it anything.
    """
    await until(lambda: old.reign is not None or elector.campaigns == 2, 10.0, "it goes on")
    with suppress(Stale):
        await old.trigger()


@pytest.mark.parametrize("point", POINTS[1:])
async def test_a_leader_that_pauses_while_another_takes_over_changes_nothing(point: str) -> None:
    gate = Gate(point)
    async with control_plane() as plane, plane.agent() as agent:
        await _submit(plane)
        real = await plane.neighbours()
        elector = BelievingElector()
        async with leading(gated(real, gate), elector, "old") as old:
            await asyncio.wait_for(gate.reached.wait(), 10)
            async with leading(real, holder="new") as new:
                await _settled(plane)
                before = await _everything(plane, agent)
                gate.opened.set()
                await _acts(old, elector)
                assert await _everything(plane, agent) == before
                await plane.submit("later")
                await plane.until_state("later", "active")
                await until(lambda: elector.campaigns == 2, 10.0, "the old leader is deposed")
                assert gate.refused, "nobody refused it anything"
                assert all(refusal.endswith("STALE_EPOCH") for refusal in gate.refused)
                assert new.reign is not None, "the new leader was disturbed"
                after = await _everything(plane, agent)
                assert [x for x in after["leases"] if x.name != "leases/later"] == before["leases"]
                assert after["nodes"] == before["nodes"]
                assert len(set(after["commands"])) == len(after["commands"]) == 2


async def test_a_leader_that_pauses_before_its_epoch_leads_no_more_when_it_goes_on() -> None:
    """Its epoch is then newer than the present leader's: it must see for itself that it is late."""
    gate, seats = Gate("before slots.acquire_epoch"), Seats()
    async with control_plane() as plane, plane.agent() as agent:
        await _submit(plane)
        real = await plane.neighbours()
        async with leading(gated(real, gate), FixedElector(seats), "old") as old:
            await asyncio.wait_for(gate.reached.wait(), 10)
            async with leading(real, FixedElector(seats), "new"):
                await seats.take_away("pool/default")
                await _settled(plane)
                before = await _everything(plane, agent)
                gate.opened.set()
                await until(
                    lambda: len(seats.seat("pool/default").waiting) == 1, 10.0, "it runs again"
                )
                assert old.reign is None
                # The present leader was overtaken by an epoch and takes a newer one by itself.
                await plane.submit("later", amounts={"cpu": 1_000})
                await plane.until_state("later", "active")
                after = await _everything(plane, agent)
                known = {lease.name: lease for lease in before["leases"]}
                assert [x for x in after["leases"] if x.name in known] == before["leases"]
                assert len(set(after["commands"])) == 2


async def test_a_start_that_was_held_up_starts_nothing_once_the_lease_was_cancelled() -> None:
    gate = Gate("before fleet.dispatch")
    async with control_plane() as plane, plane.agent() as agent:
        await plane.submit("l1")
        real = await plane.neighbours()
        elector = BelievingElector()
        async with leading(gated(real, gate), elector, "old") as old:
            await asyncio.wait_for(gate.reached.wait(), 10)
            await plane.until_state("l1", "starting")
            # The new leader finds it cancelled before it could tell the agent to start it.
            await plane.cancel("l1")
            async with leading(real, holder="new"):
                cancelled = await plane.until_state("l1", "cancelled")
                gate.opened.set()
                await _acts(old, elector)
                await until(lambda: elector.campaigns == 2, 10.0, "the old leader is deposed")

                assert "fleet.dispatch STALE_EPOCH" in gate.refused
                assert await plane.lease("l1") == cancelled
                assert not agent.running
                assert [command.split(".")[3] for command in agent.commands] == ["stop"]
