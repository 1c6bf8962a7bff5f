"""Serves `tenure.autoscaler.v1.AutoscalerService`: unpack, validate, one use case, pack."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, Final

from google.protobuf.message import Message

from tenure.autoscaler.v1 import autoscaler_pb2 as pb
from tenure.autoscaler.v1.autoscaler_pb2_grpc import AutoscalerServiceServicer
from tenure.type.v1.service_info_pb2 import ServiceInfo
from tenure_autoscaler import convert, validation
from tenure_autoscaler.ports import Store
from tenure_autoscaler.usecases import Groups
from tenure_autoscaler.values import GroupChange, RequestMark
from tenure_core.timebase import Clock
from tenure_runtime.rpc.identity import Permissions, Role, current_identity
from tenure_runtime.rpc.paging import decode_page_token, encode_page_token, page_size
from tenure_runtime.rpc.wire import bare
from tenure_runtime.telemetry.tracing import span

SERVICE: Final = "tenure.autoscaler.v1.AutoscalerService"
_READERS: Final = frozenset({Role.USER, Role.OPERATOR, Role.SERVICE})
_OPERATORS: Final = frozenset({Role.OPERATOR})

PERMISSIONS: Final = Permissions.of(
    SERVICE,
    {
        "CreateGroup": _OPERATORS,
        "GetGroup": _READERS,
        "ListGroups": _READERS,
        "UpdateGroup": _OPERATORS,
        "DeleteGroup": _OPERATORS,
        "PauseGroup": _OPERATORS,
        "ResumeGroup": _OPERATORS,
        "ListMachines": _READERS,
        "WatchMachines": _READERS,
        "ListDecisions": _READERS,
        "GetServiceInfo": frozenset(Role),
    },
)

# grpc's context is only partly typed.
Context = Any


class AutoscalerServicer(AutoscalerServiceServicer):
    """One method a call; nothing is decided here."""

    def __init__(self, groups: Groups, store: Store, clock: Clock, info: ServiceInfo) -> None:
        self._groups = groups
        self._store = store
        self._clock = clock
        self._info = info

    async def CreateGroup(  # noqa: D102
        self, request: pb.CreateGroupRequest, context: Context
    ) -> pb.CreateGroupResponse:
        validation.create_group(request)
        mark = RequestMark(
            current_identity().name,
            request.request_id,
            request.SerializeToString(deterministic=True),
        )
        with span("autoscaler.create_group"):
            group = convert.new_group(request.group, self._clock.now_ms())
            stored = await self._groups.create(group, mark)
        return pb.CreateGroupResponse(group=convert.group_message(stored))

    async def GetGroup(  # noqa: D102
        self, request: pb.GetGroupRequest, context: Context
    ) -> pb.GetGroupResponse:
        validation.group_name(request.name)
        group = await self._store.get_group(bare(request.name))
        return pb.GetGroupResponse(group=convert.group_message(group))

    async def ListGroups(  # noqa: D102
        self, request: pb.ListGroupsRequest, context: Context
    ) -> pb.ListGroupsResponse:
        size = page_size(request.page_size, default=100, maximum=1_000)
        cursor = decode_page_token(request.page_token, _arguments(request))
        groups = await self._store.list_groups(str(cursor[0]) if cursor else "", size + 1)
        return pb.ListGroupsResponse(
            groups=[convert.group_message(group) for group in groups[:size]],
            next_page_token=(
                encode_page_token([groups[size - 1].group], _arguments(request))
                if len(groups) > size
                else ""
            ),
        )

    async def UpdateGroup(  # noqa: D102
        self, request: pb.UpdateGroupRequest, context: Context
    ) -> pb.UpdateGroupResponse:
        validation.update_group(request)
        change = convert.group_change(request.group, set(request.update_mask.paths))
        with span("autoscaler.update_group"):
            group = await self._groups.change(
                bare(request.group.name), change, _version(request.group.etag)
            )
        return pb.UpdateGroupResponse(group=convert.group_message(group))

    async def DeleteGroup(  # noqa: D102
        self, request: pb.DeleteGroupRequest, context: Context
    ) -> pb.DeleteGroupResponse:
        validation.delete_group(request)
        with span("autoscaler.delete_group"):
            await self._store.delete_group(bare(request.name), _version(request.etag))
        return pb.DeleteGroupResponse()

    async def PauseGroup(  # noqa: D102
        self, request: pb.PauseGroupRequest, context: Context
    ) -> pb.PauseGroupResponse:
        validation.group_name(request.name)
        group = await self._groups.change(bare(request.name), GroupChange(paused=True))
        return pb.PauseGroupResponse(group=convert.group_message(group))

    async def ResumeGroup(  # noqa: D102
        self, request: pb.ResumeGroupRequest, context: Context
    ) -> pb.ResumeGroupResponse:
        validation.group_name(request.name)
        group = await self._groups.change(bare(request.name), GroupChange(paused=False))
        return pb.ResumeGroupResponse(group=convert.group_message(group))

    async def ListMachines(  # noqa: D102
        self, request: pb.ListMachinesRequest, context: Context
    ) -> pb.ListMachinesResponse:
        size = page_size(request.page_size, default=100, maximum=5_000)
        cursor = decode_page_token(request.page_token, _arguments(request))
        machines, token = await self._store.list_machines(
            bare(request.group), bare(request.pool), str(cursor[0]) if cursor else "", size + 1
        )
        return pb.ListMachinesResponse(
            machines=[convert.machine_message(machine) for machine in machines[:size]],
            next_page_token=(
                encode_page_token([machines[size - 1].machine], _arguments(request))
                if len(machines) > size
                else ""
            ),
            resume_token=token,
        )

    async def WatchMachines(  # noqa: D102
        self, request: pb.WatchMachinesRequest, context: Context
    ) -> AsyncIterator[pb.WatchMachinesResponse]:
        async with aclosing(self._store.watch_machines(request.resume_token)) as changes:
            async for change in changes:
                seen = change.machine
                machine = None if seen is None else convert.machine_message(seen)
                yield pb.WatchMachinesResponse(machine=machine, resume_token=change.token)

    async def ListDecisions(  # noqa: D102
        self, request: pb.ListDecisionsRequest, context: Context
    ) -> pb.ListDecisionsResponse:
        size = page_size(request.page_size, default=100, maximum=1_000)
        cursor = decode_page_token(request.page_token, _arguments(request))
        before = int(cursor[0]) if cursor else 0
        decisions = await self._store.list_decisions(request.subject, before, size + 1)
        return pb.ListDecisionsResponse(
            decisions=[convert.decision_message(decision) for decision in decisions[:size]],
            next_page_token=(
                encode_page_token([decisions[size - 1].number], _arguments(request))
                if len(decisions) > size
                else ""
            ),
        )

    async def GetServiceInfo(  # noqa: D102
        self, request: pb.GetServiceInfoRequest, context: Context
    ) -> pb.GetServiceInfoResponse:
        return pb.GetServiceInfoResponse(info=self._info)


def _version(etag: str) -> int | None:
    return int(etag) if etag else None


def _arguments(request: Message) -> bytes:
    """Return what a page token is bound to: the request without its page."""
    bound = type(request)()
    bound.CopyFrom(request)
    bound.ClearField("page_size")
    bound.ClearField("page_token")
    return bound.SerializeToString(deterministic=True)
