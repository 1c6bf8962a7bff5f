"""A booking whose node is lost before its time: placed elsewhere, or its owner is told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from tests.support.control_plane import ControlPlane, control_plane, leading
from tests.support.suite import until

from tenure.admission.v1 import lease_pb2 as lpb
from tenure_runtime.clocks import SystemClock
from tenure_runtime.rpc.wire import bare, to_duration, to_timestamp

WHOLE = {"cpu": 4_000}


@asynccontextmanager
async def booked_on_one_of_two() -> AsyncIterator[tuple[ControlPlane, str, AsyncExitStack]]:
    """Book a lease that starts in eight seconds; give its node, and what stops that agent."""
    async with (
        control_plane(fence_ms=1_000, loss_ms=1_500) as plane,
        AsyncExitStack() as rest,
        leading(await plane.neighbours()),
    ):
        agents = {name: AsyncExitStack() for name in ("a1", "a2")}
        for name, stack in agents.items():
            await rest.enter_async_context(stack)
            await stack.enter_async_context(plane.agent(name))
        start = to_timestamp(SystemClock().now_ms() + 8_000)
        terms = lpb.Terms(advance=lpb.AdvanceTerms(start_time=start))
        await plane.submit("early", terms=terms, amounts=WHOLE, duration=to_duration(60_000))
        lease = await plane.until_state("early", "scheduled")
        node = bare(lease.placements[0].node)
        yield plane, node, agents[node]


async def test_it_is_placed_on_another_node_and_its_owner_sees_why() -> None:
    async with booked_on_one_of_two() as (plane, node, agent):
        await agent.aclose()

        async def moved() -> bool:
            return bare((await plane.lease("early")).placements[0].node) != node

        await until(moved, 10, "the booking is on the other node")
        lease = await plane.lease("early")
        assert (lease.state, lease.reason) == (lpb.Lease.STATE_SCHEDULED, "NODE_LOST")
        other = bare(lease.placements[0].node)
        text = f"Node {node} can no longer keep it; it is booked on {other} for the same time."
        assert lease.message == lease.history[-1].message == text

        async def booked_there() -> bool:
            # The lease says so first: it is charged before it is booked.
            rows = [(bare(row.node), row.displaced) for row in await plane.rows()]
            return rows == [(other, False)]

        await until(booked_there, 10, "its reservation is on the other node")
        began = await plane.until_state("early", "active")
        assert began.attempt == 1


async def test_where_nothing_fits_its_owner_is_told_before_its_time() -> None:
    async with booked_on_one_of_two() as (plane, _, agent):
        start = to_timestamp(SystemClock().now_ms() + 3_000)
        terms = lpb.Terms(advance=lpb.AdvanceTerms(start_time=start))
        await plane.submit("other", terms=terms, amounts=WHOLE, duration=to_duration(60_000))
        await plane.until_state("other", "scheduled")
        await agent.aclose()

        lost = await plane.until_state("early", "failed", within_s=6)

        assert lost.reason == "NOT_AVAILABLE_AT_START"
        assert lost.message.startswith(
            "Its node can no longer keep it. It does not fit at that time"
        )
        assert lost.end_time.ToMilliseconds() < lost.terms.advance.start_time.ToMilliseconds()
        assert not lost.HasField("charge_interval")
