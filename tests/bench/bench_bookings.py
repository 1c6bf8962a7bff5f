"""The slot table with 100,000 future reservations: what its calls take through gRPC, durable.

    python -m tests.bench.bench_bookings [--reservations 100000] [--nodes 1000] [--calls 300]

Goals: FindEarliestStart p99 under 10 ms; SubmitPlan of one lease under 15 ms, of 1,000 under 1 s;
a page of ListReservations under 20 ms. A private PostgreSQL (fsync on), one slottable process and
one client, all on this machine. Beside each time is what slottable and PostgreSQL took of the
processors for a call: on a machine that others use the times alone say little.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from tests.bench.bench_create_lease import Started, family_cpu_s, started

from tenure.slottable.v1 import reservation_pb2 as rpb
from tenure.slottable.v1 import slottable_pb2 as spb
from tenure.slottable.v1.slottable_pb2_grpc import SlotTableServiceStub
from tenure.type.v1 import work_pb2
from tenure_core.timebase import HOUR_MS
from tenure_runtime.clocks import SystemClock
from tenure_runtime.rpc.client import Client, connect
from tenure_runtime.rpc.wire import to_duration, to_timestamp

POOL: Final = "default"
SCOPE: Final = f"pool/{POOL}"
DAYS: Final = 100
"""The reservations lie in so many days from tomorrow on, an hour each: some one of ten is taken."""


@dataclass
class Bench:
    """The processes under test, and who asks them."""

    client: Client
    stub: Any
    at: Started
    nodes: int
    epoch: int = 0
    number: int = 0
    rng: random.Random = field(default_factory=lambda: random.Random(20261201))
    since: int = field(default_factory=lambda: SystemClock().now_ms() // HOUR_MS * HOUR_MS)

    async def ask(self, request: Any) -> Any:
        """Make the call that a request is named for."""
        method = getattr(self.stub, type(request).__name__.removesuffix("Request"))
        return await self.client.call(method, request, timeout_s=60)

    def group(self) -> rpb.OperationGroup:
        """Return a group that books one more lease: a slot of one processor for an hour."""
        self.number += 1
        start = self.since + (24 + self.rng.randrange(DAYS * 24)) * HOUR_MS
        row = rpb.Reservation(
            name=f"reservations/l{self.number}.1.0.run.1",
            pool=POOL,
            node=f"nodes/n{self.rng.randrange(self.nodes):05}",
            lease=f"leases/l{self.number}",
            attempt=1,
            kind=work_pb2.RESERVATION_KIND_RUN,
            amounts={"cpu": 1_000, "memory": 2**30},
        )
        row.interval.start_time.CopyFrom(to_timestamp(start))
        row.interval.end_time.CopyFrom(to_timestamp(start + HOUR_MS))
        group = rpb.OperationGroup(group_id=f"l{self.number}")
        group.operations.add().book.reservation.CopyFrom(row)
        return group

    async def submit(self, count: int) -> None:
        """Book so many leases in one plan."""
        request = spb.SubmitPlanRequest(
            scope=SCOPE,
            epoch=self.epoch,
            as_of=to_timestamp(SystemClock().now_ms()),
            groups=[self.group() for _ in range(count)],
        )
        answer = await self.ask(request)
        assert not any(verdict.reason for verdict in answer.verdicts), answer.verdicts[0]

    async def prepare(self, reservations: int) -> None:
        """Make the nodes and the reservations."""
        self.epoch = (await self.ask(spb.AcquireEpochRequest(scope=SCOPE, holder="bench"))).epoch
        for first in range(0, self.nodes, 1_000):
            request = spb.SetCapacityRequest(scope=SCOPE, epoch=self.epoch)
            for number in range(first, min(first + 1_000, self.nodes)):
                node = request.nodes.add(name=f"nodes/n{number:05}", pool=POOL)
                node.capacity.add(amounts={"cpu": 16_000, "memory": 64 * 2**30})
            await self.ask(request)
        for first in range(0, reservations, 1_000):
            await self.submit(min(1_000, reservations - first))

    async def find(self) -> None:
        """Ask when some shape fits first, from some time on."""
        demand = spb.Demand(
            node_count=self.rng.choice((1, 1, 8, 64)),
            amounts={"cpu": self.rng.choice((1_000, 4_000, 16_000)), "memory": 2**30},
            spread=self.rng.random() < 0.3,
        )
        request = spb.FindEarliestStartRequest(pool=POOL, demand=demand)
        request.duration.CopyFrom(to_duration(self.rng.randrange(1, 48) * HOUR_MS))
        start = self.since + self.rng.randrange(DAYS * 24) * HOUR_MS
        request.not_before_time.CopyFrom(to_timestamp(start))
        await self.ask(request)

    async def page(self) -> None:
        """Read a page of a hundred reservations somewhere in the list."""
        node = f"nodes/n{self.rng.randrange(self.nodes):05}" if self.rng.random() < 0.5 else ""
        await self.ask(spb.ListReservationsRequest(pool=POOL, node=node))

    async def measure(self, name: str, calls: int, call: Callable[[], Awaitable[None]]) -> None:
        """Print what a call takes, asked for one after another."""
        took: list[float] = []
        before = self._cpu_s()
        for _ in range(calls):
            began = time.perf_counter()
            await call()
            took.append((time.perf_counter() - began) * 1_000)
        took.sort()
        pairs = zip(self._cpu_s(), before, strict=True)
        own, database = ((now - then) * 1_000 / calls for now, then in pairs)
        p50, p99 = took[len(took) // 2], took[int(len(took) * 0.99)]
        print(
            f"{name:28} p50 {p50:8.2f} ms   p99 {p99:8.2f} ms   cpu a call: slottable {own:.2f} ms,"
            f" PostgreSQL {database:.2f} ms   (load {os.getloadavg()[0]:.1f})",
            flush=True,
        )

    def _cpu_s(self) -> tuple[float, float]:
        return family_cpu_s(self.at.server_pid), family_cpu_s(self.at.postgres_pid)


async def bench(given: argparse.Namespace) -> None:
    """Print the figures."""
    async with (
        started(given.profile, "tenure_slottable") as at,
        connect(at.address, api_key=at.keys["service"]) as client,
    ):
        made = Bench(client, SlotTableServiceStub(client.channel), at, given.nodes)
        began = time.perf_counter()
        await made.prepare(given.reservations)
        took_s = time.perf_counter() - began
        print(f"{given.reservations} reservations on {given.nodes} nodes in {took_s:.1f} s")
        await made.measure("FindEarliestStart", given.calls, made.find)
        await made.measure("SubmitPlan, 1 lease", given.calls, lambda: made.submit(1))
        await made.measure("SubmitPlan, 1,000 leases", 20, lambda: made.submit(1_000))
        await made.measure("ListReservations, a page", given.calls, made.page)


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reservations", type=int, default=100_000)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--profile", help="file for the profile of slottable")
    asyncio.run(bench(parser.parse_args()))


if __name__ == "__main__":
    main()
