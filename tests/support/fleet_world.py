"""A fleet's whole surroundings in memory: provider, agents, slot table and demand that one sets.

Time is set by hand. A machine that boots becomes an agent at once; one that ends falls silent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tenure_autoscaler.acting import FleetActor, Surroundings
from tenure_autoscaler.elastic_acting import ElasticActor
from tenure_autoscaler.providers.port import MachineSpec, Provider
from tenure_autoscaler.providers.simulated import SimulatedProvider
from tenure_autoscaler.records import GroupClaim, MachineRecord
from tenure_autoscaler.store.fleet_memory import MemoryFleetStore
from tenure_autoscaler.store.memory import MemoryStore
from tenure_autoscaler.values import (
    ApplicationOrder,
    Booking,
    Decision,
    Group,
    GroupKind,
    MachineState,
    PoolView,
    RequestMark,
    SeenAgent,
    SeenApplication,
)
from tenure_core.autoscaling.machines import ApplicationState
from tenure_core.autoscaling.queue_packing import WaitingLease
from tenure_core.errors import Stale
from tenure_core.resources import ResourceVector
from tenure_core.timebase import Interval, Millis

CPU = ResourceVector({"cpu": 4_000})
GROUP = Group(
    "g", GroupKind.POOL, "main", 0, 5, "simulated", CPU, 60_000, False, False, 1, 0, 300_000
)


class SetClock:
    """A clock that a test sets."""

    def __init__(self, now_ms: Millis = 1_000_000) -> None:
        self.now = now_ms

    def now_ms(self) -> Millis:
        """Return the time that was set."""
        return self.now


class FleetWorld:
    """Everything around the actor of group `g`. Its provider may be replaced before `actor()`."""

    def __init__(self, group: Group = GROUP, **provider: object) -> None:
        self.clock = SetClock()
        self.group = group
        self.sights: dict[str, SeenAgent] | None = {}
        self.provider = SimulatedProvider(
            self.clock,
            on_boot=self._boot,
            on_end=self._end,
            **provider,  # type: ignore[arg-type]
        )
        self.store = MemoryStore(self.clock)
        self.book = MemoryFleetStore(self.store)
        self.waiting: tuple[WaitingLease, ...] | None = ()
        self.bookings: tuple[Booking, ...] | None = ()
        self.retired: set[str] = set()
        self.offered: dict[str, Millis] = {}
        self.said: dict[str, tuple[SeenApplication, Millis]] = {}
        self.told: dict[str, ApplicationOrder] = {}
        self.epoch = 0
        self.leads: Callable[[], bool] = lambda: True
        self._incarnations = 0

    async def begin(self) -> FleetWorld:
        """Store the group."""
        await self.store.create_group(self.group, RequestMark("ops", "", b""))
        return self

    def around(self) -> Surroundings:
        """Return it as the actor sees it."""
        return Surroundings(self.store, self.book, self, self, self, self, self, self.clock)

    async def actor(self, provider: Provider | None = None) -> FleetActor:
        """Return the actor of a new leader."""
        self.epoch += 1
        claim = GroupClaim(self.group.group, self.epoch)
        await self.book.fence(claim)
        kind = ElasticActor if self.group.kind is GroupKind.ELASTIC else FleetActor
        return kind(claim, provider or self.provider, self.around(), lambda: self.leads())

    async def records(self) -> list[MachineRecord]:
        """Return the newest record of each machine."""
        return list((await self.book.open_book(self.group.group)).records)

    async def states(self) -> dict[str, str]:
        """Return the state of each machine by name."""
        return {record.machine: record.state.value for record in await self.records()}

    async def decisions(self) -> list[Decision]:
        """Return all decisions, newest first."""
        return await self.store.list_decisions("", 0, 1_000)

    def queue(self, count: int, cpu: int = 4_000) -> None:
        """Have so many leases of one node each wait."""
        amounts = ResourceVector({"cpu": cpu})
        self.waiting = tuple(WaitingLease(f"w{n}", 1, amounts) for n in range(count))

    def book_node(self, node: str, start_ms: Millis, end_ms: Millis) -> None:
        """Book a node besides what is booked."""
        assert self.bookings is not None
        self.bookings = (*self.bookings, Booking(node, Interval(start_ms, end_ms), CPU))

    # What the actor asks

    def agents(self) -> list[SeenAgent] | None:
        """See `Fleet`."""
        return None if self.sights is None else list(self.sights.values())

    async def view(self, pool: str, now_ms: Millis) -> PoolView:
        """See `Demand`."""
        return PoolView(self.waiting, self.bookings)

    async def booked(self, pool: str, now_ms: Millis) -> tuple[Booking, ...] | None:
        """See `Demand`."""
        return self.bookings

    async def acquire_epoch(self, group: str, holder: str) -> int:
        """See `Nodes`."""
        self.epoch += 1
        return self.epoch

    async def retire(self, claim: GroupClaim, node: str) -> bool:
        """See `Nodes`."""
        self._compare(claim)
        if any(b.node == node and b.span.end > self.clock.now for b in self.bookings or ()):
            return False
        self.retired.add(node)
        self.offered.pop(node, None)
        return True

    async def offer(self, claim: GroupClaim, group: Group, nodes: Mapping[str, Millis]) -> None:
        """See `Nodes`."""
        self._compare(claim)
        self.offered |= nodes
        self.retired -= nodes.keys()

    async def unretire(self, claim: GroupClaim, node: str) -> None:
        """See `Nodes`."""
        self._compare(claim)
        self.retired.discard(node)

    async def running(self, agent: str) -> tuple[str, int]:
        """See `Occupancy`."""
        sight = (self.sights or {}).get(agent)
        if sight is None or sight.state is MachineState.LOST:
            return "", 0
        return sight.incarnation, sight.running

    async def reports(self, agents: Sequence[str]) -> list[SeenApplication]:
        """See `Applications`."""
        found = [self.said[agent] for agent in sorted(agents) if agent in self.said]
        return [
            replace(seen, age_ms=self.clock.now - at, order_id=self._order_id(seen))
            for seen, at in found
        ]

    async def order(self, claim: GroupClaim, orders: Sequence[ApplicationOrder]) -> None:
        """See `Applications`."""
        self._compare(claim)
        self.told |= {order.agent: order for order in orders}

    async def fence(self, claim: GroupClaim) -> None:
        """See `Applications`."""
        self._compare(claim)

    def _order_id(self, seen: SeenApplication) -> str:
        order = self.told.get(seen.agent)
        return order.order_id if order and order.incarnation == seen.incarnation else ""

    def says(self, machine: str, state: ApplicationState, **facts: Any) -> None:
        """Have the application on a machine's agent say something now."""
        assert self.sights is not None
        before = self.said.get(machine)
        sequence = before[0].sequence + 1 if before else 1
        seen = SeenApplication(
            machine, self.sights[machine].incarnation, sequence, 0, state, **facts
        )
        self.said[machine] = (seen, self.clock.now)

    def _compare(self, claim: GroupClaim) -> None:
        if claim.epoch < self.epoch:
            raise Stale("STALE_EPOCH", "another leads")

    # What machines do

    def _boot(self, spec: MachineSpec) -> None:
        if self.sights is None:
            return
        self._incarnations += 1
        self.sights[spec.machine] = SeenAgent(
            spec.machine, spec.pool, MachineState.RUNNING, spec.amounts, "",
            self.clock.now, f"i{self._incarnations}",
        )  # fmt: skip

    def _end(self, machine: str) -> None:
        twin = any(spec.machine == machine for spec in self.provider.machines.values())
        if self.sights is not None and machine in self.sights and not twin:
            lost = replace(self.sights[machine], state=MachineState.LOST, running=0)
            self.sights[machine] = lost

    def runs(self, machine: str, count: int) -> None:
        """Have a machine's agent run so many slots."""
        assert self.sights is not None
        self.sights[machine] = replace(self.sights[machine], running=count)
