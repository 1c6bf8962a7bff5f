"""A leader on real neighbours: what becomes of leases that meet one another."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.support.control_plane import control_plane, leading
from tests.support.suite import until

from tenure.admission.v1 import lease_pb2 as lpb
from tenure_core.errors import Invalid, Violation
from tenure_core.timebase import Millis
from tenure_runtime.clocks import SystemClock
from tenure_runtime.rpc.wire import to_duration, to_timestamp
from tenure_scheduler.entries import SubmitGroup, SubmitResult
from tenure_scheduler.ports import Claim


def booked(in_ms: int) -> lpb.Terms:
    start = to_timestamp(SystemClock().now_ms() + in_ms)
    return lpb.Terms(advance=lpb.AdvanceTerms(start_time=start))


async def test_work_that_asked_for_processors_only_is_suspended_and_resumes() -> None:
    """What it keeps while it stands still is nothing at all, and that must be bookable."""
    async with (
        control_plane() as plane,
        plane.agent() as agent,
        leading(await plane.neighbours()),
    ):
        await plane.submit("works", amounts={"cpu": 3_000}, duration=to_duration(60_000))
        await plane.until_state("works", "active")
        wanted = {"amounts": {"cpu": 3_000}, "duration": to_duration(5_000)}
        await plane.submit("booked", terms=booked(1_500), preemptible=False, **wanted)
        await plane.until_state("works", "suspended")
        present = await plane.until_state("booked", "active")
        assert present.attempt == 1
        await agent.end("booked")
        await plane.until_state("booked", "done")
        await plane.until_state("works", "active")
        await agent.end("works")
        done = await plane.until_state("works", "done")
        assert (done.attempt, done.preemption_count) == (1, 1)
        assert await plane.rows() == []


class Picky:
    """A slot table that takes one lease's groups for nonsense, as another version might."""

    def __init__(self, slots: Any, lease: str) -> None:
        self._slots = slots
        self._lease = lease

    def __getattr__(self, name: str) -> Any:
        return getattr(self._slots, name)

    async def submit(
        self, claim: Claim, as_of: Millis, revision: int, groups: Sequence[SubmitGroup]
    ) -> SubmitResult:
        if any(self._lease in group.id or self._lease in str(group) for group in groups):
            raise Invalid([Violation("groups", "ODD", "makes no sense")])
        return await self._slots.submit(claim, as_of, revision, groups)


async def test_a_group_that_makes_no_sense_does_not_sink_the_others() -> None:
    async with control_plane() as plane, plane.agent():
        real = await plane.neighbours()
        for name in ("good-1", "odd", "good-2"):
            await plane.submit(name)
        async with leading(replace(real, slots=Picky(real.slots, "odd"))):
            await plane.until_state("good-1", "active")
            await plane.until_state("good-2", "active")
            refused = await plane.until_state("odd", "queued")
            assert refused.reason == "PLAN_REFUSED"


async def test_a_booking_that_is_refused_again_and_again_is_tried_less_and_less_often() -> None:
    async with control_plane() as plane, plane.agent():
        real = await plane.neighbours()
        await plane.submit("odd")
        async with leading(replace(real, slots=Picky(real.slots, "odd"))):

            async def tried_often() -> bool:
                return (await plane.lease("odd")).attempt >= 5

            await until(tried_often, 10.0, "it is tried several times")
            before = (await plane.lease("odd")).attempt
            # The pauses are 0.1, 0.2, 0.4, 0.8 … seconds: at most three more fit here.
            await asyncio.sleep(1.0)
            assert (await plane.lease("odd")).attempt <= before + 3
            await plane.submit("even")
            await plane.until_state("even", "active")
