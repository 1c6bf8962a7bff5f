"""The demo of the autoscaler: from no machine at all, a queue and a booking, and none afterwards.

Machines are agent processes on this computer. What is looked at is written down twice a second, and
what has to be true of it is checked in the end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import click

from tenure.admission.v1 import lease_pb2 as lpb
from tenure.autoscaler.v1 import autoscaler_pb2 as spb
from tenure.autoscaler.v1 import machine_pb2 as mpb
from tenure.slottable.v1 import slottable_pb2 as tpb
from tenure_cli.connection import Connection
from tenure_cli.demo.submitting import AMOUNTS, DemoState
from tenure_cli.demo.verifying import Check
from tenure_cli.demo.workload import DemoLease
from tenure_core.errors import DomainError
from tenure_core.timebase import Millis
from tenure_runtime.ids import RandomIds
from tenure_runtime.rpc.wire import bare, to_duration, to_millis

GROUP: Final = "demo"
MACHINES_MAX: Final = 3
BOOT_MS: Final[Millis] = 4_000
IDLE_MS: Final[Millis] = 4_000
BOOKED_AT_MS: Final[Millis] = 50_000
LATE_MAX_MS: Final[Millis] = 2_000
PERIOD_S: Final = 0.5
GONE_WITHIN_S: Final = 60.0
SETTINGS: Final = {"autoscaler": {"TENURE_DECIDE_PERIOD_S": "0.5"}}
_GONE: Final = frozenset({mpb.Machine.STATE_REMOVED, mpb.Machine.STATE_LOST})


def fleet_leases() -> list[DemoLease]:
    """Return the leases of the demo: four that queue for three machines, and two slots booked."""
    queue = [
        DemoLease(f"queue-{number}", "best effort", 500 * number, 1, 60_000, 5_000)
        for number in range(1, 5)
    ]
    return [*queue, DemoLease("booking", "advance", 0, 2, 12_000, 6_000, start=BOOKED_AT_MS)]


@dataclass(frozen=True, slots=True)
class Look:
    """What there was at one moment (wall clock, milliseconds): machines by state."""

    at_ms: Millis
    machines: dict[str, mpb.Machine.State.ValueType]

    def up(self) -> list[str]:
        """Return the machines that serve."""
        return [n for n, state in self.machines.items() if state == mpb.Machine.STATE_RUNNING]

    def there(self) -> list[str]:
        """Return the machines that are not gone."""
        return [name for name, state in self.machines.items() if state not in _GONE]


@dataclass
class FleetWatch:
    """Makes the group, looks at its machines, and says whenever something has changed."""

    connection: Connection
    state: DemoState
    looks: list[Look] = field(default_factory=list)

    async def make_group(self) -> None:
        """Make the group and wait until its machines-to-be can be booked."""
        client, stub = await self.connection.autoscaler()
        group = mpb.Group(
            name=f"groups/{GROUP}", kind=mpb.Group.KIND_POOL, pool="pools/default",
            provider="process", size_max=MACHINES_MAX, amounts=AMOUNTS,
            boot_duration=to_duration(BOOT_MS), idle_duration=to_duration(IDLE_MS),
        )  # fmt: skip
        request = spb.CreateGroupRequest(group=group, request_id=RandomIds().request_id())
        await client.call(stub.CreateGroup, request)
        slots, table = await self.connection.slottable()
        async with asyncio.timeout(GONE_WITHIN_S):
            while True:
                page = await slots.call(table.ListNodes, tpb.ListNodesRequest(pool="default"))
                if len(page.nodes) == MACHINES_MAX:
                    return
                await asyncio.sleep(PERIOD_S)

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(PERIOD_S)

    async def until_gone(self) -> None:
        """Look until no machine is left, for a minute at most; the checks say if some are."""
        end = time.monotonic() + GONE_WITHIN_S
        while time.monotonic() < end and (not self.looks or self.looks[-1].there()):
            await self.look()
            await asyncio.sleep(PERIOD_S)

    async def look(self) -> None:
        """Take down what there is now; nothing when nobody answers."""
        client, stub = await self.connection.autoscaler()
        try:
            request = spb.ListMachinesRequest(page_size=100)
            page = await client.call(stub.ListMachines, request)
        except DomainError:
            return
        now_ms = time.time_ns() // 1_000_000
        look = Look(now_ms, {bare(each.name): each.state for each in page.machines})
        if not self.looks or self.looks[-1].machines != look.machines:
            click.echo(self._line(look))
        self.looks.append(look)

    def _line(self, look: Look) -> str:
        names = sorted(look.there())
        words = [
            f"{name} {mpb.Machine.State.Name(look.machines[name]).removeprefix('STATE_').lower()}"
            for name in names
        ]
        since_s = (look.at_ms - (self.state.began_ms or look.at_ms)) / 1_000
        return f"{since_s:6.1f} s  {len(names)} machines  {', '.join(words) or '-'}"


def check_fleet(state: DemoState, looks: Sequence[Look]) -> list[Check]:
    """Return what has to be true of a fleet that follows a queue and a booking."""
    start_ms = state.began_ms + BOOKED_AT_MS
    booking = state.known.get("booking")
    began_ms = None
    if booking is not None and booking.HasField("start_time"):
        began_ms = to_millis(booking.start_time)
    before = [look for look in looks if look.at_ms <= start_ms]
    first = next((look for look in looks if look.there()), None)
    most = max((len(look.there()) for look in looks), default=0)
    undone = [
        lease.id
        for lease in state.leases
        if lease.id not in state.known or state.known[lease.id].state != lpb.Lease.STATE_DONE
    ]
    ready = _ready_before(booking, before)
    return [
        Check("no machine before anything was asked for", 1, _wrong(
            first is not None and first.at_ms >= state.began_ms, "there was one"
        )),
        Check("leases done", len(state.leases), tuple(undone)),
        Check("the booking's machines were up before its start", 2, _wrong(
            ready, "they were not all running at the last look before it"
        )),
        Check("the booking began at its start", 1, _wrong(
            began_ms is not None and 0 <= began_ms - start_ms <= LATE_MAX_MS,
            f"it began {'never' if began_ms is None else f'{began_ms - start_ms} ms after it'}",
        )),
        Check("never more machines than the group may have", len(looks), _wrong(
            most <= MACHINES_MAX, f"there were {most}"
        )),
        Check("no machine is left", 1, _wrong(
            bool(looks) and not looks[-1].there(), "some are"
        )),
    ]  # fmt: skip


def _ready_before(booking: lpb.Lease | None, before: Sequence[Look]) -> bool:
    if booking is None or not before:
        return False
    nodes = {bare(placement.node) for placement in booking.placements}
    return bool(nodes) and nodes <= set(before[-1].up())


def _wrong(holds: bool, otherwise: str) -> tuple[str, ...]:
    return () if holds else (otherwise,)
