"""The scheduler on the wire: unpack, validate, one use case, pack."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Final

import grpc

from tenure.scheduler.v1 import scheduler_pb2 as spb
from tenure.scheduler.v1 import scheduler_pb2_grpc
from tenure.type.v1 import service_info_pb2
from tenure_core.timebase import Clock
from tenure_runtime.rpc.draining import Draining
from tenure_runtime.rpc.identity import Permissions, Role, current_identity
from tenure_runtime.rpc.paging import decode_page_token, encode_page_token, page_size
from tenure_runtime.rpc.wire import bare, span_to_millis, to_duration, to_timestamp
from tenure_scheduler import pack, validation
from tenure_scheduler.ports import RepeatKey
from tenure_scheduler.usecases import SchedulerUseCases

SERVICE: Final = "tenure.scheduler.v1.SchedulerService"
QUEUE_DEFAULT: Final = 100
QUEUE_MAX: Final = 10_000
_EVERYONE: Final = (Role.USER, Role.OPERATOR, Role.SERVICE)
_OPERATORS: Final = (Role.OPERATOR,)
_INSIDE: Final = (Role.OPERATOR, Role.SERVICE)
PERMISSIONS: Final = Permissions.of(
    SERVICE,
    {
        "CreatePool": _OPERATORS,
        "GetPool": _EVERYONE,
        "ListPools": _EVERYONE,
        "UpdatePool": _OPERATORS,
        "DeletePool": _OPERATORS,
        "CreatePolicy": _OPERATORS,
        "GetPolicy": _EVERYONE,
        "ListPolicies": _EVERYONE,
        "UpdatePolicy": _OPERATORS,
        "DeletePolicy": _OPERATORS,
        "GetQueue": _EVERYONE,
        "PredictStarts": _EVERYONE,
        "WhatIf": _EVERYONE,
        "ExplainWaiting": _INSIDE,
        "TriggerCycle": _INSIDE,
        "GetLeader": _EVERYONE,
        "WatchDemand": _INSIDE,
        "StepDown": _OPERATORS,
        "GetServiceInfo": _EVERYONE,
    },
)
Context = grpc.aio.ServicerContext[Any, Any]


class SchedulerServicer(scheduler_pb2_grpc.SchedulerServiceServicer):
    """Every call of the contract."""

    def __init__(
        self,
        usecases: SchedulerUseCases,
        info: service_info_pb2.ServiceInfo,
        clock: Clock,
        draining: Draining,
    ) -> None:
        self._usecases = usecases
        self._info = info
        self._clock = clock
        self._draining = draining

    async def CreatePool(
        self, request: spb.CreatePoolRequest, context: Context
    ) -> spb.CreatePoolResponse:
        """Create a pool."""
        validation.check_pool(request.pool)
        wanted = replace(pack.to_pool(request.pool), created=self._clock.now_ms())
        pool = await self._usecases.create_pool(wanted, _repeat(request))
        return spb.CreatePoolResponse(pool=pack.from_pool(pool))

    async def GetPool(self, request: spb.GetPoolRequest, context: Context) -> spb.GetPoolResponse:
        """Return one pool."""
        validation.check_name(request.name, "pools", "name")
        pool = await self._usecases.pool(bare(request.name))
        return spb.GetPoolResponse(pool=pack.from_pool(pool))

    async def ListPools(
        self, request: spb.ListPoolsRequest, context: Context
    ) -> spb.ListPoolsResponse:
        """Return pools, a page at a time."""
        size, after = _page(request)
        pools = await self._usecases.pools(after, size + 1)
        token = _next([pool.id for pool in pools], size)
        return spb.ListPoolsResponse(pools=map(pack.from_pool, pools[:size]), next_page_token=token)

    async def UpdatePool(
        self, request: spb.UpdatePoolRequest, context: Context
    ) -> spb.UpdatePoolResponse:
        """Change a pool."""
        validation.check_pool(request.pool)
        paths = list(request.update_mask.paths)
        pool = await self._usecases.update_pool(
            bare(request.pool.name),
            lambda present: pack.merged_pool(present, request.pool, paths),
            pack.version_of(request.pool.etag),
        )
        return spb.UpdatePoolResponse(pool=pack.from_pool(pool))

    async def DeletePool(
        self, request: spb.DeletePoolRequest, context: Context
    ) -> spb.DeletePoolResponse:
        """Forget a pool."""
        validation.check_name(request.name, "pools", "name")
        await self._usecases.delete_pool(bare(request.name), pack.version_of(request.etag))
        return spb.DeletePoolResponse()

    async def CreatePolicy(
        self, request: spb.CreatePolicyRequest, context: Context
    ) -> spb.CreatePolicyResponse:
        """Create a policy."""
        validation.check_policy(request.policy)
        wanted = pack.to_policy(request.policy)
        policy = await self._usecases.create_policy(wanted, _repeat(request))
        return spb.CreatePolicyResponse(policy=pack.from_policy(policy))

    async def GetPolicy(
        self, request: spb.GetPolicyRequest, context: Context
    ) -> spb.GetPolicyResponse:
        """Return one policy."""
        validation.check_name(request.name, "policies", "name")
        policy = await self._usecases.policy(bare(request.name))
        return spb.GetPolicyResponse(policy=pack.from_policy(policy))

    async def ListPolicies(
        self, request: spb.ListPoliciesRequest, context: Context
    ) -> spb.ListPoliciesResponse:
        """Return policies, a page at a time."""
        size, after = _page(request)
        policies = await self._usecases.policies(after, size + 1)
        token = _next([policy.id for policy in policies], size)
        return spb.ListPoliciesResponse(
            policies=map(pack.from_policy, policies[:size]), next_page_token=token
        )

    async def UpdatePolicy(
        self, request: spb.UpdatePolicyRequest, context: Context
    ) -> spb.UpdatePolicyResponse:
        """Change a policy."""
        validation.check_policy(request.policy)
        paths = list(request.update_mask.paths)
        policy = await self._usecases.update_policy(
            bare(request.policy.name),
            lambda present: pack.merged_policy(present, request.policy, paths),
            pack.version_of(request.policy.etag),
        )
        return spb.UpdatePolicyResponse(policy=pack.from_policy(policy))

    async def DeletePolicy(
        self, request: spb.DeletePolicyRequest, context: Context
    ) -> spb.DeletePolicyResponse:
        """Forget a policy."""
        validation.check_name(request.name, "policies", "name")
        await self._usecases.delete_policy(bare(request.name), pack.version_of(request.etag))
        return spb.DeletePolicyResponse()

    async def GetQueue(
        self, request: spb.GetQueueRequest, context: Context
    ) -> spb.GetQueueResponse:
        """Return a pool's waiting leases in order."""
        validation.check_name(request.pool, "pools", "pool")
        limit = page_size(request.limit, default=QUEUE_DEFAULT, maximum=QUEUE_MAX)
        entries, total, now = await self._usecases.queue(bare(request.pool), limit)
        return spb.GetQueueResponse(
            entries=map(pack.from_queue_entry, entries),
            total_count=total,
            as_of=to_timestamp(now),
        )

    async def PredictStarts(
        self, request: spb.PredictStartsRequest, context: Context
    ) -> spb.PredictStartsResponse:
        """Predict when waiting leases start."""
        validation.check_name(request.pool, "pools", "pool")
        found, now = await self._usecases.predict(
            bare(request.pool), [bare(lease) for lease in request.leases[:1_000]]
        )
        return spb.PredictStartsResponse(
            predictions=map(pack.from_prediction, found), as_of=to_timestamp(now)
        )

    async def WhatIf(self, request: spb.WhatIfRequest, context: Context) -> spb.WhatIfResponse:
        """Say what would become of a lease."""
        validation.check_what_if(request)
        spec = pack.to_spec(request, current_identity().name)
        return pack.from_what_if(await self._usecases.what_if(bare(request.pool), spec))

    async def ExplainWaiting(
        self, request: spb.ExplainWaitingRequest, context: Context
    ) -> spb.ExplainWaitingResponse:
        """Say where a waiting lease stands and what would help it."""
        validation.check_explain(request)
        limited = request.HasField("duration_max")
        found, now = await self._usecases.outlook(
            bare(request.pool),
            bare(request.lease),
            request.node_count_max if request.HasField("node_count_max") else None,
            span_to_millis(request.duration_max) if limited else None,
        )
        return pack.from_outlook(found, now)

    async def TriggerCycle(
        self, request: spb.TriggerCycleRequest, context: Context
    ) -> spb.TriggerCycleResponse:
        """Run a cycle now."""
        validation.check_name(request.pool, "pools", "pool")
        began = time.perf_counter()
        result = await self._usecases.trigger(bare(request.pool))
        return spb.TriggerCycleResponse(
            cycle=result.number,
            scheduled_count=result.scheduled,
            queued_count=result.queued,
            elapsed_duration=to_duration(int((time.perf_counter() - began) * 1_000)),
        )

    async def GetLeader(
        self, request: spb.GetLeaderRequest, context: Context
    ) -> spb.GetLeaderResponse:
        """Say who leads a pool."""
        validation.check_name(request.pool, "pools", "pool")
        fact = await self._usecases.leader(bare(request.pool))
        return spb.GetLeaderResponse(
            holder=fact.holder, address=fact.address, epoch=fact.epoch, election=fact.election
        )

    async def WatchDemand(
        self, request: spb.WatchDemandRequest, context: Context
    ) -> AsyncIterator[spb.WatchDemandResponse]:
        """Stream a pool's unmet demand whenever it changes."""
        validation.check_name(request.pool, "pools", "pool")
        watching = self._usecases.watch_demand(bare(request.pool))
        async with aclosing(watching) as demands:
            async for entries, now in self._draining.until(demands):
                yield spb.WatchDemandResponse(
                    entries=map(pack.from_demand_entry, entries), as_of=to_timestamp(now)
                )

    async def StepDown(
        self, request: spb.StepDownRequest, context: Context
    ) -> spb.StepDownResponse:
        """Hand a pool's leadership over."""
        validation.check_name(request.pool, "pools", "pool")
        await self._usecases.step_down(bare(request.pool))
        return spb.StepDownResponse()

    async def GetServiceInfo(
        self, request: spb.GetServiceInfoRequest, context: Context
    ) -> spb.GetServiceInfoResponse:
        """Say which program answers."""
        return spb.GetServiceInfoResponse(info=self._info)


def _repeat(request: spb.CreatePoolRequest | spb.CreatePolicyRequest) -> RepeatKey:
    plain = type(request)()
    plain.MergeFrom(request)  # type: ignore[arg-type]  # the same type, which mypy cannot see
    plain.ClearField("request_id")
    content = plain.SerializeToString(deterministic=True)
    return RepeatKey(current_identity().name, request.request_id, content)


def _page(request: spb.ListPoolsRequest | spb.ListPoliciesRequest) -> tuple[int, str]:
    size = page_size(request.page_size, default=100)
    cursor = decode_page_token(request.page_token, b"")
    return size, str(cursor[0]) if cursor else ""


def _next(names: list[str], size: int) -> str:
    return encode_page_token([names[size - 1]], b"") if len(names) > size else ""
