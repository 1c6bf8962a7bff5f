"""The neighbours over gRPC, behind the leader's ports."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator, Sequence
from typing import Final

from tenure.admission.v1 import admission_pb2 as apb
from tenure.admission.v1.admission_pb2_grpc import AdmissionServiceStub
from tenure.registry.v1 import registry_pb2 as gpb
from tenure.registry.v1.registry_pb2_grpc import RegistryServiceStub
from tenure.slottable.v1 import slottable_pb2 as spb
from tenure.slottable.v1.slottable_pb2_grpc import SlotTableServiceStub
from tenure_core.errors import NotFound
from tenure_core.leases.states import ENDED, LeaseState
from tenure_core.slots.commit import Node
from tenure_core.timebase import Millis
from tenure_runtime.ids import RandomIds
from tenure_runtime.rpc.client import Client
from tenure_runtime.rpc.wire import to_millis, to_timestamp
from tenure_scheduler import convert
from tenure_scheduler.entries import (
    AgentChange,
    AgentEntry,
    CapacityResult,
    Dispatch,
    DispatchVerdict,
    LeaseChange,
    LeaseEntry,
    Prediction,
    ReportChange,
    RowChange,
    SubmitGroup,
    SubmitResult,
    SubmitVerdict,
    TableState,
    Transition,
    TransitionVerdict,
)
from tenure_scheduler.ports import Claim

PAGE: Final = 1_000
TRANSITIONS_MAX: Final = 1_000
COMMANDS_MAX: Final = 1_000
GROUPS_MAX: Final = 1_000
"""How many groups one SubmitPlan carries: messages are bounded in bytes."""

TOLD_MAX: Final = 10_000
"""For how many leases it is remembered which version an answer told."""

_LIVE: Final = tuple(state for state in LeaseState if state not in ENDED)


class AdmissionClient:
    """The lease book of `ports` over gRPC."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._stub = AdmissionServiceStub(client.channel)
        self._told: OrderedDict[str, int] = OrderedDict()

    async def fence(self, claim: Claim) -> None:
        """Have every older epoch refused."""
        request = apb.FenceEpochRequest(scope=claim.scope, epoch=claim.epoch)
        await self._client.call(self._stub.FenceEpoch, request)

    async def held(self, pool: str) -> tuple[list[LeaseEntry], str]:
        """Return the pool's leases that have not ended, and the token of the first page."""
        found: list[LeaseEntry] = []
        request = apb.ListLeasesRequest(
            page_size=PAGE,
            pool=pool,
            states=[convert.from_state(state) for state in _LIVE],
        )
        token = ""
        while True:
            page = await self._client.call(self._stub.ListLeases, request)
            found.extend(convert.to_lease(lease) for lease in page.leases)
            token = token or page.resume_token
            if not page.next_page_token:
                return found, token
            request.page_token = page.next_page_token

    async def watch(self, pool: str, token: str) -> AsyncGenerator[LeaseChange, None]:
        """Yield the pool's lease changes after the token."""
        request = apb.WatchLeasesRequest(pool=pool, resume_token=token)
        async with self._client.stream(self._stub.WatchLeases, request) as changes:
            async for change in changes:
                if self._told.get(change.lease.name, 0) >= change.lease.version > 0:
                    # The echo of what `record` told already: not worth converting again.
                    yield LeaseChange(change.resume_token)
                    continue
                lease = convert.to_lease(change.lease) if change.HasField("lease") else None
                yield LeaseChange(change.resume_token, lease)

    async def record(
        self, claim: Claim, transitions: Sequence[Transition], predictions: Sequence[Prediction]
    ) -> list[TransitionVerdict]:
        """Record transitions, 1,000 a call, and predictions with the first of them."""
        verdicts: list[TransitionVerdict] = []
        for start in range(0, max(len(transitions), 1), TRANSITIONS_MAX):
            part = transitions[start : start + TRANSITIONS_MAX]
            request = apb.RecordTransitionsRequest(
                scope=claim.scope,
                epoch=claim.epoch,
                transitions=map(convert.from_transition, part),
                predictions=map(convert.from_prediction, predictions) if not start else (),
            )
            response = await self._client.call(self._stub.RecordTransitions, request)
            self._note_told(response)
            verdicts.extend(
                TransitionVerdict(
                    verdict.transition_id,
                    verdict.reason,
                    verdict.message,
                    convert.to_lease(verdict.lease) if verdict.HasField("lease") else None,
                )
                for verdict in response.verdicts
            )
        return verdicts

    def _note_told(self, response: apb.RecordTransitionsResponse) -> None:
        for verdict in response.verdicts:
            self._told[verdict.lease.name] = verdict.lease.version
            self._told.move_to_end(verdict.lease.name)
        while len(self._told) > TOLD_MAX:
            self._told.popitem(last=False)

    async def state_of(self, lease: str) -> LeaseState | None:
        """Return the state of any lease."""
        request = apb.GetLeaseRequest(name=f"leases/{lease}")
        try:
            response = await self._client.call(self._stub.GetLease, request)
        except NotFound:
            return None
        return convert.to_state(response.lease.state)


class SlottableClient:
    """The slot table of `ports` over gRPC."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._stub = SlotTableServiceStub(client.channel)
        self._ids = RandomIds()

    async def acquire_epoch(self, pool: str, holder: str) -> int:
        """Return an epoch larger than any before."""
        request = spb.AcquireEpochRequest(scope=f"pool/{pool}", holder=holder)
        return (await self._client.call(self._stub.AcquireEpoch, request)).epoch

    async def state(self, pool: str) -> TableState:
        """Return all rows and nodes of the pool."""
        request = spb.ListReservationsRequest(page_size=5 * PAGE, pool=pool)
        first = page = await self._client.call(self._stub.ListReservations, request)
        rows = [convert.to_row(row) for row in page.reservations]
        while page.next_page_token:
            request.page_token = page.next_page_token
            page = await self._client.call(self._stub.ListReservations, request)
            rows.extend(convert.to_row(row) for row in page.reservations)
        nodes = await self._nodes(pool)
        status = await self._client.call(
            self._stub.GetTableStatus, spb.GetTableStatusRequest(pool=pool)
        )
        return TableState(
            tuple(rows), nodes, first.resume_token, first.revision, to_millis(status.as_of)
        )

    async def _nodes(self, pool: str) -> tuple[Node, ...]:
        request = spb.ListNodesRequest(page_size=5 * PAGE, pool=pool, include_retired=True)
        nodes: list[Node] = []
        while True:
            page = await self._client.call(self._stub.ListNodes, request)
            nodes.extend(convert.to_node(node) for node in page.nodes)
            if not page.next_page_token:
                return tuple(nodes)
            request.page_token = page.next_page_token

    async def watch(self, pool: str, token: str) -> AsyncGenerator[RowChange, None]:
        """Yield the pool's changes after the token."""
        request = spb.WatchReservationsRequest(pool=pool, resume_token=token)
        async with self._client.stream(self._stub.WatchReservations, request) as changes:
            async for change in changes:
                yield convert.to_row_change(change)

    async def submit(
        self, claim: Claim, as_of: Millis, revision: int, groups: Sequence[SubmitGroup]
    ) -> SubmitResult:
        """Commit groups, 1,000 a call."""
        verdicts: list[SubmitVerdict] = []
        response = spb.SubmitPlanResponse()
        for start in range(0, len(groups), GROUPS_MAX):
            request = spb.SubmitPlanRequest(
                scope=claim.scope,
                epoch=claim.epoch,
                as_of=to_timestamp(as_of),
                base_revision=revision,
                groups=[
                    convert.from_group(group, claim.pool)
                    for group in groups[start : start + GROUPS_MAX]
                ],
                request_id=self._ids.request_id(),
            )
            response = await self._client.call(self._stub.SubmitPlan, request)
            verdicts.extend(
                SubmitVerdict(
                    verdict.group_id,
                    verdict.reason,
                    verdict.message,
                    tuple(convert.to_row(row) for row in verdict.reservations),
                )
                for verdict in response.verdicts
            )
        return SubmitResult(tuple(verdicts), response.revision, to_millis(response.as_of))

    async def set_capacity(
        self, claim: Claim, nodes: Sequence[Node], *, cordoned: bool
    ) -> CapacityResult:
        """Create or replace nodes."""
        request = spb.SetCapacityRequest(
            scope=claim.scope,
            epoch=claim.epoch,
            nodes=map(convert.from_node, nodes),
            cordoned=cordoned,
        )
        response = await self._client.call(self._stub.SetCapacity, request)
        return CapacityResult(
            tuple(convert.to_node(node) for node in response.nodes),
            tuple(convert.to_row(row) for row in response.displaced_reservations),
            response.revision,
        )


class RegistryClient:
    """The fleet of `ports` over gRPC."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._stub = RegistryServiceStub(client.channel)

    async def fence(self, claim: Claim) -> None:
        """Have every older epoch refused."""
        request = gpb.FenceEpochRequest(scope=claim.scope, epoch=claim.epoch)
        await self._client.call(self._stub.FenceEpoch, request)

    async def agents(self, pool: str) -> tuple[list[AgentEntry], str]:
        """Return the pool's agents, and the token of the first page."""
        request = gpb.ListAgentsRequest(page_size=PAGE, pool=pool)
        found: list[AgentEntry] = []
        token = ""
        while True:
            page = await self._client.call(self._stub.ListAgents, request)
            found.extend(convert.to_agent(agent) for agent in page.agents)
            token = token or page.resume_token
            if not page.next_page_token:
                return found, token
            request.page_token = page.next_page_token

    async def watch_agents(self, pool: str, token: str) -> AsyncGenerator[AgentChange, None]:
        """Yield the pool's agent changes after the token."""
        request = gpb.WatchAgentsRequest(pool=pool, resume_token=token)
        async with self._client.stream(self._stub.WatchAgents, request) as changes:
            async for change in changes:
                agent = convert.to_agent(change.agent) if change.HasField("agent") else None
                yield AgentChange(change.resume_token, agent)

    async def reports(self, pool: str) -> tuple[list[ReportChange], str]:
        """Return the last report of each allocation, and the token of the first page."""
        request = gpb.ListReportsRequest(page_size=PAGE, pool=pool)
        found: list[ReportChange] = []
        token = ""
        while True:
            page = await self._client.call(self._stub.ListReports, request)
            found.extend(ReportChange("", convert.to_report(report)) for report in page.reports)
            token = token or page.resume_token
            if not page.next_page_token:
                return found, token
            request.page_token = page.next_page_token

    async def watch_reports(self, pool: str, token: str) -> AsyncGenerator[ReportChange, None]:
        """Yield the pool's reports after the token."""
        request = gpb.WatchReportsRequest(pool=pool, resume_token=token)
        async with self._client.stream(self._stub.WatchReports, request) as changes:
            async for change in changes:
                report = convert.to_report(change.report) if change.HasField("report") else None
                yield ReportChange(change.resume_token, report)

    async def dispatch(self, claim: Claim, commands: Sequence[Dispatch]) -> list[DispatchVerdict]:
        """Store commands for delivery, 1,000 a call."""
        verdicts: list[DispatchVerdict] = []
        for start in range(0, len(commands), COMMANDS_MAX):
            request = gpb.DispatchCommandsRequest(
                scope=claim.scope,
                epoch=claim.epoch,
                commands=map(convert.from_dispatch, commands[start : start + COMMANDS_MAX]),
            )
            response = await self._client.call(self._stub.DispatchCommands, request)
            verdicts.extend(
                DispatchVerdict(verdict.command_id, verdict.reason, verdict.message)
                for verdict in response.verdicts
            )
        return verdicts
