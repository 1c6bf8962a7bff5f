"""What admission learns of pools from real neighbours, and keeps while they are away."""

from __future__ import annotations

from typing import Any

import pytest
from tests.contract.admission.harness import Admission, a_lease
from tests.support.servers import serving

from tenure.scheduler.v1 import pool_pb2
from tenure.scheduler.v1 import scheduler_pb2 as scheduler
from tenure.scheduler.v1.scheduler_pb2_grpc import (
    SchedulerServiceServicer,
    add_SchedulerServiceServicer_to_server,
)
from tenure.slottable.v1 import reservation_pb2, slottable_pb2
from tenure.slottable.v1.slottable_pb2_grpc import (
    SlotTableServiceServicer,
    add_SlotTableServiceServicer_to_server,
)
from tenure_admission.clients import PolledPools
from tenure_admission.pool_view import NodeView
from tenure_core.errors import Invalid
from tenure_core.resources import ResourceVector


class Nodes(SlotTableServiceServicer):
    """Lists its nodes two a page."""

    def __init__(self, nodes: list[reservation_pb2.Node]) -> None:
        self.nodes = nodes

    async def ListNodes(
        self, request: slottable_pb2.ListNodesRequest, context: Any
    ) -> slottable_pb2.ListNodesResponse:
        start = int(request.page_token or 0)
        following = str(start + 2) if start + 2 < len(self.nodes) else ""
        return slottable_pb2.ListNodesResponse(
            nodes=self.nodes[start : start + 2], next_page_token=following
        )


class Pools(SchedulerServiceServicer):
    """Lists its pools one a page."""

    names = ("default", "empty")
    closed = frozenset({"empty"})

    async def ListPools(
        self, request: scheduler.ListPoolsRequest, context: Any
    ) -> scheduler.ListPoolsResponse:
        index = int(request.page_token or 0)
        following = str(index + 1) if index + 1 < len(self.names) else ""
        name = self.names[index]
        pool = pool_pb2.Pool(name=f"pools/{name}", cordoned=name in self.closed)
        return scheduler.ListPoolsResponse(pools=[pool], next_page_token=following)


def node(number: int, pool: str = "default", **amounts: int) -> reservation_pb2.Node:
    capacity = [reservation_pb2.CapacityChange(amounts=amounts)]
    return reservation_pb2.Node(name=f"nodes/n{number}", pool=pool, capacity=capacity)


async def test_pools_and_nodes_are_looked_at_page_by_page_and_kept() -> None:
    nodes = Nodes([node(1, cpu=4_000), node(2, cpu=2_000), node(3, "gpus", gpu=1_000)])
    async with (
        serving(
            add_SlotTableServiceServicer_to_server,
            nodes,
            "tenure.slottable.v1.SlotTableService",
            methods=["ListNodes"],
        ) as slottable,
        serving(
            add_SchedulerServiceServicer_to_server,
            Pools(),
            "tenure.scheduler.v1.SchedulerService",
            methods=["ListPools"],
        ) as leaders,
    ):
        pools = PolledPools(await slottable.client("service"), await leaders.client("service"))
        assert pools.exists("default") is None
        assert pools.view("default") is None

        await pools.run_once()
        # The pool may still be growing: a second look must find no new node.
        assert pools.view("default") is None
        await pools.run_once()

        exists = {name: pools.exists(name) for name in ("default", "empty", "gpus", "nowhere")}
        assert exists == {"default": True, "empty": True, "gpus": True, "nowhere": False}
        assert [pools.cordoned(name) for name in ("default", "empty", "nowhere")] == [
            False,
            True,
            False,
        ]
        view = pools.view("default")
        assert view is not None
        assert view.kinds == {"cpu"}
        assert view.slots_ever({"cpu": 1_000}, {}, spread=False) == 6
        # An agent that is away for a while is not a smaller pool.
        nodes.nodes[0] = node(1)
        await pools.run_once()
        view = pools.view("default")
        assert view is not None
        assert view.slots_ever({"cpu": 1_000}, {}, spread=False) == 6
        # A node that grew counts at once.
        nodes.nodes[1] = node(2, cpu=3_000)
        await pools.run_once()
        view = pools.view("default")
        assert view is not None
        assert view.slots_ever({"cpu": 1_000}, {}, spread=False) == 7
        nodes.nodes.append(node(4, cpu=1_000))
        await pools.run_once()
        assert pools.view("default") is None
        nodes.nodes.pop()
        await pools.run_once()
        view = pools.view("default")
        await slottable.server.stop(0)
        await leaders.server.stop(0)
        await pools.run_once()
        assert pools.view("default") is view
        assert pools.exists("nowhere") is False
        assert pools.cordoned("empty")


async def test_without_neighbours_nothing_is_known() -> None:
    pools = PolledPools(None, None)

    await pools.run_once()

    assert not pools.cordoned("default")
    assert pools.exists("default") is None
    assert pools.view("default") is None


async def test_a_lease_that_names_no_pool_goes_where_it_could_ever_run(
    admission: Admission,
) -> None:
    user, pools = await admission.caller(), admission.pools

    def has(pool: str, **capacity: int) -> None:
        pools.put(pool, NodeView(pool, {}, (ResourceVector(capacity),)))

    async def pool_of(**fields: Any) -> str:
        return (await user.create(a_lease(node_count=1, **fields))).pool

    gpu, plain = {"gpu": 1_000}, {"cpu": 1_000}
    unknown = await pool_of(amounts=gpu)
    has("default", cpu=4_000)
    has("a-shut", cpu=4_000, gpu=8_000)
    has("graphics", cpu=4_000, gpu=8_000)
    pools.closed.add("a-shut")

    assert unknown == "default"
    assert await pool_of(amounts=plain) == "default"
    assert await pool_of(amounts=gpu) == "graphics"
    assert await pool_of(amounts=gpu, pool="a-shut") == "a-shut"
    pools.closed.clear()
    assert await pool_of(amounts=gpu) == "a-shut"
    with pytest.raises(Invalid) as nowhere:
        await pool_of(amounts={"gpu": 9_000})
    with pytest.raises(Invalid) as named:
        await pool_of(amounts=gpu, pool="default")
    assert [each.reason for each in nowhere.value.violations] == ["UNKNOWN_RESOURCE"]
    assert [each.reason for each in named.value.violations] == ["UNKNOWN_RESOURCE"]
