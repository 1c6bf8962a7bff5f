"""Advance reservations through the whole path: CreateLease → booked and durable, 32 callers.

    python -m tests.bench.bench_advance [--existing 0,10000] [--count 2000] [--callers 32]

Goal: at least 500/s, and flat from none to 100,000 existing ones. The suite on this machine, its
pool with 1,000 nodes whose machines are yet to come; each caller asks for a lease and waits until
it is SCHEDULED. Processor time a lease is printed beside the rate.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from tests.bench.bench_suite import processor_seconds

from tenure.admission.v1 import admission_pb2 as apb
from tenure.admission.v1 import lease_pb2 as lpb
from tenure.admission.v1.admission_pb2_grpc import AdmissionServiceStub
from tenure.slottable.v1 import slottable_pb2 as spb
from tenure.slottable.v1.slottable_pb2_grpc import SlotTableServiceStub
from tenure_cli.embedded.forgetting import forget
from tenure_cli.embedded.suite import Suite, SuiteOptions
from tenure_core.timebase import HOUR_MS
from tenure_runtime.clocks import SystemClock
from tenure_runtime.embedded.log_stream import LogStream
from tenure_runtime.ids import RandomIds
from tenure_runtime.rpc.client import Client, connect
from tenure_runtime.rpc.wire import to_duration, to_timestamp

NODES: Final = 1_000
BATCH: Final = 500
DECIDED: Final = (lpb.Lease.STATE_SCHEDULED, lpb.Lease.STATE_REJECTED)


class Bookers:
    """Callers that book, and one watch that tells them what became of it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._stub: Any = AdmissionServiceStub(client.channel)
        self._rng = random.Random(20261201)
        self._since = SystemClock().now_ms() // HOUR_MS * HOUR_MS
        self._decided: dict[str, asyncio.Future[int]] = {}

    async def follow(self, token: str, followed: asyncio.Event) -> None:
        """Tell the callers what becomes of their leases, for ever."""
        request = apb.WatchLeasesRequest(resume_token=token)
        async with self._client.stream(self._stub.WatchLeases, request) as changes:
            followed.set()
            async for change in changes:
                if change.lease.state in DECIDED:
                    self._future(change.lease.name).set_result(change.lease.state)

    def _future(self, name: str) -> asyncio.Future[int]:
        return self._decided.setdefault(name, asyncio.get_running_loop().create_future())

    async def token(self) -> str:
        """Return where the feed is."""
        page = await self._client.call(self._stub.ListLeases, apb.ListLeasesRequest(page_size=1))
        token: str = page.resume_token
        return token

    def _request(self) -> apb.CreateLeaseRequest:
        start = self._since + (24 + self._rng.randrange(100 * 24)) * HOUR_MS
        lease = lpb.Lease(node_count=1, amounts={"cpu": 1_000}, duration=to_duration(HOUR_MS))
        lease.terms.advance.start_time.CopyFrom(to_timestamp(start))
        return apb.CreateLeaseRequest(lease=lease, request_id=RandomIds().request_id())

    async def fill(self, count: int) -> None:
        """Book so many, in batches."""
        for first in range(0, count, BATCH):
            requests = [self._request() for _ in range(min(BATCH, count - first))]
            request = apb.BatchCreateLeasesRequest(requests=requests)
            answer = await self._client.call(self._stub.BatchCreateLeases, request, timeout_s=60)
            for result in answer.results:
                await self._booked(result.lease.name)

    async def book(self, count: int, callers: int) -> list[float]:
        """Book so many one by one, by so many callers; return the seconds that each took."""
        took: list[float] = []
        left = iter(range(count))

        async def caller() -> None:
            for _ in left:
                began = time.perf_counter()
                made = await self._client.call(self._stub.CreateLease, self._request())
                await self._booked(made.lease.name)
                took.append(time.perf_counter() - began)

        await asyncio.gather(*(caller() for _ in range(callers)))
        return took

    async def _booked(self, name: str) -> None:
        assert await self._future(name) == lpb.Lease.STATE_SCHEDULED
        del self._decided[name]


async def make_nodes(client: Client) -> None:
    """Offer nodes whose machines are yet to come."""
    stub: Any = SlotTableServiceStub(client.channel)
    scope = "group/bench"
    acquired = await client.call(
        stub.AcquireEpoch, spb.AcquireEpochRequest(scope=scope, holder="bench")
    )
    request = spb.SetCapacityRequest(scope=scope, epoch=acquired.epoch, pool="default")
    for number in range(NODES):
        node = request.nodes.add(name=f"nodes/m{number:05}", pool="default")
        node.capacity.add(amounts={"cpu": 16_000, "memory": 64 * 2**30})
    await client.call(stub.SetCapacity, request, timeout_s=60)


async def measure(given: argparse.Namespace, data: Path) -> None:
    """Print the rates."""
    suite = Suite(SuiteOptions(data, agents=0, log_form="json"), LogStream(None))
    await suite.start()

    def client(service: str, caller: str) -> Client:
        key, tls = suite.keys.read(caller), suite.tls(caller)
        return connect(suite.state.address(service), api_key=key, tls=tls)

    try:
        async with (
            client("slottable", "scheduler") as slots,
            client("admission", "operator") as leases,
        ):
            await make_nodes(slots)
            bookers = Bookers(leases)
            followed = asyncio.Event()
            following = asyncio.create_task(bookers.follow(await bookers.token(), followed))
            await followed.wait()
            await bookers.book(64, given.callers)
            booked = 64
            for existing in map(int, given.existing.split(",")):
                began = time.perf_counter()
                await bookers.fill(max(0, existing - booked))
                filled_s = time.perf_counter() - began
                before = processor_seconds(suite)
                began = time.perf_counter()
                took = sorted(await bookers.book(given.count, given.callers))
                elapsed_s = time.perf_counter() - began
                after = processor_seconds(suite)
                spent = {name: after[name] - before.get(name, 0.0) for name in after}
                parts = ", ".join(
                    f"{name} {1e3 * spent[name] / given.count:.2f}"
                    for name in sorted(spent, key=lambda name: -spent[name])[:5]
                )
                print(
                    f"{existing} existing (filled in {filled_s:.0f} s): {given.count} by "
                    f"{given.callers} callers, {given.count / elapsed_s:.0f}/s, "
                    f"p50 {1e3 * took[len(took) // 2]:.0f} ms, "
                    f"p99 {1e3 * took[int(len(took) * 0.99)]:.0f} ms; cpu a lease "
                    f"{1e3 * sum(spent.values()) / given.count:.2f} ms: {parts} "
                    f"(load {os.getloadavg()[0]:.1f})",
                    flush=True,
                )
                booked = max(booked, existing) + given.count
            following.cancel()
    finally:
        await suite.stop()


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--existing", default="0,10000")
    parser.add_argument("--count", type=int, default=2_000)
    parser.add_argument("--callers", type=int, default=32)
    data = Path(tempfile.mkdtemp(prefix="tenure-bench-"))
    try:
        asyncio.run(measure(parser.parse_args(), data))
    finally:
        asyncio.run(forget(data))
        shutil.rmtree(data, ignore_errors=True)


if __name__ == "__main__":
    main()
