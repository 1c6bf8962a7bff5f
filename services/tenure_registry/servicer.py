"""Serves `tenure.registry.v1.RegistryService`: unpack, validate, one use case, pack."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, Final

from google.protobuf.message import Message

from tenure.registry.v1 import registry_pb2 as pb
from tenure.registry.v1.registry_pb2_grpc import RegistryServiceServicer
from tenure.type.v1.service_info_pb2 import ServiceInfo
from tenure_core.agents.work import Slot
from tenure_core.timebase import Clock
from tenure_registry import convert, validation
from tenure_registry.agent_stream import AgentStream, StreamTerms
from tenure_registry.usecases import RegistryUseCases
from tenure_registry.values import Dispatch, LogRequest
from tenure_runtime.rpc.caller import caller
from tenure_runtime.rpc.draining import Draining
from tenure_runtime.rpc.identity import Permissions, Role, current_identity
from tenure_runtime.rpc.paging import decode_page_token, encode_page_token, page_size
from tenure_runtime.rpc.wire import bare, to_timestamp
from tenure_runtime.telemetry.tracing import span, span_in_each

SERVICE: Final = "tenure.registry.v1.RegistryService"
_PEOPLE: Final = frozenset({Role.USER, Role.OPERATOR, Role.SERVICE})
_LEADERS: Final = frozenset({Role.SERVICE})
_STAFF: Final = frozenset({Role.OPERATOR, Role.SERVICE})

PERMISSIONS: Final = Permissions.of(
    SERVICE,
    {
        "Connect": frozenset({Role.AGENT}),
        "ListAgents": _PEOPLE,
        "GetAgent": _PEOPLE,
        "WatchAgents": _STAFF,
        "CordonAgent": _STAFF,
        "DrainAgent": _STAFF,
        "UncordonAgent": _STAFF,
        "DispatchCommands": _LEADERS,
        "WatchReports": _STAFF,
        "ListReports": _STAFF,
        "StreamLogs": _PEOPLE,
        "FenceEpoch": _LEADERS,
        "BatchGetApplications": _STAFF,
        "OrderApplications": _LEADERS,
        "GetServiceInfo": frozenset(Role),
    },
)

# grpc's context is only partly typed.
Context = Any


class RegistryServicer(RegistryServiceServicer):
    """One method a call; nothing is decided here."""

    def __init__(
        self,
        cases: RegistryUseCases,
        terms: StreamTerms,
        info: ServiceInfo,
        clock: Clock,
        draining: Draining,
    ) -> None:
        self._cases = cases
        self._terms = terms
        self._info = info
        self._clock = clock
        self._draining = draining

    # Reads and writes through the context: one task a stream, not two and a generator.
    async def Connect(  # type: ignore[override]  # noqa: D102
        self, request_iterator: object, context: Context
    ) -> None:
        stream = AgentStream(context, self._cases, self._terms, self._clock, self._draining)
        await stream.serve(current_identity())

    async def ListAgents(  # noqa: D102
        self, request: pb.ListAgentsRequest, context: Context
    ) -> pb.ListAgentsResponse:
        size = page_size(request.page_size, default=100, maximum=5_000)
        cursor = decode_page_token(request.page_token, _arguments(request))
        states = [state for number in request.states if (state := convert.state_of(number))]
        with span("registry.list_agents"):
            agents, token = await self._cases.list_agents(
                request.pool.removeprefix("pools/"),
                states,
                str(cursor[0]) if cursor else "",
                size + 1,
            )
        more = len(agents) > size
        return pb.ListAgentsResponse(
            agents=[convert.agent_message(agent, (), load) for agent, load in agents[:size]],
            next_page_token=(
                encode_page_token([agents[size - 1][0].agent], _arguments(request)) if more else ""
            ),
            resume_token=token,
        )

    async def GetAgent(  # noqa: D102
        self, request: pb.GetAgentRequest, context: Context
    ) -> pb.GetAgentResponse:
        validation.agent_name("name", request.name)
        with span("registry.get_agent"):
            agent, load, allocations = await self._cases.get_agent(bare(request.name))
        return pb.GetAgentResponse(agent=convert.agent_message(agent, tuple(allocations), load))

    async def WatchAgents(  # noqa: D102
        self, request: pb.WatchAgentsRequest, context: Context
    ) -> AsyncIterator[pb.WatchAgentsResponse]:
        pool = request.pool.removeprefix("pools/")
        changes = self._cases.store.watch_agents(request.resume_token, pool)
        async with aclosing(changes):
            async for change in changes:
                agent = None if change.agent is None else convert.agent_message(change.agent)
                yield pb.WatchAgentsResponse(agent=agent, resume_token=change.token)

    async def CordonAgent(  # noqa: D102
        self, request: pb.CordonAgentRequest, context: Context
    ) -> pb.CordonAgentResponse:
        agent = await self._set_flags(request.name, cordoned=True, draining=False)
        return pb.CordonAgentResponse(agent=agent)

    async def DrainAgent(  # noqa: D102
        self, request: pb.DrainAgentRequest, context: Context
    ) -> pb.DrainAgentResponse:
        agent = await self._set_flags(request.name, cordoned=True, draining=True)
        return pb.DrainAgentResponse(agent=agent)

    async def UncordonAgent(  # noqa: D102
        self, request: pb.UncordonAgentRequest, context: Context
    ) -> pb.UncordonAgentResponse:
        agent = await self._set_flags(request.name, cordoned=False, draining=False)
        return pb.UncordonAgentResponse(agent=agent)

    async def _set_flags(self, name: str, *, cordoned: bool, draining: bool) -> Any:
        validation.agent_name("name", name)
        with span("registry.set_flags"):
            agent = await self._cases.set_flags(bare(name), cordoned=cordoned, draining=draining)
        return convert.agent_message(agent)

    async def DispatchCommands(  # noqa: D102
        self, request: pb.DispatchCommandsRequest, context: Context
    ) -> pb.DispatchCommandsResponse:
        validation.dispatch(request)
        commands = tuple(
            convert.command_of(command, request.scope, request.epoch)
            for command in request.commands
        )
        with (
            span("registry.dispatch", command_count=len(commands)),
            span_in_each("registry.dispatch_command") as note,
        ):
            for message, command in zip(request.commands, commands, strict=True):
                note(
                    message.trace_parent,
                    lease=command.slot.lease,
                    command=command.command_id,
                    verb=command.verb.value,
                )
            reasons = await self._cases.dispatch(
                Dispatch(bare(request.scope), request.epoch, commands)
            )
        return pb.DispatchCommandsResponse(
            verdicts=[
                pb.CommandVerdict(
                    command_id=command.command_id,
                    reason=reason,
                    message=_MESSAGES[reason],
                )
                for command, reason in zip(commands, reasons, strict=True)
            ]
        )

    async def WatchReports(  # noqa: D102
        self, request: pb.WatchReportsRequest, context: Context
    ) -> AsyncIterator[pb.WatchReportsResponse]:
        validation.pool_name("pool", request.pool)
        pool = request.pool.removeprefix("pools/")
        changes = self._cases.store.watch_reports(request.resume_token, pool)
        async with aclosing(changes):
            async for change in changes:
                if change.report is None:
                    yield pb.WatchReportsResponse(resume_token=change.token)
                    continue
                yield pb.WatchReportsResponse(
                    report=convert.report_message(change.report),
                    resume_token=change.token,
                    record_time=to_timestamp(change.recorded_ms),
                )

    async def ListReports(  # noqa: D102
        self, request: pb.ListReportsRequest, context: Context
    ) -> pb.ListReportsResponse:
        validation.pool_name("pool", request.pool)
        size = page_size(request.page_size, default=500, maximum=5_000)
        cursor = decode_page_token(request.page_token, _arguments(request))
        after = Slot(str(cursor[0]), int(cursor[1]), int(cursor[2])) if cursor else None
        with span("registry.list_reports"):
            reports, token = await self._cases.last_reports(
                request.pool.removeprefix("pools/"), after, size + 1
            )
        more = len(reports) > size
        return pb.ListReportsResponse(
            reports=[convert.report_message(report) for report in reports[:size]],
            next_page_token=(
                encode_page_token(list(reports[size - 1].slot), _arguments(request)) if more else ""
            ),
            resume_token=token,
        )

    async def StreamLogs(  # noqa: D102
        self, request: pb.StreamLogsRequest, context: Context
    ) -> AsyncIterator[pb.StreamLogsResponse]:
        validation.stream_logs(request)
        slot = Slot(bare(request.lease), request.attempt, request.rank)
        wanted = LogRequest("", slot, request.offset, request.follow)
        parts = self._draining.until(self._cases.stream_logs(wanted, caller()))
        async with aclosing(parts):
            async for offset, data in parts:
                yield pb.StreamLogsResponse(offset=offset, data=data)

    async def FenceEpoch(  # noqa: D102
        self, request: pb.FenceEpochRequest, context: Context
    ) -> pb.FenceEpochResponse:
        validation.fence(request)
        with span("registry.fence"):
            epoch = await self._cases.fence(request.scope, request.epoch)
        return pb.FenceEpochResponse(epoch=epoch)

    async def BatchGetApplications(  # noqa: D102
        self, request: pb.BatchGetApplicationsRequest, context: Context
    ) -> pb.BatchGetApplicationsResponse:
        validation.applications(request)
        with span("registry.get_applications"):
            found = await self._cases.applications({bare(agent) for agent in request.agents})
        return pb.BatchGetApplicationsResponse(
            applications=[convert.application_message(each) for each in found]
        )

    async def OrderApplications(  # noqa: D102
        self, request: pb.OrderApplicationsRequest, context: Context
    ) -> pb.OrderApplicationsResponse:
        validation.application_orders(request)
        orders = [convert.application_order_of(order) for order in request.orders]
        with span("registry.order_applications"):
            await self._cases.order_applications(request.scope, request.epoch, orders)
        return pb.OrderApplicationsResponse()

    async def GetServiceInfo(  # noqa: D102
        self, request: pb.GetServiceInfoRequest, context: Context
    ) -> pb.GetServiceInfoResponse:
        return pb.GetServiceInfoResponse(info=self._info)


def _arguments(request: Message) -> bytes:
    """Return what a page token is bound to: the request without its page."""
    bound = type(request)()
    bound.CopyFrom(request)
    bound.ClearField("page_size")
    bound.ClearField("page_token")
    return bound.SerializeToString(deterministic=True)


_MESSAGES: Final[Mapping[str, str]] = {
    "": "",
    "AGENT_NOT_FOUND": "No such agent serves this pool.",
    "AGENT_LOST": "The agent is lost, or was when this command awaited it.",
    "COMMAND_ID_REUSED": "A command of this id asked for something else.",
    "ALLOCATION_ELSEWHERE": "Another agent has this slot of this attempt.",
    "ALLOCATION_ENDED": "This slot of this attempt has ended; start another attempt.",
}
