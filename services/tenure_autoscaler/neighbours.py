"""What the acting loop asks of slottable and the registry, over gRPC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from tenure.registry.v1 import agent_pb2, application_pb2
from tenure.registry.v1 import registry_pb2 as rpb
from tenure.registry.v1.registry_pb2_grpc import RegistryServiceStub
from tenure.slottable.v1 import reservation_pb2
from tenure.slottable.v1 import slottable_pb2 as spb
from tenure.slottable.v1.slottable_pb2_grpc import SlotTableServiceStub
from tenure_autoscaler.clients import seen_agent
from tenure_autoscaler.records import GroupClaim
from tenure_autoscaler.values import GROUP_ATTRIBUTE, ApplicationOrder, Group, SeenApplication
from tenure_core.autoscaling.machines import ApplicationState
from tenure_core.errors import NotFound, WrongState
from tenure_core.timebase import Millis
from tenure_runtime.rpc.client import Client
from tenure_runtime.rpc.wire import bare, span_to_millis, to_timestamp

T = TypeVar("T")
CALL_MAX: Final = 1_000
"""So many applications the registry takes in one call."""

_NOT_THERE = (agent_pb2.Agent.STATE_LOST, agent_pb2.Agent.STATE_RETIRED)


class SlotTableNodes:
    """See `Nodes`."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._stub = SlotTableServiceStub(client.channel)

    async def acquire_epoch(self, group: str, holder: str) -> int:
        """See `Nodes`."""
        request = spb.AcquireEpochRequest(scope=f"group/{group}", holder=holder)
        return (await self._client.call(self._stub.AcquireEpoch, request, retry=False)).epoch

    async def retire(self, claim: GroupClaim, node: str) -> bool:
        """See `Nodes`."""
        request = spb.RetireNodeRequest(
            scope=claim.scope, epoch=claim.epoch, node=f"nodes/{node}", if_unbooked=True
        )
        try:
            await self._client.call(self._stub.RetireNode, request)
        except NotFound:
            return True
        except WrongState:
            return False
        return True

    async def offer(self, claim: GroupClaim, group: Group, nodes: Mapping[str, Millis]) -> None:
        """See `Nodes`; a node closed before is opened once its new capacity is told."""
        amounts = dict(group.amounts.items())
        request = spb.SetCapacityRequest(
            scope=claim.scope,
            epoch=claim.epoch,
            pool=group.pool,
            nodes=[
                reservation_pb2.Node(
                    name=f"nodes/{name}",
                    node_type=group.group,
                    attributes={GROUP_ATTRIBUTE: group.group},
                    capacity=[
                        reservation_pb2.CapacityChange(
                            start_time=to_timestamp(start_ms), amounts=amounts
                        )
                    ],
                )
                for name, start_ms in sorted(nodes.items())
            ],
        )
        told = await self._client.call(self._stub.SetCapacity, request)
        for node in told.nodes:
            if node.state == reservation_pb2.Node.STATE_RETIRED:
                await self.unretire(claim, bare(node.name))

    async def unretire(self, claim: GroupClaim, node: str) -> None:
        """See `Nodes`."""
        request = spb.UnretireNodeRequest(
            scope=claim.scope, epoch=claim.epoch, node=f"nodes/{node}"
        )
        try:
            await self._client.call(self._stub.UnretireNode, request)
        except NotFound:
            return


class RegistryApplications:
    """See `Applications`."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._stub = RegistryServiceStub(client.channel)

    async def fence(self, claim: GroupClaim) -> None:
        """See `Applications`."""
        request = rpb.FenceEpochRequest(scope=claim.scope, epoch=claim.epoch)
        await self._client.call(self._stub.FenceEpoch, request)

    async def reports(self, agents: Sequence[str]) -> list[SeenApplication]:
        """See `Applications`."""
        found: list[SeenApplication] = []
        for part in _parts(agents):
            request = rpb.BatchGetApplicationsRequest(agents=[f"agents/{name}" for name in part])
            told = await self._client.call(self._stub.BatchGetApplications, request)
            found += [seen_application(each) for each in told.applications]
        return found

    async def order(self, claim: GroupClaim, orders: Sequence[ApplicationOrder]) -> None:
        """See `Applications`."""
        for part in _parts(orders):
            request = rpb.OrderApplicationsRequest(
                scope=claim.scope,
                epoch=claim.epoch,
                orders=[_order_message(claim, order) for order in part],
            )
            await self._client.call(self._stub.OrderApplications, request)


def _parts(whole: Sequence[T]) -> list[Sequence[T]]:
    return [whole[at : at + CALL_MAX] for at in range(0, len(whole), CALL_MAX)]


def seen_application(message: application_pb2.Application) -> SeenApplication:
    """Return what the registry knows of an application."""
    report = message.report
    name = application_pb2.ApplicationReport.State.Name(report.state).removeprefix("STATE_")
    return SeenApplication(
        bare(message.agent),
        message.incarnation,
        message.sequence,
        span_to_millis(message.age_duration),
        ApplicationState(name),
        report.threads,
        span_to_millis(report.mean_work_duration),
        report.in_flight if report.HasField("in_flight") else None,
        report.queue_length,
        report.master_epoch,
        report.address,
        message.order_id,
    )


def _order_message(claim: GroupClaim, order: ApplicationOrder) -> application_pb2.ApplicationOrder:
    kinds = application_pb2.ApplicationOrder
    return application_pb2.ApplicationOrder(
        agent=f"agents/{order.agent}",
        incarnation=order.incarnation,
        order_id=order.order_id,
        scope=claim.scope,
        epoch=claim.epoch,
        kind=kinds.KIND_START if order.start else kinds.KIND_STOP,
        machine=order.machine,
        is_master=order.is_master,
        master_epoch=order.master_epoch,
        master_address=order.master_address,
        members=order.members,
    )


class RegistryOccupancy:
    """See `Occupancy`."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._stub = RegistryServiceStub(client.channel)

    async def running(self, agent: str) -> tuple[str, int]:
        """See `Occupancy`."""
        request = rpb.GetAgentRequest(name=f"agents/{agent}")
        try:
            found = (await self._client.call(self._stub.GetAgent, request)).agent
        except NotFound:
            return "", 0
        if found.state in _NOT_THERE:
            return "", 0
        seen = seen_agent(found)
        return seen.incarnation, seen.running
