"""What an event does to a node: heartbeats, silence, exits, restarts, and the end of the grace.

Silence makes a node LOST; its leases stay. When the grace time is over it is FENCED: its leases are
declared lost and their room is freed, and a node that comes back after that is reconciled before it
gets anything new. The ancestor has no such end: leases of a lost node stay as they are for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class NodeState(Enum):
    """Whether a node can be reached."""

    ALIVE = "ALIVE"
    LOST = "LOST"
    FENCED = "FENCED"
    """Lost for longer than the grace time; nothing is held on it any more."""
    RESTARTING = "RESTARTING"
    EXITED = "EXITED"


class NodeEvent(Enum):
    """What happened to a node."""

    HEARTBEAT = "HEARTBEAT"
    HEARTBEAT_OF_UNKNOWN_POOL = "HEARTBEAT_OF_UNKNOWN_POOL"
    """The pool that it names does not exist."""
    SILENCE = "SILENCE"
    GRACE_OVER = "GRACE_OVER"
    EXIT = "EXIT"
    RESTART = "RESTART"


class NodeEffect(Enum):
    """What follows from the event."""

    CREATE = "CREATE"
    STORE_CAPACITY = "STORE_CAPACITY"
    REFRESH = "REFRESH"
    JOIN_DEFAULT_POOL = "JOIN_DEFAULT_POOL"
    REFUSE = "REFUSE"
    ANNOUNCE_RETURN = "ANNOUNCE_RETURN"
    CLEAR_LOST_TIME = "CLEAR_LOST_TIME"
    SET_LOST_TIME = "SET_LOST_TIME"
    DECLARE_LEASES_LOST = "DECLARE_LEASES_LOST"
    FREE_ROOM = "FREE_ROOM"
    RECONCILE = "RECONCILE"
    LOG_ONLY = "LOG_ONLY"


@dataclass(frozen=True, slots=True)
class NodeReaction:
    """The state that follows, None for a node that was not let in, and what must be done."""

    state: NodeState | None
    effects: tuple[NodeEffect, ...] = ()


_N = NodeState
_E = NodeEffect


def react(
    state: NodeState | None,
    event: NodeEvent,
    *,
    default_pool: bool = True,
    restart_ends_with_heartbeat: bool = True,
) -> NodeReaction:
    """Return what the event does to a node in this state; None is a node never seen.

    `default_pool` says that a pool exists for nodes that name none. A heartbeat ends a restart;
    in the ancestor's first version it did not, and a restarting node never came back.
    """
    if event in (NodeEvent.HEARTBEAT, NodeEvent.HEARTBEAT_OF_UNKNOWN_POOL):
        if state is None:
            return _first_seen(event, default_pool)
        if state is _N.RESTARTING and not restart_ends_with_heartbeat:
            return NodeReaction(state, (_E.LOG_ONLY,))
        return _heard(state)
    if event is NodeEvent.GRACE_OVER and state is _N.LOST:
        return NodeReaction(_N.FENCED, (_E.DECLARE_LEASES_LOST, _E.FREE_ROOM))
    if event is NodeEvent.RESTART and state is _N.ALIVE:
        return NodeReaction(_N.RESTARTING)
    if state in (_N.ALIVE, _N.RESTARTING):
        if event is NodeEvent.SILENCE:
            return NodeReaction(_N.LOST, (_E.SET_LOST_TIME,))
        if event is NodeEvent.EXIT:
            return NodeReaction(_N.EXITED, (_E.SET_LOST_TIME,))
    return NodeReaction(state)


def _first_seen(event: NodeEvent, default_pool: bool) -> NodeReaction:
    if event is NodeEvent.HEARTBEAT:
        return NodeReaction(_N.ALIVE, (_E.CREATE, _E.STORE_CAPACITY))
    if default_pool:
        return NodeReaction(_N.ALIVE, (_E.JOIN_DEFAULT_POOL,))
    return NodeReaction(None, (_E.REFUSE,))


def _heard(state: NodeState) -> NodeReaction:
    if state is _N.ALIVE:
        return NodeReaction(state, (_E.REFRESH,))
    back = (_E.ANNOUNCE_RETURN, _E.CLEAR_LOST_TIME)
    return NodeReaction(_N.ALIVE, (*back, _E.RECONCILE) if state is _N.FENCED else back)
