"""Drained agents are emptied, and cordoned pools start nothing new."""

from __future__ import annotations

import asyncio

from tests.support.control_plane import POOL, ControlPlane, control_plane, leading
from tests.support.suite import until

from tenure.registry.v1 import registry_pb2 as gpb
from tenure.registry.v1.registry_pb2_grpc import RegistryServiceStub
from tenure_core.policies.bundle import Policies
from tenure_runtime.clocks import BootClock
from tenure_runtime.election.fixed import FixedElector
from tenure_runtime.rpc.wire import bare
from tenure_scheduler.leader import PoolLeader
from tenure_scheduler.store.usage import MemoryUsage


async def drain(plane: ControlPlane, agent: str) -> None:
    client = await plane.client("registry", "ops")
    stub = RegistryServiceStub(client.channel)
    await client.call(stub.DrainAgent, gpb.DrainAgentRequest(name=f"agents/{agent}"))


async def uncordon(plane: ControlPlane, agent: str) -> None:
    client = await plane.client("registry", "ops")
    stub = RegistryServiceStub(client.channel)
    await client.call(stub.UncordonAgent, gpb.UncordonAgentRequest(name=f"agents/{agent}"))


async def test_a_cordoned_pool_starts_nothing_new_until_it_is_opened() -> None:
    closed = True
    async with control_plane() as plane, plane.agent("a1"):
        leader = PoolLeader(
            POOL,
            holder="test",
            address="test@127.0.0.1:1",
            elector=FixedElector(),
            neighbours=await plane.neighbours(),
            usage=MemoryUsage(),
            policies=Policies,
            cordoned=lambda: closed,
            boot=BootClock(),
        )
        task = asyncio.create_task(leader.run())
        try:
            await plane.submit("waits")
            waiting = await plane.until_state("waits", "queued")
            closed = False
            await plane.until_state("waits", "active")
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    assert waiting.reason == "POOL_CORDONED"


async def node_of(plane: ControlPlane, lease: str) -> str:
    [placement] = (await plane.lease(lease)).placements
    return bare(placement.node)


async def test_what_may_be_preempted_moves_off_a_drained_agent() -> None:
    async with (
        control_plane() as plane,
        plane.agent("a1") as first,
        leading(await plane.neighbours()),
    ):
        await plane.submit("moves")
        await plane.until_state("moves", "active")
        async with plane.agent("a2"):
            await drain(plane, "a1")

            async def moved() -> bool:
                found = await plane.lease("moves")
                return found.attempt == 2 and await node_of(plane, "moves") == "a2"

            await until(moved, 15, "the lease is on the other agent")
            found = await plane.until_state("moves", "active")

            assert first.running == {}
            assert (found.attempt, found.failure_count) == (2, 0)


async def test_what_may_not_be_preempted_is_waited_for_and_nothing_new_comes() -> None:
    async with (
        control_plane() as plane,
        plane.agent("a1") as agent,
        leading(await plane.neighbours()),
    ):
        await plane.submit("stays", preemptible=False)
        await plane.until_state("stays", "active")
        await drain(plane, "a1")
        await plane.submit("waits")

        async def closed() -> bool:
            return not (await plane.nodes())[0].capacity

        await until(closed, 15, "the node has no capacity")
        assert (await plane.until_state("stays", "active")).attempt == 1
        await agent.end("stays")
        await plane.until_state("stays", "done")
        assert (await plane.until_state("waits", "queued")).attempt == 0

        await uncordon(plane, "a1")
        assert (await plane.until_state("waits", "active")).attempt == 1
