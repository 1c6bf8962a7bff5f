"""Builds fleets of one small machine type for the tests, and decides about them."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st

from tenure_core.autoscaling.booked_demand import (
    NodeBooking,
)
from tenure_core.autoscaling.disruption import TokenBucket
from tenure_core.autoscaling.fleet import FleetInputs, FleetState, decide_fleet
from tenure_core.autoscaling.fleet_values import FleetConfig, FleetNode
from tenure_core.autoscaling.future_node import (
    NodeAction,
    NodeState,
    NodeTimes,
    StartKind,
)
from tenure_core.autoscaling.group_config import Damping
from tenure_core.autoscaling.machine_types import MachineType
from tenure_core.autoscaling.queue_packing import WaitingLease
from tenure_core.resources import ResourceVector

S = 1000
TIMES = NodeTimes(
    boot_p95_ms=120 * S, resume_p95_ms=30 * S, suspend_p95_ms=20 * S, guard_ms=10 * S,
    idle_suspend_after_ms=60 * S, idle_terminate_after_ms=600 * S,
    suspended_terminate_after_ms=3600 * S,
)  # fmt: skip
CPU4 = ResourceVector({"cpu": 4000})
SMALL = MachineType("small", CPU4, price_micros=100, times=TIMES, launches_per_minute=6)
UNDAMPED = Damping(in_window_ms=0, in_cooldown_ms=0)
CONFIG = FleetConfig(max_nodes=10, damping=UNDAMPED)
WIDE = FleetState(creations=TokenBucket(6000, 100), removals=TokenBucket(6000, 100))
GOING = (NodeAction.SUSPEND, NodeAction.TERMINATE)


def node(name: str, state: NodeState = NodeState.RUNNING, **more: object) -> FleetNode:
    """Return a node of the small type, idle unless told otherwise."""
    free = ResourceVector() if more.get("busy") else CPU4
    return replace(FleetNode(name, "small", state, free=free), **more)  # type: ignore[arg-type]


def lease(name: str, nodes: int = 1, cpu: int = 4000, **more: bool) -> WaitingLease:
    """Return a waiting lease of `nodes` times `cpu` millicores."""
    return WaitingLease(name, nodes, ResourceVector({"cpu": cpu}), **more)


def orders(
    nodes: list[FleetNode], *, bookings: list[NodeBooking] | None = None,
    waiting: list[WaitingLease] | None = None, config: FleetConfig = CONFIG,
    types: tuple[MachineType, ...] = (SMALL,), now_ms: int = 0, state: FleetState = WIDE,
) -> list[tuple[str, str, str]]:  # fmt: skip
    """Decide once and return (action, node, reason)."""
    inputs = FleetInputs(now_ms, nodes, bookings or [], waiting or [])
    found = decide_fleet(state, inputs, types, config).orders
    return [(order.action.value, order.node_id, order.reason) for order in found]


BIG = MachineType("big", ResourceVector({"cpu": 8000}), 150, times=TIMES, can_suspend=False)

node_states = st.builds(
    FleetNode,
    node_id=st.integers(0, 9).map(str),
    type_name=st.sampled_from(["small", "big"]),
    state=st.sampled_from(NodeState),
    since_ms=st.integers(0, 10**7),
    busy=st.booleans(),
    starting=st.sampled_from(StartKind),
    free=st.sampled_from([ResourceVector(), CPU4]),
    leaves_in_ms=st.none() | st.just(1000),
    removing=st.sampled_from(["", "", "idle"]),
)
fleets = st.lists(node_states, max_size=10, unique_by=lambda node: node.node_id)
