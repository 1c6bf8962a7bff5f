"""Makes batches of leases at a fixed rate, whatever becomes of them: an open loop of raw calls.

The request is encoded once, so that the generator takes little of what the server needs.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import grpc

from tenure.admission.v1 import admission_pb2 as calls
from tenure.admission.v1 import lease_pb2 as pb

BATCH: Final = 50
DEADLINE_S: Final = 5.0
CHANNELS: Final = 8
OUTSTANDING_MAX: Final = 20_000
_TICK_S: Final = 0.01
_METHOD: Final = "/tenure.admission.v1.AdmissionService/BatchCreateLeases"


def a_batch() -> bytes:
    """Return an encoded request for many small leases."""
    lease = pb.Lease(terms=pb.Terms(best_effort=pb.BestEffortTerms()), node_count=1)
    lease.amounts["cpu"] = 1_000
    lease.duration.FromSeconds(600)
    lease.work.command.extend(["/bin/sh", "-c", "exec ./work --input data"])
    item = calls.CreateLeaseRequest(lease=lease)
    return calls.BatchCreateLeasesRequest(requests=[item] * BATCH).SerializeToString()


@dataclass
class Outcome:
    """What became of the calls of one phase, and how many seconds each took."""

    accepted_s: list[float] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    refusal_s: list[float] = field(default_factory=list)
    offered: int = 0
    unsent: int = 0


class Generator:
    """Some channels to one server, as one caller."""

    def __init__(self, channels: list[grpc.aio.Channel], api_key: str) -> None:
        self._methods = [channel.unary_unary(_METHOD) for channel in channels]
        self._metadata = (("authorization", f"Bearer {api_key}"),)
        self._request = a_batch()
        self._under_way: set[asyncio.Task[None]] = set()

    async def _one(self, number: int, outcome: Outcome) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        method = self._methods[number % len(self._methods)]
        try:
            await method(self._request, timeout=DEADLINE_S, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            outcome.refused[error.code().name] += 1
            outcome.refusal_s.append(loop.time() - began)
        else:
            outcome.accepted_s.append(loop.time() - began)

    async def at_once(self, callers: int, seconds: float) -> Outcome:
        """Have so many callers make one call after another."""
        outcome, loop = Outcome(), asyncio.get_running_loop()
        end = loop.time() + seconds

        async def caller(number: int) -> None:
            while loop.time() < end:
                outcome.offered += 1
                await self._one(number, outcome)

        async with asyncio.TaskGroup() as group:
            for number in range(callers):
                group.create_task(caller(number))
        return outcome

    async def at_rate(self, per_s: float, seconds: float) -> Outcome:
        """Begin calls at a rate, and wait for the last of them."""
        outcome, loop = Outcome(), asyncio.get_running_loop()
        began = loop.time()
        while (passed := loop.time() - began) < seconds:
            due = int(passed * per_s)
            while outcome.offered + outcome.unsent < due:
                if len(self._under_way) >= OUTSTANDING_MAX:
                    outcome.unsent += 1
                    continue
                task = loop.create_task(self._one(outcome.offered, outcome))
                self._under_way.add(task)
                task.add_done_callback(self._under_way.discard)
                outcome.offered += 1
            await asyncio.sleep(_TICK_S)
        await asyncio.gather(*self._under_way)
        return outcome


@asynccontextmanager
async def generating(address: str, api_key: str) -> AsyncIterator[Generator]:
    """Yield a generator with connections of its own."""
    options = (("grpc.use_local_subchannel_pool", 1),)
    channels = [grpc.aio.insecure_channel(address, options) for _ in range(CHANNELS)]
    try:
        yield Generator(channels, api_key)
    finally:
        for channel in channels:
            await channel.close()
