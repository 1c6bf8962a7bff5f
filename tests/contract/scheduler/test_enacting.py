"""A leader on real neighbours: what becomes of leases that meet one another."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.support.control_plane import control_plane, leading
from tests.support.suite import until

from tenure.admission.v1 import lease_pb2 as lpb
from tenure_core.errors import Invalid, Unavailable, Violation
from tenure_core.leases.states import LeaseState
from tenure_core.timebase import Millis
from tenure_runtime.clocks import SystemClock
from tenure_runtime.rpc.wire import to_duration, to_timestamp
from tenure_scheduler import cycle
from tenure_scheduler.entries import (
    Dispatch,
    DispatchVerdict,
    Prediction,
    SubmitGroup,
    SubmitResult,
    Transition,
    TransitionVerdict,
)
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


async def test_a_lease_that_comes_while_a_plan_is_committed_is_planned_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not when time alone has it planned anew: it would wait a second among many others."""
    monkeypatch.setattr(cycle, "REPLAN_MS", 600_000)
    async with control_plane() as plane, plane.agent():
        real = await plane.neighbours()

        class Interrupted:
            came = is_known = False

            def __getattr__(self, name: str) -> Any:
                return getattr(real.slots, name)

            async def submit(
                self, claim: Claim, as_of: Millis, revision: int, groups: Sequence[SubmitGroup]
            ) -> SubmitResult:
                result: SubmitResult = await real.slots.submit(claim, as_of, revision, groups)
                if not self.came:
                    self.came = True
                    await plane.submit("second", terms=booked(3_600_000))
                    await until(lambda: "second" in known(), 10.0, "the leader knows the second")
                    self.is_known = True
                return result

        slots = Interrupted()
        async with leading(replace(real, slots=slots)) as led:

            def known() -> Collection[str]:
                return led.reign.mirror.leases if led.reign is not None else ()

            await plane.submit("first", terms=booked(3_600_000))
            await until(lambda: slots.is_known, 10.0, "the second has come")
            await plane.until_state("first", "scheduled")
            await plane.until_state("second", "scheduled")


class Forgetful:
    """A lease book whose first record of a state is lost on its way."""

    def __init__(self, leases: Any, state: LeaseState) -> None:
        self._leases = leases
        self._state = state
        self.lost: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._leases, name)

    async def record(
        self, claim: Claim, transitions: Sequence[Transition], predictions: Sequence[Prediction]
    ) -> list[TransitionVerdict]:
        if not self.lost and any(each.state is self._state for each in transitions):
            self.lost = [each.lease for each in transitions]
            await asyncio.sleep(0.1)
            raise Unavailable("DATABASE_UNAVAILABLE", "The database is away.")
        verdicts: list[TransitionVerdict] = await self._leases.record(
            claim, transitions, predictions
        )
        return verdicts


async def test_no_agent_is_told_to_start_what_is_not_recorded_as_starting() -> None:
    """A leader that takes over would free the nodes of what it believes to be booked only."""
    async with control_plane() as plane, plane.agent():
        real = await plane.neighbours()
        forgetful = Forgetful(real.leases, LeaseState.STARTING)
        told: list[tuple[str, str]] = []

        class Listening:
            def __getattr__(self, name: str) -> Any:
                return getattr(real.fleet, name)

            async def dispatch(
                self, claim: Claim, commands: Sequence[Dispatch]
            ) -> list[DispatchVerdict]:
                for command in commands:
                    state = (await plane.lease(command.lease.lease.id)).state
                    told.append((command.verb.value, lpb.Lease.State.Name(state)))
                return await real.fleet.dispatch(claim, commands)

        await plane.submit("works")
        async with leading(replace(real, leases=forgetful, fleet=Listening())):
            await plane.until_state("works", "active")
        assert forgetful.lost == ["works"]
        assert told == [("START", "STATE_STARTING")]


async def test_a_stop_that_an_agent_refused_is_sent_again() -> None:
    async with control_plane() as plane, plane.agent() as agent:
        agent.refuses = ["stop"]
        async with leading(await plane.neighbours()):
            await plane.submit("works")
            await plane.until_state("works", "active")
            await plane.cancel("works")
            await plane.until_state("works", "cancelled")
            assert agent.refuses == []


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
