"""Nodes and reservations as JSON, for the database's jsonb columns and the change feed."""

from __future__ import annotations

import json
from typing import Any

from tenure_core.planning.snapshot import ReservationKind, ReservationView
from tenure_core.resources import ResourceVector
from tenure_core.slots.operations import Node, NodeState
from tenure_core.timebase import Interval
from tenure_slottable.ports import StoredRow


def dump(value: object) -> str:
    """Return compact JSON."""
    return json.dumps(value, separators=(",", ":"))


def node_to_json(node: Node) -> dict[str, Any]:
    """Return a node as JSON can hold it."""
    return {
        "id": node.id,
        "pool": node.pool,
        "capacity": [[since, dict(amounts)] for since, amounts in node.capacity],
        "state": node.state.value,
        "node_type": node.node_type,
        "attributes": dict(node.attributes),
        "agent": node.agent,
        "agent_incarnation": node.agent_incarnation,
        "suspended_keeps": list(node.suspended_keeps),
        "version": node.version,
    }


def node_from_json(body: dict[str, Any]) -> Node:
    """Return the node that `node_to_json` wrote."""
    return Node(
        id=body["id"],
        pool=body["pool"],
        capacity=tuple((since, ResourceVector(amounts)) for since, amounts in body["capacity"]),
        state=NodeState(body["state"]),
        node_type=body["node_type"],
        attributes=body["attributes"],
        agent=body["agent"],
        agent_incarnation=body["agent_incarnation"],
        suspended_keeps=tuple(body["suspended_keeps"]),
        version=body["version"],
    )


def row_to_json(stored: StoredRow) -> dict[str, Any]:
    """Return a reservation as JSON can hold it."""
    row = stored.row
    return {
        "id": row.id,
        "pool": stored.pool,
        "node": row.node,
        "lease": row.lease,
        "attempt": row.attempt,
        "rank": row.rank,
        "kind": row.kind.value,
        "start_ms": row.interval.start,
        "end_ms": row.interval.end,
        "amounts": dict(row.amounts),
        "displaced": row.displaced,
        "version": row.version,
        "created_ms": stored.created,
    }


def row_from_json(body: dict[str, Any]) -> StoredRow:
    """Return the reservation that `row_to_json` wrote, or that a database row holds."""
    amounts = body["amounts"]
    row = ReservationView(
        id=body["id"],
        lease=body["lease"],
        attempt=body["attempt"],
        rank=body["rank"],
        node=body["node"],
        interval=Interval(body["start_ms"], body["end_ms"]),
        amounts=ResourceVector(json.loads(amounts) if isinstance(amounts, str) else amounts),
        kind=ReservationKind(body["kind"]),
        displaced=body["displaced"],
        version=body["version"],
    )
    return StoredRow(row, body["pool"], body["created_ms"])
