"""A new leader finds what the one before left half done, and finishes or undoes it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.support.control_plane import POOL, ControlPlane, control_plane, leading
from tests.support.suite import until

from tenure.admission.v1 import admission_pb2 as apb
from tenure.admission.v1 import admission_pb2_grpc as agrpc
from tenure.admission.v1 import lease_pb2 as lpb
from tenure_core.agents.work import Verb
from tenure_core.leases.lease import Placement
from tenure_core.leases.states import LeaseState
from tenure_core.planning.snapshot import ReservationKind, ReservationView
from tenure_core.resources import ResourceVector
from tenure_core.slots.commit import BookRow, Node
from tenure_core.slots.operations import ReleaseRow, ResizeRow
from tenure_core.timebase import Interval
from tenure_runtime.clocks import SystemClock
from tenure_runtime.rpc.wire import bare, to_duration, to_interval, to_timestamp
from tenure_scheduler.entries import Dispatch, LeaseEntry, SubmitGroup, Transition
from tenure_scheduler.ports import Claim, Neighbours

CPU = ResourceVector({"cpu": 1_000})


class Predecessor:
    """A leader that does single steps by hand, and then is no more."""

    def __init__(self, neighbours: Neighbours) -> None:
        self.neighbours = neighbours
        self.claim = Claim(POOL, 0)
        self.begun = SystemClock().now_ms()

    async def take_over(self) -> None:
        epoch = await self.neighbours.slots.acquire_epoch(POOL, "before")
        self.claim = Claim(POOL, epoch)
        await self.neighbours.leases.fence(self.claim)
        await self.neighbours.fleet.fence(self.claim)
        node = Node("a1", POOL, ((0, ResourceVector({"cpu": 4_000, "memory": 2**33})),), agent="a1")
        await self.neighbours.slots.set_capacity(self.claim, [node], cordoned=False)

    @property
    def interval(self) -> Interval:
        return Interval(self.begun, self.begun + 60_000)

    async def entry(self, lease: str) -> LeaseEntry:
        held, _ = await self.neighbours.leases.held(POOL)
        return next(each for each in held if each.lease.id == lease)

    async def charge(self, lease: str) -> None:
        await self.record(
            lease,
            LeaseState.SCHEDULED,
            attempt=1,
            charge=self.interval,
            placements=(Placement(0, "a1", self.interval),),
        )

    async def record(self, lease: str, state: LeaseState, **facts: object) -> None:
        known = (await self.entry(lease)).lease
        given = {"attempt": known.attempt, "reason": "BOOKED", "message": "", **facts}
        transition = Transition(
            id=f"{self.claim.epoch}.{lease}.{known.version}",
            lease=lease,
            version=known.version,
            state=state,
            **given,
        )
        [verdict] = await self.neighbours.leases.record(self.claim, [transition], ())
        assert not verdict.reason, verdict

    async def book(self, lease: str, attempt: int = 1, rank: int = 0) -> None:
        row = ReservationView(
            f"{lease}.{attempt}.{rank}.RUN.0",
            lease,
            attempt,
            rank,
            "a1",
            self.interval,
            CPU,
            ReservationKind.RUN,
        )
        group = SubmitGroup(lease, (BookRow(row),))
        now = SystemClock().now_ms()
        result = await self.neighbours.slots.submit(self.claim, now, 0, [group])
        assert not result.verdicts[0].reason, result

    async def command(self, lease: str) -> None:
        entry = await self.entry(lease)
        command = Dispatch(
            f"{lease}.1.0.start.0", entry, 1, 0, "a1", Verb.START, "DUE", 1_000, ("a1",)
        )
        [verdict] = await self.neighbours.fleet.dispatch(self.claim, [command])
        assert not verdict.reason, verdict


@asynccontextmanager
async def half_done() -> AsyncIterator[tuple[ControlPlane, Predecessor]]:
    async with control_plane() as plane:
        yield plane, Predecessor(await plane.neighbours())


async def test_a_charge_without_its_booking_is_undone_and_planned_anew() -> None:
    async with half_done() as (plane, before), plane.agent() as agent:
        await before.take_over()
        await plane.submit("l1")
        await before.charge("l1")
        async with leading(before.neighbours):
            active = await plane.until_state("l1", "active")
        assert active.attempt == 2
        assert [entry.reason for entry in active.history if entry.attempt == 1][-1] == (
            "BOOKING_LOST"
        )
        assert [(row.lease, row.attempt) for row in await plane.rows()] == [("leases/l1", 2)]
        assert len(agent.running) == 1


async def test_a_booking_that_no_lease_holds_is_given_back() -> None:
    async with half_done() as (plane, before), plane.agent():
        await before.take_over()
        await before.book("ghost")
        assert len(await plane.rows()) == 1
        async with leading(before.neighbours):

            async def is_empty() -> bool:
                return not await plane.rows()

            await until(is_empty, 10.0, "the orphan is released")


async def test_a_lease_that_is_starting_without_a_command_gets_its_command() -> None:
    async with half_done() as (plane, before), plane.agent() as agent:
        await before.take_over()
        await plane.submit("l1")
        await before.charge("l1")
        await before.book("l1")
        await before.record("l1", LeaseState.STARTING)
        assert agent.commands == []
        async with leading(before.neighbours):
            active = await plane.until_state("l1", "active")
        assert active.attempt == 1
        assert len(agent.commands) == 1


async def test_what_was_reported_between_leaders_is_recorded() -> None:
    async with half_done() as (plane, before), plane.agent() as agent:
        await before.take_over()
        await plane.submit("l1")
        await before.charge("l1")
        await before.book("l1")
        await before.record("l1", LeaseState.STARTING)
        await before.command("l1")
        await until(lambda: bool(agent.running), 10.0, "the agent runs it")
        await agent.end("l1")
        async with leading(before.neighbours):
            done = await plane.until_state("l1", "done")
        assert (done.reason, done.exit_code, done.attempt) == ("COMPLETED", 0, 1)
        assert await plane.rows() == []
        assert len(set(agent.commands)) == 1


async def test_a_repeat_of_a_command_by_the_next_leader_is_the_same_command() -> None:
    async with half_done() as (plane, before), plane.agent() as agent:
        await before.take_over()
        await plane.submit("l1")
        await before.charge("l1")
        await before.book("l1")
        await before.record("l1", LeaseState.STARTING)
        agent.obeys = False
        await before.command("l1")
        await until(lambda: bool(agent.commands), 10.0, "the agent has its command")
        async with leading(before.neighbours) as leader:
            await until(lambda: leader.reign is not None, 10.0, "it leads")
            await leader.trigger()
            await leader.trigger()
        assert len(set(agent.commands)) == 1


async def until_granted(plane: Any) -> None:
    """Wait until the change that was asked for of l1 is granted."""

    async def is_granted() -> bool:
        verdict = (await plane.lease("l1")).pending_change.verdict
        return verdict == lpb.PendingChange.VERDICT_GRANTED

    await until(is_granted, 10.0, "the change is granted")


async def test_an_extension_that_was_booked_and_not_recorded_is_made_once() -> None:
    async with half_done() as (plane, before), plane.agent():
        await before.take_over()
        before.begun += 120_000
        terms = lpb.Terms(advance=lpb.AdvanceTerms(start_time=to_timestamp(before.begun)))
        await plane.submit("l1", terms=terms, duration=to_duration(60_000))
        await before.charge("l1")
        await before.book("l1")
        asked = apb.UpdateLeaseRequest(lease=lpb.Lease(name="leases/l1"))
        asked.lease.duration.CopyFrom(to_duration(90_000))
        client = await plane.client("admission", "ann")
        stub: Any = agrpc.AdmissionServiceStub(client.channel)
        await client.call(stub.UpdateLease, asked)
        longer = ResizeRow("l1.1.0.RUN.0", 1, before.begun + 90_000)
        group = SubmitGroup("l1/change", (longer,))
        await before.neighbours.slots.submit(before.claim, SystemClock().now_ms(), 0, [group])

        async with leading(before.neighbours):
            await until_granted(plane)
        lease = await plane.lease("l1")
        span = Interval(before.begun, before.begun + 90_000)
        [row] = await plane.rows()
        assert to_interval(row.interval) == to_interval(lease.charge_interval) == span
        assert (lease.duration.seconds, lease.remaining_duration.seconds) == (90, 90)


async def test_slots_that_were_given_back_and_not_recorded_are_given_up_once() -> None:
    async with half_done() as (plane, before), plane.agent():
        await before.take_over()
        before.begun += 120_000
        terms = lpb.Terms(advance=lpb.AdvanceTerms(start_time=to_timestamp(before.begun)))
        fields = {"terms": terms, "duration": to_duration(60_000), "node_count": 3}
        await plane.submit("l1", **fields)
        async with leading(before.neighbours):
            await plane.until_state("l1", "scheduled")
            await plane.until_booked(3)
        await before.take_over()
        asked = apb.UpdateLeaseRequest(lease=lpb.Lease(name="leases/l1", node_count=1))
        client = await plane.client("admission", "ann")
        stub: Any = agrpc.AdmissionServiceStub(client.channel)
        await client.call(stub.UpdateLease, asked)
        surplus = tuple(ReleaseRow(bare(row.name)) for row in await plane.rows() if row.rank >= 1)
        group = SubmitGroup("l1/change", surplus)
        await before.neighbours.slots.submit(before.claim, SystemClock().now_ms(), 0, [group])

        async with leading(before.neighbours):
            await until_granted(plane)
        lease = await plane.lease("l1")
        assert (lease.state, lease.attempt, lease.node_count) == (
            lpb.Lease.STATE_SCHEDULED,
            1,
            1,
        )
        [row], [placement] = await plane.rows(), lease.placements
        assert (row.rank, row.node, row.interval) == (0, placement.node, placement.interval)


async def test_slots_that_were_added_and_not_recorded_are_added_once() -> None:
    async with half_done() as (plane, before), plane.agent():
        await before.take_over()
        before.begun += 120_000
        terms = lpb.Terms(advance=lpb.AdvanceTerms(start_time=to_timestamp(before.begun)))
        await plane.submit("l1", terms=terms, duration=to_duration(60_000))
        await before.charge("l1")
        await before.book("l1")
        asked = apb.UpdateLeaseRequest(lease=lpb.Lease(name="leases/l1", node_count=2))
        client = await plane.client("admission", "ann")
        stub: Any = agrpc.AdmissionServiceStub(client.channel)
        await client.call(stub.UpdateLease, asked)
        await before.book("l1", rank=1)

        async with leading(before.neighbours):
            await until_granted(plane)
        lease = await plane.lease("l1")
        assert (lease.state, lease.attempt, lease.node_count) == (lpb.Lease.STATE_SCHEDULED, 1, 2)
        rows = sorted(await plane.rows(), key=lambda row: row.rank)
        assert [bare(row.name) for row in rows] == ["l1.1.0.RUN.0", "l1.1.1.RUN.0"]
        assert [(row.rank, row.node, row.interval) for row in rows] == [
            (placement.rank, placement.node, placement.interval) for placement in lease.placements
        ]
