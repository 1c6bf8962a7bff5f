"""The leaders of pools, asked where leases stand and what would help; see `ports.LeaderDesk`.

A replica that does not lead a pool names who does, and that one is asked. Nobody is waited for
longer than `ASK_TIMEOUT_S`: an explanation without remedies is better than none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Final

from tenure.scheduler.v1 import scheduler_pb2 as scheduler
from tenure.scheduler.v1.scheduler_pb2_grpc import SchedulerServiceStub
from tenure_admission.ports import Outlook
from tenure_core.admission.remedies import Remedy, Suggestion, Terms
from tenure_core.errors import DomainError, Unavailable
from tenure_core.leases.lease import Advance, BestEffort, Deadline, Lease, LeaseSpec
from tenure_core.timebase import Millis
from tenure_runtime.rpc.client import Client
from tenure_runtime.rpc.wire import bare, span_to_millis, to_duration, to_millis, to_timestamp
from tenure_runtime.telemetry.logging import get_logger

ASK_TIMEOUT_S: Final = 3.0
POOLS_MAX: Final = 8
"""Other pools asked for one lease."""


class NobodyThere:
    """A desk without leaders."""

    async def outlook(self, lease: Lease, most: Terms | None) -> None:
        """Say nothing."""

    async def starts_elsewhere(self, spec: LeaseSpec) -> Mapping[str, Millis | None]:
        """Say nothing."""
        del spec
        return {}


class SchedulerDesk:
    """Asks the scheduler at one address, and the leaders that it names. Close it when done."""

    def __init__(self, client: Client, open_client: Callable[[str], Client]) -> None:
        """`open_client` opens a client of the replica at an address."""
        self._client = client
        self._open = open_client
        self._others: dict[str, Client] = {}
        self._stack = AsyncExitStack()

    async def close(self) -> None:
        """Close what was opened to other replicas."""
        await self._stack.aclose()

    async def outlook(self, lease: Lease, most: Terms | None) -> Outlook | None:
        """Return where a lease stands; None when nobody says."""
        spec = lease.spec
        request = scheduler.ExplainWaitingRequest(
            pool=f"pools/{spec.pool}", lease=f"leases/{lease.id}"
        )
        if most is not None:
            request.node_count_max = most.node_count
            request.duration_max.CopyFrom(to_duration(most.duration_ms))
        answer = await self._ask("ExplainWaiting", request)
        asked = Terms(spec.node_count, lease.remaining_ms or spec.duration_ms)
        return None if answer is None else _outlook(answer, asked)

    async def starts_elsewhere(self, spec: LeaseSpec) -> Mapping[str, Millis | None]:
        """Return when a lease would start in other pools that take leases."""
        listed = await self._ask("ListPools", scheduler.ListPoolsRequest(page_size=100))
        if listed is None:
            return {}
        pools = [bare(pool.name) for pool in listed.pools if not pool.cordoned]
        others = [pool for pool in pools if pool != spec.pool][:POOLS_MAX]
        requests = [_what_if(pool, spec) for pool in others]
        answers = await asyncio.gather(*(self._ask("WhatIf", request) for request in requests))
        return {
            pool: to_millis(answer.start_time)
            for pool, answer in zip(others, answers, strict=True)
            if answer is not None
            and answer.accepted
            and answer.HasField("start_time")
            and not answer.preempted_leases
        }

    async def _ask(self, call: str, request: Any) -> Any:
        """Return a leader's answer, None when there is none in time."""
        try:
            try:
                return await self._call(self._client, call, request)
            except Unavailable as error:
                leader = error.metadata.get("leader", "")
                if error.reason != "NOT_LEADER" or not leader:
                    raise
                return await self._call(self._at(leader), call, request)
        except DomainError as error:
            get_logger().debug("leader.unasked", call=call, reason=error.reason)
            return None

    def _call(self, client: Client, call: str, request: Any) -> Awaitable[Any]:
        method = getattr(SchedulerServiceStub(client.channel), call)
        return client.call(method, request, timeout_s=ASK_TIMEOUT_S, retry=False)

    def _at(self, address: str) -> Client:
        """Return a client of a replica; there is one an address, also for calls at once."""
        if address not in self._others:
            self._others[address] = opened = self._open(address)
            self._stack.push_async_callback(opened.close)
        return self._others[address]


def _outlook(answer: scheduler.ExplainWaitingResponse, asked: Terms) -> Outlook:
    return Outlook(
        answer.position,
        answer.total_count,
        answer.place_message,
        to_millis(answer.start_time) if answer.HasField("start_time") else None,
        [_suggestion(each, asked) for each in answer.suggestions],
    )


def _suggestion(wire: scheduler.SuggestedChange, asked: Terms) -> Suggestion:
    terms = Terms(wire.node_count, span_to_millis(wire.duration))
    remedy = Remedy.FEWER_AND_SHORTER
    if terms.duration_ms == asked.duration_ms:
        remedy = Remedy.FEWER_NODES
    elif terms.node_count == asked.node_count:
        remedy = Remedy.SHORTER
    return Suggestion(remedy, terms, to_millis(wire.start_time))


def _what_if(pool: str, spec: LeaseSpec) -> scheduler.WhatIfRequest:
    request = scheduler.WhatIfRequest(
        pool=f"pools/{pool}",
        node_count=spec.node_count,
        amounts=dict(spec.amounts),
        duration=to_duration(spec.duration_ms),
        immediate=not isinstance(spec.terms, BestEffort | Advance | Deadline),
        priority=spec.priority,
        node_selector=dict(spec.node_selector),
        spread=spec.spread,
    )
    if isinstance(spec.terms, Advance):
        request.advance_start_time.CopyFrom(to_timestamp(spec.terms.start))
    elif isinstance(spec.terms, Deadline):
        request.deadline_time.CopyFrom(to_timestamp(spec.terms.deadline))
    return request
