"""The slot table of `ports` over gRPC."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Final

from tenure.slottable.v1 import slottable_pb2 as spb
from tenure.slottable.v1.slottable_pb2_grpc import SlotTableServiceStub
from tenure_core.slots.operations import Node
from tenure_core.timebase import Millis
from tenure_runtime.ids import RandomIds
from tenure_runtime.rpc.client import Client
from tenure_runtime.rpc.wire import to_millis, to_timestamp
from tenure_scheduler.convert import slots as convert
from tenure_scheduler.entries import (
    CapacityResult,
    RowChange,
    SubmitGroup,
    SubmitResult,
    SubmitVerdict,
    TableState,
)
from tenure_scheduler.ports import Claim

PAGE: Final = 1_000
GROUPS_MAX: Final = 1_000
"""How many groups one SubmitPlan carries: messages are bounded in bytes."""


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
