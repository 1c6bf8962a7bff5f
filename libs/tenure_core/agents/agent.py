"""What is known of one agent, and what it has, cut to stated limits.

Decides which of an agent's claims are believed. Its state machine is `states`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tenure_core.agents.states import AgentState
from tenure_core.resources import AMOUNT_MAX, KINDS_MAX, ResourceVector, is_kind
from tenure_core.timebase import Millis

CAPACITY_MAX: Final[Mapping[str, int]] = {
    "cpu": 4_096_000,
    "gpu": 1_024_000,
    "memory": 2**48,
    "disk": 2**53 - 1,
}
"""The most that one machine is believed to have, in base units: 4,096 cores, 256 TiB, ..."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What an agent says of itself when it connects."""

    agent: str
    pool: str
    incarnation: str
    version: str
    capacity: ResourceVector
    attributes: tuple[tuple[str, str], ...] = ()
    suspended_keeps: tuple[str, ...] = ()
    sealing_key: bytes = b""


@dataclass(frozen=True, slots=True)
class Agent:
    """One agent as it is stored. `node` has the agent's own id.

    `contact_ms` and `changed_ms` are by the registry's wall clock, for people.
    """

    agent: str
    pool: str
    incarnation: str
    state: AgentState
    cordoned: bool
    draining: bool
    capacity: ResourceVector
    attributes: tuple[tuple[str, str], ...]
    suspended_keeps: tuple[str, ...]
    version: str
    session: str
    replica: str
    contact_ms: Millis
    changed_ms: Millis
    sealing_key: bytes = b""


@dataclass(frozen=True, slots=True)
class Load:
    """What an agent last said of its machine."""

    cpu_permille: int = 0
    memory_bytes: int = 0
    running_count: int = 0


def believed_capacity(
    claimed: Mapping[str, int], limits: Mapping[str, int] = CAPACITY_MAX
) -> ResourceVector:
    """Return the capacity that is believed: each amount cut to [0, its limit].

    Names that are no kinds of resources are left out, and of more than 32 kinds the first by name
    are kept: a machine that lies gets less, never an error that would hide it.
    """
    kinds = sorted(kind for kind in claimed if is_kind(kind))[:KINDS_MAX]
    return ResourceVector(
        {kind: min(max(0, claimed[kind]), limits.get(kind, AMOUNT_MAX)) for kind in kinds}
    )
