"""The states of an agent and every allowed change between them, as one table.

LOST is no end: an agent that returns gets a new session. RETIRED is one. Being cordoned or draining
is not a state but a wish of an operator that outlives states, so both are flags beside it.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class AgentState(Enum):
    """How an agent is."""

    JOINING = "JOINING"
    """Known; has no session yet."""
    ALIVE = "ALIVE"
    """Beats in time."""
    SUSPECT = "SUSPECT"
    """Missed beats; not yet given up."""
    LOST = "LOST"
    """Silent for longer than the loss time: its session is void, its work has ended."""
    RETIRED = "RETIRED"
    """Left for good."""


S = AgentState

TRANSITIONS: Final[dict[AgentState, frozenset[AgentState]]] = {
    S.JOINING: frozenset({S.ALIVE, S.RETIRED}),
    S.ALIVE: frozenset({S.SUSPECT, S.RETIRED}),
    S.SUSPECT: frozenset({S.ALIVE, S.LOST, S.RETIRED}),
    S.LOST: frozenset({S.ALIVE, S.RETIRED}),
    S.RETIRED: frozenset(),
}

WITH_SESSION: Final = frozenset({S.ALIVE, S.SUSPECT})
"""States in which an agent has a session, so that commands may be stored for it."""


def may_change(before: AgentState, after: AgentState) -> bool:
    """Say whether an agent may go from one state to another; staying is no change."""
    return after in TRANSITIONS[before]
