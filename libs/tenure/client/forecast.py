"""When a lease would start that does not exist yet."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from tenure.admission.v1 import lease_pb2 as lpb
from tenure.client.spans import instant
from tenure.scheduler.v1 import scheduler_pb2 as spb
from tenure_runtime.rpc.client import Client

if TYPE_CHECKING:
    from tenure.scheduler.v1.scheduler_pb2_grpc import SchedulerServiceAsyncStub


@dataclass(frozen=True, slots=True)
class Forecast:
    """What would become of a lease. `start` is None when it would never start, or nobody knows."""

    accepted: bool
    start: datetime | None
    nodes: tuple[str, ...]
    preempted: tuple[str, ...]
    reason: str
    sentence: str


async def what_if(client: Client, stub: SchedulerServiceAsyncStub, lease: lpb.Lease) -> Forecast:
    """Ask the pool's leader what would become of a lease."""
    request = spb.WhatIfRequest(
        pool=f"pools/{lease.pool or 'default'}",
        node_count=lease.node_count,
        amounts=lease.amounts,
        duration=lease.duration,
        immediate=lease.terms.HasField("immediate"),
        priority=lease.priority,
        node_selector=lease.node_selector,
        spread=lease.spread,
    )
    if lease.terms.HasField("advance"):
        request.advance_start_time.CopyFrom(lease.terms.advance.start_time)
    if lease.terms.HasField("deadline"):
        request.deadline_time.CopyFrom(lease.terms.deadline.deadline_time)
    answer = await client.call(stub.WhatIf, request)
    return Forecast(
        accepted=answer.accepted,
        start=instant(answer.start_time) if answer.HasField("start_time") else None,
        nodes=tuple(answer.nodes),
        preempted=tuple(answer.preempted_leases),
        reason=answer.reason,
        sentence=answer.message,
    )
