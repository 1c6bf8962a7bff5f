"""Which nodes the slot table should know before there are machines for them.

A fleet can be booked against before it exists: every machine that may be bought is an unbacked
node, available from now + lead, within the caps. Backing such a node, and closing one before its
machine is removed, is the slot table's; when to boot is decided in `fleet`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tenure_core.autoscaling.fleet_values import FleetConfig, FleetNode
from tenure_core.autoscaling.future_node import NodeState
from tenure_core.autoscaling.lead_times import boot_lead_ms
from tenure_core.autoscaling.machine_types import MachineType
from tenure_core.timebase import Millis


class NodeChange(StrEnum):
    """What the slot table is asked for."""

    ADD = "ADD"
    AVAILABLE_FROM = "AVAILABLE_FROM"
    WITHDRAW = "WITHDRAW"


@dataclass(frozen=True, slots=True)
class OfferedNode:
    """One change of an unbacked node; an added one gets its id from the slot table.

    `available_from_ms` is when its capacity may be booked from. WITHDRAW means `RetireNode` if
    unbooked: a booking that came in between wins.
    """

    change: NodeChange
    type_name: str
    node_id: str = ""
    available_from_ms: Millis = 0


def offered_nodes(
    nodes: Sequence[FleetNode],
    types: Sequence[MachineType],
    config: FleetConfig,
    *,
    booked: Mapping[str, Millis],
    now_ms: Millis,
) -> list[OfferedNode]:
    """Return the changes that make the unbacked nodes those that may still be bought.

    Every type is offered up to its own cap while all types together keep to `max_nodes`, in the
    order of the types. The k-th unbacked node of a type is available from now + lead(k). Nodes in
    `booked` are never withdrawn, and are available from the start of what is booked there at the
    latest, which `booked` tells; a type in back-off offers nothing new. O(nodes log nodes).
    """
    total_left = config.max_nodes - sum(node.exists or node.node_id in booked for node in nodes)
    exist = Counter(node.type_name for node in nodes if node.exists)
    changes: list[OfferedNode] = []
    for kind in types:
        unbacked = sorted(
            node.node_id
            for node in nodes
            if node.type_name == kind.name and node.state is NodeState.ABSENT
        )
        kept = [name for name in unbacked if name in booked]
        free = [name for name in unbacked if name not in booked]
        room = max(0, config.type_max(kind) - exist[kind.name] - len(kept))
        room = min(room, max(0, total_left))
        if not kind.available_at(now_ms):
            room = min(room, len(free))
        total_left -= room
        changes += [
            OfferedNode(
                NodeChange.AVAILABLE_FROM,
                kind.name,
                name,
                min(booked[name], now_ms + boot_lead_ms(kind, place)),
            )
            for place, name in enumerate(kept, start=1)
            if booked[name] > now_ms
        ]
        stay = free[:room]
        places = enumerate([*stay, *[""] * (room - len(stay))], start=len(kept) + 1)
        changes += [
            OfferedNode(
                NodeChange.AVAILABLE_FROM if name else NodeChange.ADD,
                kind.name,
                name,
                now_ms + boot_lead_ms(kind, place),
            )
            for place, name in places
        ]
        changes += [OfferedNode(NodeChange.WITHDRAW, kind.name, name) for name in free[room:]]
    return changes
